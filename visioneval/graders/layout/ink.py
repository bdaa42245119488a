"""The ink of lines: its colors, the colors around it, its contrast by WCAG 2, and its exact extent.

In the box of a line, the background is the median color of the box's upper and lower margin, or of its middle where
most of that has another color, block by block along the line, so that it may change. What differs from it by more than
the threshold of Otsu (1979) is ink. The color of the ink is that of its cores: antialiasing mixes the edges of letters,
and all of thin strokes, with the background. The color around it is the median of a narrow ring around the letters, so
that an outline counts, and a photo counts where it is behind the line. The ratio of a line is that of its worst part,
some letters wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from visioneval.graders.base import GradingContext
from visioneval.graders.layout.places import Place, extent
from visioneval.graders.measures import Measure
from visioneval.graders.pixels.difference import TOOL_VERSIONS
from visioneval.graders.pixels.registration import decoded
from visioneval.graders.text.layout import Corners
from visioneval.graders.text.networks import crop
from visioneval.graders.text.ocr import on_backgrounds
from visioneval.media.images import load_image, room_for
from visioneval.media.opencv import portable_opencv

Array = np.ndarray[Any, np.dtype[Any]]

_BLOCK = 2.0
"""The width of a part of a line, in heights of its box."""
_RIM = 0.1
"""The share of a box's height that is margin, above and below."""
_MIDDLE, _SIDE, _MOST_OF_MIDDLE = 0.25, 0.06, 0.6
"""The middle of a box is what is this share of its height from both edges, and its ends are so wide. Letters seldom
cover most of the middle, and never of its ends."""
_OTHER_COLOR = 10.0
"""Colors that differ by more (CIE76) are different."""
_LEAST_HEIGHT = 0.3
"""The ink of a line has at least this share of the height of its box."""
_CORE = 0.85
"""Ink that differs from the background by this share of the most is the core of letters."""
_RING = 0.1
"""The width of the ring around letters, as a share of the box's height."""
_INNER, _EDGE_PX = 0.7, 3.0
"""What is inside of strokes, as a share of their largest depth, and the depth of their edge in pixels."""
_LEAST_INK = 0.3
"""A part with less than this share of the ink of most parts is skipped, such as one of a space."""
_UNCLEAR = 3.0
"""Ink that differs by less (CIE76) has no clear extent."""
_LEVEL = 0.25
"""A line rises by at most this share of its height to be level: then the upright box around it is its own."""


