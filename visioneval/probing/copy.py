"""Lines of copy in an image: erased, or set again, with a mistake, in the size and the colors that are there.

All are pure. Every mistake is visible in print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor

import cv2
import numpy as np
from PIL import Image, ImageDraw

from visioneval.errors import ProviderError
from visioneval.graders.layout.ink import contrast_ratio
from visioneval.graders.text.layout import Corners
from visioneval.media.opencv import portable_opencv
from visioneval.probing.subject import Box, CannotPerturbError, Perturbed, Pixels, Random, Subject
from visioneval.providers.mock.text import font, tidy

ADDED = "While stocks last"
"""The line that ``added_line`` adds."""
_INK = 0.5
"""Pixels at least this far from the background, as a share of the farthest pixel of a line, are ink."""
_FULL_INK = 0.8
"""The same for the color of a line, without the smooth edges of its letters."""
_FAINT = 40.0
"""A line whose farthest pixel is this close to the background, in levels, has no measurable color."""
_FLAT = 14.0
"""The standard deviation, in levels, up to which a place is flat."""
_SCALE = 4
"""Letters are rendered this much larger and scaled down, for smooth edges."""
_TRIES = 200


@dataclass(frozen=True, slots=True)
class _Style:
    """How a line is set: the box of its ink in pixels, its color, and the color behind it."""

    ink: Box
    color: tuple[int, ...]
    background: tuple[int, ...]


def set_line(subject: Subject, text: str) -> Perturbed:
    """The subject's line, erased and set again as ``text``. Raises ``CannotPerturbError``."""
    line = subject.copy_line
    style = _style_of(subject.image, line.corners)
    blank = erased_line(subject.image, line.corners)
    left, top, width, height = style.ink
    size = _fitting_size(line.text, width, height)
    room = subject.image.shape[1] - left
    if _ink_box(text, size)[2] > room:
        size = size * room / _ink_box(text, size)[2]
    return Perturbed(_with_text(blank.image, text, size, (left, top + height), style.color, line.text), blank.box)


def smaller_line(subject: Subject, share: float) -> Perturbed:
    """The subject's line, erased and set again in letters that are smaller by this share. Raises
    ``CannotPerturbError``."""
    line = subject.copy_line
    style = _style_of(subject.image, line.corners)
    blank = erased_line(subject.image, line.corners)
    left, top, width, height = style.ink
    size = _fitting_size(line.text, width, height) * (1 - share)
    return Perturbed(_with_text(blank.image, line.text, size, (left, top + height), style.color, line.text), blank.box)


def faded_line(subject: Subject, ratio: float) -> Perturbed:
    """The subject's line in a color with this contrast ratio to its background. Raises ``CannotPerturbError``."""
    corners = subject.copy_line.corners
    box = _flat_box(subject.image, corners)
    style = _style_of(subject.image, corners)
    background = np.asarray(style.background[:3], np.float32)
    step = np.asarray(style.color[:3], np.float32) - background
    if contrast_ratio(background + step, background) <= ratio:
        raise CannotPerturbError("its line has no more contrast than this")
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if contrast_ratio(background + middle * step, background) > ratio else (middle, high)
    left, top, width, height = box
    faded = subject.image.copy()
    part = faded[top : top + height, left : left + width, :3]
    part[:] = np.rint(background + high * (part - background)).astype(np.uint8)
    return Perturbed(faded, box)


def swapped_lines(subject: Subject, random: Random) -> Perturbed:
    """The subject's line and another line of its copy, each in the middle of the other's place. Raises
    ``CannotPerturbError``."""
    own = subject.copy_line.corners
    first = _flat_box(subject.image, own)
    others = [line.corners for line in subject.others if not _overlap(first, _box_of(line.corners, subject.image))]
    if not others:
        raise CannotPerturbError("it has no other line of copy that runs level")
    for index in random.permutation(len(others)):
        other = others[int(index)]
        second = _flat_box(subject.image, other)
        rest = [_box_of(corners, subject.image) for corners in subject.lines if corners not in (own, other)]
        places = (_centered(first, second), _centered(second, first))
        if all(_is_free(subject.image, place, rest) for place in places) and not _overlap(*places):
            swapped = erased_line(erased_line(subject.image, own).image, other).image
            for (left, top, width, height), (x, y, _, _) in zip((first, second), places, strict=True):
                swapped[y : y + height, x : x + width] = subject.image[top : top + height, left : left + width]
            return Perturbed(swapped)
    raise CannotPerturbError("no two of its lines fit in the place of each other")


def _centered(box: Box, target: Box) -> Box:
    """The box with its middle where that of the target is."""
    return target[0] + (target[2] - box[2]) // 2, target[1] + (target[3] - box[3]) // 2, box[2], box[3]


def _is_free(image: Pixels, box: Box, others: Sequence[Box]) -> bool:
    """Whether a box is inside the image and overlaps none of the others."""
    left, top, width, height = box
    is_inside = left >= 0 and top >= 0 and left + width <= image.shape[1] and top + height <= image.shape[0]
    return is_inside and not any(_overlap(box, other) for other in others)


