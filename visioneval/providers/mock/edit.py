"""The mock's edits: repaints the inside of a mask, writes text in it, and adds unwanted marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from visioneval.errors import ProviderError
from visioneval.providers.mock.text import MIN_SIZE, Color, Dice, fit_box

Pixels = NDArray[np.uint8]
Box = tuple[int, int, int, int]

_DARK: Color = (30, 28, 28)
_LIGHT: Color = (252, 250, 246)
_MARKS: tuple[Color, ...] = ((214, 48, 74), (30, 132, 196), (244, 190, 40), (34, 150, 92))
_TINTS: tuple[Color, ...] = ((96, 40, 150), (20, 120, 110))
_READABLE = 3.5
"""The contrast ratio (WCAG 2.2) from which the existing ink color is reused."""
_CELLS = 96
"""Free areas are searched on a grid with this many cells along the longer side."""


def default_mask(size: tuple[int, int]) -> Image.Image:
    """The mask for cases without one: the middle third of the rows, without the outer columns."""
    width, height = size
    mask = Image.new("L", size, 0)
    mask.paste(255, (width // 10, height // 3, width - width // 10, max(height * 2 // 3, height // 3 + 1)))
    return mask


def repaint_regions(base: Image.Image, mask: Image.Image, lines: Sequence[str], dice: Dice) -> Image.Image:
    """Clears the inside of an ``L`` mask in an RGB image and draws each line in a region of its own.

    A single line goes to the largest part of the mask, "" draws nothing, and no lines draw an ellipse. Raises
    ``ProviderError`` if the mask has fewer separate regions than there are lines, or if a line does not fit.
    """
    if len(lines) < 2:
        return repaint(base, mask, next(iter(lines), None), dice)
    regions = _separate_regions(mask)
    if len(regions) < len(lines):
        message = f"mock: metadata.text has {len(lines)} lines, but the mask has {len(regions)} separate regions"
        raise ProviderError(message, kind="invalid")
    image = base
    for number, region in enumerate(regions):
        image = repaint(image, region, lines[number] if number < len(lines) else "", dice)
    return image


def _separate_regions(mask: Image.Image) -> list[Image.Image]:
    """A mask for each connected part of an ``L`` mask, from top to bottom and left to right."""
    count, labels = cv2.connectedComponents((np.asarray(mask) > 0).astype(np.uint8))
    regions = [labels == label for label in range(1, count)]
    corners = [tuple(int(np.flatnonzero(region.any(axis=axis))[0]) for axis in (1, 0)) for region in regions]
    ordered = (region for _, region in sorted(zip(corners, regions, strict=True), key=lambda item: item[0]))
    return [Image.fromarray(np.where(region, np.uint8(255), np.uint8(0))) for region in ordered]


def repaint(base: Image.Image, mask: Image.Image, line: str | None, dice: Dice) -> Image.Image:
    """Clears the inside of an ``L`` mask in an RGB image and draws ``line`` there; "" draws nothing.

    ``None`` draws an ellipse. No pixel outside the mask changes. Raises ``ProviderError`` if the line does not
    fit at a readable size.
    """
    inside = np.asarray(mask) > 0
    pixels = np.array(base)
    ground, grain = _surroundings(pixels, inside)
    ink, tallest = _ink(pixels, inside, ground)
    pixels[inside] = _grain_pixels(ground, grain, int(inside.sum()), dice)
    layer = Image.fromarray(pixels)
    box = _largest_box(inside)
    if line is None:
        ImageDraw.Draw(layer).ellipse(_inset(box, 0.15), fill=ink)
    elif line:
        left, top, right, bottom = _inset(box, 0.05)
        setting = fit_box(line, right - left, bottom - top, tallest or bottom - top)
        if setting is None:
            raise ProviderError(f"mock: {line!r} does not fit the mask at a readable size", kind="invalid")
        setting.draw(layer, (left + right) / 2, (top + bottom - setting.height) / 2, "m", ink)
    return Image.composite(layer, base, mask)


def add_line(image: Image.Image, mask: Image.Image, line: str) -> Image.Image:
    """Adds a label outside the mask, in the least detailed area. Raises ``ProviderError``."""
    side = min(image.size)
    size = max(MIN_SIZE, round(side * 0.05))
    while size >= MIN_SIZE:
        setting = fit_box(line, image.width, image.height, size)
        if setting is None:
            break
        width, height = setting.width + setting.size, setting.height + setting.size // 2
        corner = _calm_corner(image, mask, width, height)
        if corner is not None:
            left, top = corner
            marked = image.copy()
            ImageDraw.Draw(marked).rectangle((left, top, left + width - 1, top + height - 1), fill=_LIGHT)
            setting.draw(marked, left + width / 2, top + setting.size // 4, "m", _DARK)
            return marked
        size = min(size - 1, round(size * 0.85))
    raise ProviderError(f"mock: there is no space for {line!r} outside the mask", kind="invalid")


def spill(image: Image.Image, mask: Image.Image) -> Image.Image:
    """Adds a blot outside the mask, in the least detailed area, so that copy stays readable.

    Raises ``ProviderError`` if there is no space for it.
    """
    for share in (0.4, 0.34, 0.28, 0.22, 0.16):
        width, height = (max(1, round(side * share)) for side in image.size)
        corner = _calm_corner(image, mask, width, height)
        if corner is not None:
            box = (corner[0], corner[1], corner[0] + width - 1, corner[1] + height - 1)
            return blot(image, box)
    raise ProviderError("mock: there is no space for a spill outside the mask", kind="invalid")


def blot(image: Image.Image, box: Box) -> Image.Image:
    """Draws an ellipse in ``box`` in a contrasting color."""
    left, top = max(0, box[0]), max(0, box[1])
    ground = _median(np.asarray(image.crop((left, top, box[2] + 1, box[3] + 1))).reshape(-1, 3))
    marked = image.copy()
    ImageDraw.Draw(marked).ellipse(box, fill=_most_distant(_MARKS, ground))
    return marked


def drift(image: Image.Image) -> Image.Image:
    """Simulates a full regeneration: everything slightly larger and tinted."""
    width, height = image.size
    zoomed = image.resize(
        image.size, Image.Resampling.BICUBIC, box=(width * 0.008, height * 0.008, width * 0.992, height * 0.992)
    )
    return tinted(zoomed)


def tinted(image: Image.Image) -> Image.Image:
    """Blends one color into the whole image."""
    tint = _most_distant(_TINTS, flat_colour(image))
    return Image.blend(image, Image.new("RGB", image.size, tint), 0.16)


def flat_colour(image: Image.Image) -> Color:
    """The median colour of an image."""
    small = image.resize((min(64, image.width), min(64, image.height)), Image.Resampling.BOX)
    return _median(np.asarray(small).reshape(-1, 3))


def _surroundings(pixels: Pixels, inside: NDArray[np.bool_]) -> tuple[Color, NDArray[np.int16]]:
    """The median colour of a ring around the mask, and the small deviations from it, ``(n, 3)``."""
    reach = max(2, min(24, max(inside.shape) // 60))
    square = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
    ring = (cv2.dilate(inside.astype(np.uint8), square) > 0) & ~inside
    colours = pixels[ring] if ring.any() else pixels[inside]
    ground = _median(colours)
    off = colours.astype(np.int16) - np.array(ground, np.int16)
    return ground, off[(abs(off) <= 10).all(axis=1)]


def _grain_pixels(ground: Color, grain: NDArray[np.int16], count: int, dice: Dice) -> Pixels:
    """``count`` pixels of a color with the surroundings' grain, ``(count, 3)``."""
    flat = np.tile(np.array(ground, np.int16), (count, 1))
    if len(grain):
        # The legacy generator gives the same numbers in every version of numpy.
        flat += grain[np.random.RandomState(dice.pick("grain", 2**32)).randint(0, len(grain), count)]
    return flat.clip(0, 255).astype(np.uint8)