@dataclass(frozen=True, slots=True)
class Ink:
    """What is measured of a line. Colors are ``#RRGGBB``, those of the part with the lowest ``ratio``, 1 to 21.

    ``box`` is the exact extent of the ink, left, top, right and bottom in pixels, and ``size`` the font size by it;
    ``None`` for a slanted line and for ink that hardly differs from its background. ``stroke`` is the width of most
    strokes in pixels.
    """

    ratio: float
    color: str
    background: str
    stroke: float
    size: float | None = None
    box: tuple[float, float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class LinesInk:
    """The ink of each part of lines, in the given order; ``None`` if a part is too small."""

    parts: tuple[Ink | None, ...]


Part = tuple[str, Corners]
"""The text of a part of a line, and where OCR read it."""


def parts_of(place: Place) -> list[Part]:
    """The parts of a place: one for each reading."""
    return list(zip(place.texts, place.corners, strict=True))


@portable_opencv()
def measure_ink(path: Path, parts: Sequence[Part]) -> LinesInk:
    """Measures parts of lines. On a transparent image, each counts on the background on which it stands out more.

    Raises ``ImageError``.
    """
    with room_for(path):
        flats = on_backgrounds(load_image(path))
        measured = [[ink_of(flat, text, corners) for text, corners in parts] for flat in flats]
    return LinesInk(tuple(max(inks, key=lambda ink: ink.ratio if ink else 0.0) for inks in zip(*measured, strict=True)))


def ink_of(image: Image.Image, text: str, corners: Corners) -> Ink | None:
    """The ink of a part in an RGB image."""
    (left, top), (right, end), _, (_, bottom) = corners
    is_level = abs(end - top) <= _LEVEL * (bottom - top) and right > left
    if is_level:
        x0, y0 = max(0, int(min(x for x, _ in corners))), max(0, int(min(y for _, y in corners)))
        x1, y1 = int(np.ceil(max(x for x, _ in corners))), int(np.ceil(max(y for _, y in corners)))
        pixels = np.asarray(image)[y0:y1, x0:x1]
    else:
        x0, y0, pixels = 0, 0, np.asarray(crop(image, corners))
    if min(pixels.shape[:2]) < 4:
        return None
    lab = cv2.cvtColor(np.asarray(pixels, np.float32) / 255, cv2.COLOR_RGB2LAB)
    distance = np.sqrt(((lab - _background(lab)) ** 2).sum(axis=2))
    ink = _without_rim(distance > max(_threshold(distance), float(np.percentile(distance, 99)) / 3))
    if not ink.any():
        return None
    most = float(np.percentile(distance[ink], 95))
    worst = min(_blocks(pixels, distance, ink), key=lambda block: block[0], default=None)
    if worst is None:
        return None
    strokes = cv2.distanceTransform(np.pad(ink, 1).astype(np.uint8), cv2.DIST_L2, 3)
    stroke = round(float(2 * np.percentile(strokes[strokes > 0], 90)), 1)
    shown = Ink(_rounded_down(worst[0]), worst[1], worst[2], stroke)
    if not is_level or most < _UNCLEAR:
        return shown
    box = _extent(_without_rim(distance > most / 2))
    size = round((box[3] - box[1]) / extent(text), 1)
    return Ink(
        shown.ratio,
        shown.color,
        shown.background,
        stroke,
        size,
        (x0 + box[0], y0 + box[1], x0 + box[2], y0 + box[3]),
    )


def _background(lab: Array) -> Array:
    """The color behind the letters at each column: that of the margin, or of most of the middle, if that is another,
    as on a button that is hardly higher than its text."""
    height = lab.shape[0]
    rim = max(1, round(_RIM * height))
    margin = _along(np.concatenate([lab[:rim], lab[-rim:]]), height)
    middle = lab[round(_MIDDLE * height) : height - round(_MIDDLE * height)]
    inner = _along(middle, height)
    is_inner = np.sqrt(((middle - inner) ** 2).sum(axis=2)) < np.sqrt(((middle - margin) ** 2).sum(axis=2))
    is_other = float(np.sqrt(((inner - margin) ** 2).sum(axis=2)).mean()) > _OTHER_COLOR
    side = max(1, round(_SIDE * height))
    sides = np.concatenate([is_inner[:, :side], is_inner[:, -side:]], axis=1)
    is_most = float(is_inner.mean()) >= _MOST_OF_MIDDLE and float(sides.mean()) >= _MOST_OF_MIDDLE
    return inner if is_other and is_most else margin


def _along(band: Array, height: int) -> Array:
    """The color of a band at each column: medians of blocks, with straight lines between them."""
    width = band.shape[1]
    step = max(1, height // 2)
    centers = np.arange(0, width + step, step)
    starts = [max(0, min(center, width - 1) - height) for center in centers.tolist()]
    blocks = [band[:, start : start + 2 * height + 1].reshape(-1, 3) for start in starts]
    colors = np.array([np.median(block, axis=0) for block in blocks])
    columns = np.arange(width)
    return np.stack([np.interp(columns, centers, colors[:, channel]) for channel in range(3)], axis=1)[None]


def _without_rim(ink: Array) -> Array:
    """The ink without what reaches the upper or lower edge of the box, such as a border or the next line; all of it if
    that is most of the ink, as of letters in a box that is too small."""
    count, labels = cv2.connectedComponents(ink.astype(np.uint8), connectivity=8)
    at_rim = np.zeros(count, bool)
    at_rim[np.unique(np.concatenate([labels[0], labels[-1]]))] = True
    inner = ink & ~at_rim[labels]
    rows = np.flatnonzero(inner.any(axis=1))
    is_line = len(rows) > 0 and rows[-1] - rows[0] >= _LEAST_HEIGHT * len(ink)
    return inner if is_line else ink


def _threshold(distance: Array) -> float:
    """The threshold of Otsu between two kinds of pixels."""
    top = max(float(distance.max()), 1e-6)
    levels = np.clip(distance * (255 / top), 0, 255).astype(np.uint8)
    level, _ = cv2.threshold(levels, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    return float(level) * top / 255


def _blocks(pixels: Array, distance: Array, ink: Array) -> Iterator[tuple[float, str, str]]:
    """The contrast ratio of each part of a line, with the colors of its ink and around it."""
    height, width = ink.shape
    near = cv2.dilate(ink.astype(np.uint8), np.ones((3, 3), np.uint8))
    reach = 2 * max(2, round(_RING * height)) + 1
    ring = (cv2.dilate(near, np.ones((reach, reach), np.uint8)) - near).astype(bool)
    depth = cv2.distanceTransform(np.pad(ink, 1).astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    size = max(8, round(_BLOCK * height))
    count = max(1, round(2 * width / size) - 1)
    starts = [round(at * max(0, width - size) / max(1, count - 1)) for at in range(count)]
    amounts = [int(ink[:, start : start + size].sum()) for start in starts]
    needed = _LEAST_INK * float(np.median([amount for amount in amounts if amount] or [1]))
    for start, amount in zip(starts, amounts, strict=True):
        part = slice(start, start + size)
        around = pixels[:, part][ring[:, part]]
        if amount < max(needed, 1) or not len(around):
            continue
        of_ink = distance[:, part] * ink[:, part]
        core = of_ink >= _CORE * np.percentile(of_ink[ink[:, part]], 95)
        pairs = [(np.median(pixels[:, part][core], axis=0), np.median(around, axis=0))]
        pairs += _outlined(pixels[:, part], depth[:, part])
        color, behind = max(pairs, key=lambda pair: contrast_ratio(*pair))
        yield contrast_ratio(color, behind), _hex(color), _hex(behind)


def _outlined(pixels: Array, depth: Array) -> list[tuple[Array, Array]]:
    """The colors inside of wide strokes and at their edge: an outline counts as what is around the letters. Of letters
    without one, both are the same, or nearly so by antialiasing."""
    inner, edge = depth >= _INNER * depth.max(), (depth > 1) & (depth <= _EDGE_PX)
    if depth.max() < 2 * _EDGE_PX or not edge.any():
        return []
    return [(np.median(pixels[inner], axis=0), np.median(pixels[edge], axis=0))]


def _rounded_down(ratio: float) -> float:
    """A ratio with two digits that reaches no limit that it does not reach: WCAG rounds none up."""
    return floor(ratio * 100 + 1e-6) / 100


def contrast_ratio(first: Sequence[float] | Array, second: Sequence[float] | Array) -> float:
    """The contrast ratio of two sRGB colors of 0 to 255, by WCAG 2.2."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Sequence[float] | Array) -> float:
    """The relative luminance by WCAG 2.2, 0 to 1."""
    channels = [float(level) / 255 for level in color]
    linear = [level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _hex(color: Array) -> str:
    return "#" + "".join(f"{int(level):02X}" for level in color)


def _extent(ink: Array) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of the ink."""
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


async def measured_ink(
    context: GradingContext, places: Mapping[str, Sequence[Place]]
) -> dict[str, tuple[tuple[Ink | None, ...], ...]]:
    """The ink of each place of each name, part by part, measured once for all. Raises ``GraderError``."""
    path = context.generated.path
    parts = [part for of_name in places.values() for place in of_name for part in parts_of(place)]
    if not parts:
        return dict.fromkeys(places, ())
    measure = Measure(
        "ink of lines",
        {"output": path},
        partial(measure_ink, path, parts),
        LinesInk,
        options={"parts": parts},
        tool_versions=TOOL_VERSIONS,
        code=("layout",),
    )
    with decoded(path):
        inks = iter((await context.measure(measure)).parts)
    return {
        name: tuple(tuple(next(inks) for _ in place.corners) for place in of_name) for name, of_name in places.items()
    }
