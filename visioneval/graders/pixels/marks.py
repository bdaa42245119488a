"""The mark that a provider sets in a corner of its outputs: Gemini's light four-pointed star at the bottom right.

The star is the curve ``|x|^p + |y|^p = 1``. Places that look like it, by normalized cross-correlation at every size,
are checked along that curve: a mark that is laid over an image lightens all of it by one opacity, whatever lies below.
Two real marks agree with one opacity at 0.86 and 0.88 of the curve, the next of 103 other images at 0.62
(``python -m tests.bench.marks``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.graders.pixels.color import Floats, Mask, Pixels
from visioneval.graders.pixels.difference import Box
from visioneval.media.opencv import portable_opencv

PROVIDER = "Gemini"
AGREEMENT = 0.7
"""The share of the curve that must be lightened by one opacity."""
OPACITIES = (0.15, 0.8)
"""The opacity of the mark; measured: 0.40 and 0.46."""
SPREAD = 0.12
"""By how much the opacity at one place of the curve may differ from that of most."""
SIDES = (0.02, 0.11)
"""The side of the star as a share of the shorter side of the image; measured: 0.055 and 0.058."""
PUBLISHED = ((48, 32), (96, 64))
"""Side and distance from the corner, in pixels, in outputs that were not scaled."""
SMALLEST_PX = 16
REACH = 2.5
"""How many sides from the corner the whole star lies."""
MARGIN = 0.15
"""How much wider than the star its box is on each side, for what encoders smear."""
_POWER = 0.66
_GROWTH = 1.05
_LIKENESS = 0.3
"""The correlation from which a place is checked."""
_CANDIDATES = 6
"""How many places are checked for each size."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A provider's mark: its box in pixels of the image, with its margin, and the share of its curve that agrees."""

    provider: str
    box: Box
    agreement: float


@portable_opencv()
def find_mark(image: Pixels) -> Mark | None:
    """The mark of an RGB or straight RGBA image; ``None`` if it has none."""
    gray = cv2.cvtColor(np.ascontiguousarray(image[..., :3]), cv2.COLOR_RGB2GRAY).astype(np.float32)
    height, width = gray.shape
    best = max(
        ((_agreement(gray, *place), place) for place in _places(gray)),
        key=lambda checked: (checked[0], checked[1][2]),
        default=(0.0, (0.0, 0.0, 0)),
    )
    agreement, (x, y, side) = best
    if agreement < AGREEMENT:
        return None
    half = side * (0.5 + MARGIN)
    left, top = max(0, round(x - half)), max(0, round(y - half))
    right, bottom = min(width, round(x + half)), min(height, round(y + half))
    return Mark(PROVIDER, (left, top, right - left, bottom - top), round(agreement, 2))


def mark_on_base(base: Pixels, output: Pixels) -> Box | None:
    """The box of the output's mark in pixels of the base; ``None`` if it has none."""
    mark = find_mark(output)
    if mark is None:
        return None
    down, across = (here / there for here, there in zip(base.shape[:2], output.shape[:2], strict=True))
    left, top, width, height = mark.box
    return round(left * across), round(top * down), max(1, round(width * across)), max(1, round(height * down))


def is_near_corner(box: Box, shape: tuple[int, ...]) -> bool:
    """Whether a box reaches the part of an image in which its mark would be."""
    left, top, width, height = box
    reach = REACH * max(SIDES[1] * min(shape[:2]), PUBLISHED[-1][0])
    return left + width > shape[1] - reach and top + height > shape[0] - reach


def filled(box: Box | None, shape: tuple[int, ...]) -> Mask:
    """A mask of a box; empty without one."""
    mask = np.zeros(shape, np.bool_)
    if box is not None:
        left, top, width, height = box
        mask[top : top + height, left : left + width] = True
    return mask


def _star(side: int) -> Floats:
    """The star, 0..1, with smooth edges."""
    scale = 8
    across = np.abs((np.arange(side * scale) + 0.5) / (side * scale) * 2 - 1) ** _POWER
    inside = (across[None, :] + across[:, None] <= 1).astype(np.float32)
    star: Floats = cv2.resize(inside, (side, side), interpolation=cv2.INTER_AREA).astype(np.float32, copy=False)
    return star


def _places(gray: Floats) -> Iterator[tuple[float, float, int]]:
    """Centers and sides near the corner that look like a star or have a published size, and their neighbors."""
    height, width = gray.shape
    for side, margin in PUBLISHED:
        if SMALLEST_PX <= side <= 0.3 * min(gray.shape):
            yield from _around(width - margin - side / 2 - 0.5, height - margin - side / 2 - 0.5, side)
    smallest, largest = max(SMALLEST_PX, SIDES[0] * min(gray.shape)), SIDES[1] * min(gray.shape)
    sizes = {round(smallest * _GROWTH**step) for step in range(64) if smallest * _GROWTH**step <= largest}
    for side in sorted(sizes):
        reach = round(REACH * side)
        top, left = max(0, height - reach), max(0, width - reach)
        likeness = cv2.matchTemplate(np.ascontiguousarray(gray[top:, left:]), _star(side), cv2.TM_CCOEFF_NORMED)
        for _ in range(_CANDIDATES):
            _, best, _, (x, y) = cv2.minMaxLoc(likeness)
            if best < _LIKENESS:
                break
            yield from _around(left + x + (side - 1) / 2, top + y + (side - 1) / 2, side)
            likeness[max(0, y - 3) : y + 4, max(0, x - 3) : x + 4] = -1


def _around(x: float, y: float, side: int) -> Iterator[tuple[float, float, int]]:
    """A place and its neighbors."""
    yield from ((x + dx, y + dy, side + ds) for dx, dy, ds in product((-1, 0, 1), repeat=3))


def _curve() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of the curve without its tips, and the direction out of the star at each."""
    angle = np.linspace(0, np.pi / 2, 26)[3:-3]
    quarter = np.stack([np.cos(angle) ** (2 / _POWER), np.sin(angle) ** (2 / _POWER)], axis=1)
    points = np.concatenate([quarter * signs for signs in ((1, 1), (-1, 1), (1, -1), (-1, -1))])
    out = np.sign(points) * np.abs(points) ** (_POWER - 1)
    return points, out / np.sqrt((out * out).sum(axis=1, keepdims=True))


_POINTS, _OUT = _curve()


def _agreement(gray: Floats, x: float, y: float, side: int) -> float:
    """The share of the curve at which the inside is lighter than the outside by the opacity of most of it."""
    step = max(1.2, 0.03 * side)

    def levels(offset: float) -> Any:
        places = (_POINTS * (side / 2) + _OUT * offset + (x, y)).astype(np.float32)
        across, down = (np.ascontiguousarray(places[:, axis : axis + 1]) for axis in (0, 1))
        return cv2.remap(gray, across, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)[:, 0]

    inside, outside = levels(-step), levels(step)
    opacity = (inside - outside) / np.maximum(255 - outside, 8)
    middle = float(np.median(opacity))
    if not OPACITIES[0] < middle < OPACITIES[1]:
        return 0.0
    return float((np.abs(opacity - middle) < SPREAD).mean())