def _ink(pixels: Pixels, inside: NDArray[np.bool_], ground: Color) -> tuple[Color, int | None]:
    """The colour to draw in, and the largest size of letters: those of the existing content, if there is any."""
    distance = abs(pixels.astype(np.int16) - np.array(ground, np.int16)).sum(axis=2)
    old = inside & (distance > max(120, 0.6 * int(distance[inside].max())))
    if old.sum() >= 0.01 * inside.sum():
        ink = _median(pixels[old])
        rows = np.flatnonzero(old.any(axis=1))
        if _contrast(ink, ground) >= _READABLE:
            return ink, max(MIN_SIZE, round((int(rows[-1]) - int(rows[0]) + 1) / 0.7))
    return (_DARK if _contrast(_DARK, ground) >= _contrast(_LIGHT, ground) else _LIGHT), None


def _largest_box(inside: NDArray[np.bool_]) -> Box:
    """The largest upright rectangle in the mask, to about 1 %: left, top, right, bottom."""
    ys, xs = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    left, top, right, bottom = int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1
    step = max(1, -(-max(right - left, bottom - top) // _CELLS))
    part = np.pad(inside[top:bottom, left:right], ((0, -(bottom - top) % step), (0, -(right - left) % step)), "edge")
    cells: NDArray[np.bool_] = np.asarray(
        part.reshape(part.shape[0] // step, step, part.shape[1] // step, step).all(axis=(1, 3))
    )
    best = max(_boxes(cells), key=lambda box: (box[2] - box[0]) * (box[3] - box[1]), default=None)
    if best is None:
        return left, top, right, bottom
    farthest = min(right, left + best[2] * step), min(bottom, top + best[3] * step)
    return left + best[0] * step, top + best[1] * step, *farthest


def _boxes(cells: NDArray[np.bool_]) -> Iterator[Box]:
    """The rectangles of true cells that cannot grow in their own rows (the histogram method)."""
    heights = np.zeros(cells.shape[1] + 1, np.int64)
    for row, line in enumerate(cells):
        heights[:-1] = np.where(line, heights[:-1] + 1, 0)
        open_from: list[tuple[int, int]] = []
        for column, height in enumerate(heights.tolist()):
            start = column
            while open_from and open_from[-1][1] >= height:
                start, tall = open_from.pop()
                if tall:
                    yield start, row + 1 - tall, column, row + 1
            open_from.append((start, height))


def _calm_corner(image: Image.Image, mask: Image.Image, width: int, height: int) -> tuple[int, int] | None:
    """The top left corner of a box away from the mask and the image's border, over the fewest edges."""
    scale = max(image.size) / _CELLS
    size = (max(1, round(image.width / scale)), max(1, round(image.height / scale)))
    grey = np.asarray(image.convert("L").resize((size[0] * 4, size[1] * 4), Image.Resampling.BOX), np.float32)
    edges = cv2.resize(np.abs(cv2.Laplacian(grey, cv2.CV_32F)), size, interpolation=cv2.INTER_AREA)
    inside = (np.asarray(mask.resize(size, Image.Resampling.BOX)) > 0).astype(np.uint8)
    taken = cv2.dilate(inside, np.ones((5, 5), np.uint8))
    box_width, box_height = int(np.ceil(width / scale)) + 1, int(np.ceil(height / scale)) + 1
    if box_width > size[0] or box_height > size[1]:
        return None
    cost = _box_sums(edges.reshape(size[1], size[0]), box_height, box_width)
    free = _box_sums(taken.astype(np.float32), box_height, box_width) == 0
    if not free.any():
        return None
    y, x = np.unravel_index(int(np.where(free, cost, np.inf).argmin()), cost.shape)
    return min(round((x + 0.5) * scale), image.width - width), min(round((y + 0.5) * scale), image.height - height)


def _box_sums(values: Any, height: int, width: int) -> NDArray[np.float64]:
    sums = cv2.integral(values, sdepth=cv2.CV_64F)
    sums_by_corner: NDArray[np.float64] = (
        sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    )
    return sums_by_corner


def _inset(box: Box, share: float) -> Box:
    x, y = round((box[2] - box[0]) * share), round((box[3] - box[1]) * share)
    return box[0] + x, box[1] + y, max(box[0] + x + 1, box[2] - x), max(box[1] + y + 1, box[3] - y)


def _median(colours: Pixels) -> Color:
    red, green, blue = (int(value) for value in np.median(colours, axis=0))
    return red, green, blue


def _most_distant(colours: tuple[Color, ...], ground: Color) -> Color:
    return max(colours, key=lambda colour: sum(abs(a - b) for a, b in zip(colour, ground, strict=True)))


def _contrast(first: Color, second: Color) -> float:
    """The contrast ratio of WCAG 2.2: 1 (none) to 21."""
    luminances = []
    for colour in (first, second):
        red, green, blue = (
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in colour)
        )
        luminances.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)