def _flat_box(image: Pixels, corners: Corners) -> Box:
    """The box around the corners. Raises ``CannotPerturbError`` if what is behind the line is not flat."""
    box = _box_of(corners, image)
    if float(_rim(image, box).std(axis=0).max()) > _FLAT:
        raise CannotPerturbError("its line does not lie on a flat background")
    return box


@portable_opencv()
def erased_line(image: Pixels, corners: Corners) -> Perturbed:
    """The image without what is in a box of text: filled where its surroundings are flat, else painted over."""
    box = _box_of(corners, image)
    left, top, width, height = box
    erased = image.copy()
    rim = _rim(image, box)
    if float(rim.std(axis=0).max()) <= _FLAT:
        erased[top : top + height, left : left + width] = np.median(rim, axis=0).astype(np.uint8)
        return Perturbed(erased, box)
    if image.shape[2] == 4:
        raise CannotPerturbError("its line lies on neither a flat nor an opaque background")
    hole = np.zeros(image.shape[:2], np.uint8)
    hole[top : top + height, left : left + width] = 255
    return Perturbed(np.asarray(cv2.inpaint(image, hole, 5, cv2.INPAINT_TELEA), dtype=np.uint8), box)


def added_line(subject: Subject, random: Random) -> Perturbed:
    """A line that nobody asked for, on a free flat place, in the style of the subject's line."""
    expected = subject.expect.text
    if expected is None or expected.extra == "allow":
        raise CannotPerturbError("its case allows extra text")
    style = _style_of(subject.image, subject.copy_line.corners)
    boxes = [_box_of(corners, subject.image) for corners in subject.lines]
    height, width = subject.image.shape[:2]
    line_height = max(14, min(style.ink[3], height // 12))
    size = _fitting_size("Ag", width, line_height)
    line_width = ceil(_ink_box(ADDED, size)[2])
    if line_width > width * 0.9:
        size, line_width = size * width * 0.9 / line_width, floor(width * 0.9)
    if line_width >= width - 4 or 2 * line_height >= height:
        raise CannotPerturbError("it has no room for another line")
    for _ in range(_TRIES):
        left, top = int(random.integers(2, width - line_width)), int(random.integers(height - 2 * line_height))
        box = (left, top, line_width, 2 * line_height)
        area = subject.image[top : top + box[3], left : left + line_width].reshape(-1, subject.image.shape[2])
        if float(area.std(axis=0).max()) <= _FLAT and not any(_overlap(box, other) for other in boxes):
            color, level = style.color, 20 if float(area[:, :3].mean()) > 128 else 235
            if np.sqrt(((np.median(area, axis=0)[:3] - np.asarray(color[:3])) ** 2).sum()) <= 60:
                color = (level, level, level, 255)[: area.shape[1]]
            bottom = round(top + 1.5 * line_height)
            return Perturbed(_with_text(subject.image, ADDED, size, (left, bottom), color, "A"), box)
    raise CannotPerturbError("it has no flat place for another line")


def _style_of(image: Pixels, corners: Corners) -> _Style:
    box = _box_of(corners, image)
    left, top, width, height = box
    background = np.median(_rim(image, box), axis=0)
    part = image[top : top + height, left : left + width].astype(np.float32)
    distance = np.sqrt(((part - background) ** 2).sum(axis=2))
    middle = distance[height // 5 : height - height // 5]  # what lies above and below the line is not its ink
    farthest = float(middle.max())
    if farthest < _FAINT:
        raise CannotPerturbError("its line hardly differs from its background")
    ink = distance >= _INK * farthest
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    color = np.median(part[height // 5 : height - height // 5][middle >= _FULL_INK * farthest], axis=0)
    extent = (left + columns[0], top + rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1)
    return _Style(
        (int(extent[0]), int(extent[1]), int(extent[2]), int(extent[3])),
        tuple(int(level) for level in color),
        tuple(int(level) for level in background),
    )


def _box_of(corners: Corners, image: Pixels) -> Box:
    """The upright box around the corners, within the image."""
    height, width = image.shape[:2]
    left, top = max(0, floor(min(x for x, _ in corners))), max(0, floor(min(y for _, y in corners)))
    right, bottom = min(width, ceil(max(x for x, _ in corners))), min(height, ceil(max(y for _, y in corners)))
    if right - left < 4 or bottom - top < 4:
        raise CannotPerturbError("its line is too small")
    return left, top, right - left, bottom - top


def _rim(image: Pixels, box: Box) -> Pixels:
    """The pixels on the edge of a box."""
    left, top, width, height = box
    part = image[top : top + height, left : left + width]
    return np.concatenate([part[0], part[-1], part[:, 0], part[:, -1]])


def _ink_box(text: str, size: float) -> tuple[float, float, float, float]:
    """Left, top, width and height of the ink of a text, in pixels, from the start of its baseline."""
    left, top, right, bottom = font(_SCALE * max(1, round(size))).getbbox(text, anchor="ls")
    factor = size / (_SCALE * max(1, round(size)))
    return left * factor, top * factor, (right - left) * factor, (bottom - top) * factor


def _fitting_size(text: str, width: float, height: float) -> float:
    """The size of letters at which a text fits a box. Raises ``CannotPerturbError`` without glyphs for it."""
    try:
        if tidy([text]) != (text,):
            raise CannotPerturbError("its line has characters that the font lacks")
    except ProviderError:
        raise CannotPerturbError("its line has characters that the font lacks") from None
    _, _, wide, high = _ink_box(text, 100)
    return max(6.0, 100 * min(width / wide, height / high))


def _with_text(
    image: Pixels, text: str, size: float, corner: tuple[int, int], color: tuple[int, ...], fitted: str
) -> Pixels:
    """The image with a text whose ink starts at the left of ``corner``, and whose baseline is that of ``fitted`` if
    the ink of that text ends at the bottom of ``corner``."""
    left, bottom = corner
    _, top_of_ink, _, height = _ink_box(fitted, size)
    baseline = bottom - (top_of_ink + height)
    whole = max(1, round(size))
    scale = _SCALE * whole / size
    canvas = Image.new("L", (ceil(image.shape[1] * scale), ceil(3 * whole * _SCALE)), 0)
    start = left * scale - font(_SCALE * whole).getbbox(text, anchor="ls")[0]
    first_row = floor(baseline - 1.8 * size)
    ImageDraw.Draw(canvas).text((start, (baseline - first_row) * scale), text, 255, font(_SCALE * whole), "ls")
    small = canvas.resize((image.shape[1], max(1, round(canvas.height / scale))), Image.Resampling.BOX)
    share = np.zeros(image.shape[:2], np.float32)
    rows = np.asarray(small, np.float32) / 255
    top, end = max(0, first_row), min(image.shape[0], first_row + rows.shape[0])
    if end > top:
        share[top:end] = rows[top - first_row : end - first_row]
    share = share[..., None]
    painted = np.asarray(color[: image.shape[2]], np.float32)
    return np.asarray(np.rint(image * (1 - share) + painted * share), dtype=np.uint8)


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


_SHAPES = ("OQCGDSUJ", "ILTEFHN", "AVWXYKMZ", "BPR", "oceasuqdgbp", "iltfjr", "vwxyzk", "hnm")
"""Letters of similar shapes. A replacement comes from another group of the same case."""
_SAME_IN_BOTH_CASES = "cosuvwxzpk"
_MARKS = ".,!?:;"


def letter_replaced(line: str, random: Random) -> str:
    """One letter becomes a letter of another shape."""
    at = _pick(line, lambda position: any(line[position] in group for group in _SHAPES), random, "no Latin letter")
    others = [
        letter
        for group in _SHAPES
        if line[at] not in group and group[0].isupper() == line[at].isupper()
        for letter in group
    ]
    return line[:at] + others[int(random.integers(len(others)))] + line[at + 1 :]


def letter_dropped(line: str, random: Random) -> str:
    """One letter is missing."""
    at = _pick(line, lambda position: line[position].isalpha(), random, "no letter")
    return line[:at] + line[at + 1 :]


def letter_doubled(line: str, random: Random) -> str:
    """One letter is there twice."""
    at = _pick(line, lambda position: line[position].isalpha(), random, "no letter")
    return line[:at] + line[at] + line[at:]


def letters_swapped(line: str, random: Random) -> str:
    """Two neighboring letters change places."""

    def is_pair(position: int) -> bool:
        pair = line[position : position + 2]
        return (
            len(pair) == 2
            and pair.isalpha()
            and pair[0].lower() != pair[1].lower()
            and (pair.islower() or pair.isupper())
        )

    at = _pick(line, is_pair, random, "no two different letters of one case side by side")
    return line[:at] + line[at + 1] + line[at] + line[at + 2 :]


def case_changed(line: str, random: Random) -> str:
    """One letter changes its case, and by that its shape."""

    def has_two_shapes(position: int) -> bool:
        letter = line[position]
        return letter.isascii() and letter.isalpha() and letter.lower() not in _SAME_IN_BOTH_CASES

    at = _pick(line, has_two_shapes, random, "no letter whose capital has another shape")
    return line[:at] + line[at].swapcase() + line[at + 1 :]


def punctuation_changed(line: str, random: Random) -> str:
    """A mark of the line is missing; a line without marks gets an exclamation mark at its end."""
    positions = [position for position, letter in enumerate(line) if letter in _MARKS]
    if not positions:
        return f"{line}!"
    at = positions[int(random.integers(len(positions)))]
    return line[:at] + line[at + 1 :]


def _pick(line: str, fits: Callable[[int], bool], random: Random, without: str) -> int:
    positions: Sequence[int] = [position for position in range(len(line)) if fits(position)]
    inner = [
        position
        for position in positions
        if 0 < position < len(line) - 1 and line[position - 1 : position + 2].isalpha()
    ]
    positions = inner or positions
    if not positions:
        raise CannotPerturbError(f"its line has {without}")
    return positions[int(random.integers(len(positions)))]
