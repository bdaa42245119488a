"""Reads the text of an image with transparency on backgrounds on which it can be seen: white, black, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import cv2
import numpy as np
from PIL import Image

from visioneval.graders.text.copy_match import Corners, Reading
from visioneval.graders.text.reading import ocr
from visioneval.media.images import on_background
from visioneval.media.opencv import portable_opencv

_VISIBLE = 64
"""Alpha, 0 to 255, from which a pixel counts as drawn."""
_REACH_PX = 8
"""Only what is drawn this close to transparent pixels is seen against the background."""
_CONTRAST = 80
"""Of 255: luma that differs by less from the background may not be readable on it."""
_MIN_SHARE = 0.002
"""The share of the pixels beside transparent ones from which light or dark content counts."""
_OVERLAP = 0.5
"""The share of the smaller box from which two readings are of the same text."""


def read(image: Image.Image) -> list[Reading]:
    """The text segments in an image of ``load_image``: RGB as it is, RGBA on each background that it needs.

    Where readings on both backgrounds overlap, those of the background with more confident characters count. Raises
    ``GraderError``.
    """
    on_first, *on_second = [ocr.read(on_background(image, color)) for color in backgrounds(image)]
    return _merged(on_first, on_second[0]) if on_second else on_first


@portable_opencv()
def backgrounds(image: Image.Image) -> tuple[str, ...]:
    """The backgrounds on which everything that is drawn beside transparent pixels stands out; at least one."""
    if image.mode == "RGB":
        return ("white",)
    visible = (np.asarray(image.getchannel("A")) >= _VISIBLE).astype(np.uint8)
    square = np.ones((2 * _REACH_PX + 1, 2 * _REACH_PX + 1), np.uint8)
    beside = (visible - cv2.erode(visible, square)).astype(np.bool_)
    luma = np.asarray(image.convert("RGB").convert("L"))[beside]
    needed = _MIN_SHARE * luma.size
    is_light, is_dark = (luma > 255 - _CONTRAST).sum() > needed, (luma < _CONTRAST).sum() > needed
    if is_light:
        return ("white", "black") if is_dark else ("black",)
    return ("white",)


def _merged(first: Sequence[Reading], second: Sequence[Reading]) -> list[Reading]:
    """The readings of two backgrounds, without those of one where the other shows the same text better."""
    readings = [*first, *second]
    groups = list(range(len(readings)))
    for index, reading in enumerate(readings):
        for other in range(index):
            if overlap(reading, readings[other]):
                joined, target = groups[index], groups[other]
                groups = [target if group == joined else group for group in groups]
    merged: list[Reading] = []
    for group in dict.fromkeys(groups):
        members = [index for index, number in enumerate(groups) if number == group]
        sides = [
            [readings[index] for index in members if (index < len(first)) is is_first] for is_first in (True, False)
        ]
        merged += max(sides, key=_certainty)
    return sorted(merged, key=_top_left)


def overlap(reading: Reading, other: Reading) -> bool:
    """Whether two readings are of the same text."""
    a, b = _box(reading), _box(other)
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return width > 0 and height > 0 and width * height >= _OVERLAP * smaller


def _box(reading: Reading) -> tuple[float, float, float, float]:
    """Left, top, right and bottom in pixels."""
    corners: Corners | tuple[()] = reading.corners or ()
    xs, ys = [x for x, _ in corners] or [0.0], [y for _, y in corners] or [0.0]
    return min(xs), min(ys), max(xs), max(ys)


def _certainty(readings: Iterable[Reading]) -> float:
    return sum(len(reading.text) * reading.confidence for reading in readings)


def _top_left(reading: Reading) -> tuple[float, float]:
    left, top, _, _ = _box(reading)
    return top, left
