"""Changes that stand alone in an output that is otherwise the input, pixel for pixel.

Where nothing was encoded again, there is no noise to tolerate: a digit of small print that changed is then certain,
though it is far below what a re-encoding may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.graders.pixels.color import ciede2000_of_bytes
from visioneval.graders.pixels.difference import WINDOW_PX, different, luma
from visioneval.graders.pixels.transparency import Floats, Mask, Pixels, on_backgrounds

VISIBLE_DELTA_E = 20.0
"""CIEDE2000 from which a single pixel counts. Smoothed edges of small letters are that far apart."""
IDENTICAL = 0.5
"""The share of the detail of the image that must be identical: a new encoding changes almost all."""
IDENTICAL_AROUND = 0.8
"""The same around a change, where other letters may have changed too."""

_DETAIL_LEVELS = 16
"""The range of luma within 3 x 3 pixels from which there is detail: flat areas are identical after any encoding."""
_JOIN_PX = 2
_NEAR_PX = 4
_AROUND_PX = 32
_MAX_GROUPS = 200
"""So many groups, the largest, are looked at: an image with more was not left alone."""


@dataclass(frozen=True, slots=True)
class IsolatedChange:
    """``pixels`` of the largest change; 0 without any, and then no ``window`` (left, top, width, height) around it."""

    pixels: int
    window: tuple[int, int, int, int] | None


def isolated_change(base: Pixels, output: Pixels, region: Mask) -> IsolatedChange | None:
    """The largest group of visibly changed pixels of ``region`` that stands alone; ``None`` if the output is not the
    base, pixel for pixel, in most of its detail.

    A group stands alone if no changed pixels connect it with the border of ``region``, as in a repainted surrounding of
    the mask, and if most of the detail around it is identical. Both images are as ``comparable`` returns them.
    """
    differs = different(base, output) & region
    if not differs.any():
        return IsolatedChange(0, None)
    detail = _detail(base, region)
    if _identical_share(differs, detail) < IDENTICAL:
        return None
    detached = _detached(differs, region)
    if not detached.any():
        return IsolatedChange(0, None)
    changed = base.copy()
    cv2.copyTo(np.ascontiguousarray(output), detached.astype(np.uint8), changed)
    distances = reduce(np.maximum, (ciede2000_of_bytes(*pair) for pair in on_backgrounds(base, changed)))
    visible: Mask = distances >= VISIBLE_DELTA_E
    for pixels, group, box in islice(_groups(visible), _MAX_GROUPS):
        if _stands_alone(group, box, differs, detail):
            return IsolatedChange(pixels, _window(box, region.shape))
    return IsolatedChange(0, None)


def _detail(base: Pixels, region: Mask) -> Mask:
    """The pixels of ``region`` with detail; all if there are none."""
    square = np.ones((3, 3), np.uint8)

    def spread(image: Pixels) -> Floats:
        grey = luma(image)
        return np.asarray(cv2.dilate(grey, square) - cv2.erode(grey, square), np.float32)

    spreads = (spread(shown) for (shown,) in on_backgrounds(base))
    detail: Mask = (reduce(np.maximum, spreads) > _DETAIL_LEVELS) & region
    return detail if detail.any() else region


def _identical_share(differs: Mask, pixels: Mask) -> float:
    return 1 - int((differs & pixels).sum()) / max(1, int(pixels.sum()))


def _detached(differs: Mask, region: Mask) -> Mask:
    """``differs`` without what is connected with the border of ``region``, such as a crop around the mask that was
    generated again."""
    labels = cv2.connectedComponents(_joined(differs))[1]
    attached = np.zeros(int(labels.max()) + 1, np.bool_)
    attached[labels[~region]] = True
    attached[0] = False
    detached: Mask = differs & ~attached[labels]
    return detached


def _groups(visible: Mask) -> Iterator[tuple[int, Mask, tuple[slice, slice]]]:
    """The groups of neighboring pixels, largest first: their number of pixels, mask within their box, and box."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(_joined(visible))
    sizes = np.bincount(labels[visible], minlength=len(stats))
    for label in np.argsort(-sizes, kind="stable"):
        if not sizes[label]:
            return
        left, top, width, height = (int(value) for value in stats[label][:4])
        box = slice(top, top + height), slice(left, left + width)
        yield int(sizes[label]), (labels[box] == label) & visible[box], box


def _joined(pixels: Mask) -> NDArray[np.uint8]:
    """The pixels with those between them where they are at most twice ``_JOIN_PX`` apart."""
    square = np.ones((2 * _JOIN_PX + 1, 2 * _JOIN_PX + 1), np.uint8)
    return np.asarray(cv2.dilate(pixels.astype(np.uint8), square), np.uint8)


def _stands_alone(group: Mask, box: tuple[slice, slice], differs: Mask, detail: Mask) -> bool:
    """Whether most of the detail around a group is identical; of a group in a flat area, most pixels around it."""
    around = tuple(slice(max(0, part.start - _AROUND_PX), part.stop + _AROUND_PX) for part in box)
    near = np.zeros(differs[around].shape, np.uint8)
    top, left = (inner.start - outer.start for inner, outer in zip(box, around, strict=True))
    near[top : top + group.shape[0], left : left + group.shape[1]] = group
    others = cv2.dilate(near, np.ones((2 * _NEAR_PX + 1, 2 * _NEAR_PX + 1), np.uint8)) == 0
    with_detail = others & detail[around]
    return _identical_share(differs[around], with_detail if with_detail.any() else others) >= IDENTICAL_AROUND


def _window(box: tuple[slice, slice], shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The box, grown to ``WINDOW_PX`` on each side where it is smaller, inside the image."""
    ranges = []
    for part, size in zip(box, shape, strict=True):
        length = min(size, max(WINDOW_PX, part.stop - part.start))
        start = min(max(0, (part.start + part.stop - length) // 2), size - length)
        ranges.append((start, length))
    (top, height), (left, width) = ranges
    return left, top, width, height
