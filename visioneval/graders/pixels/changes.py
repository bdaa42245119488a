"""Changes where a usual comparison cannot tell: in an output that is otherwise the input, or redrawn as a whole.

Where nothing was encoded again, there is no noise to tolerate: a digit of small print that changed is then certain,
though it is far below what a re-encoding may change.

A model that repaints every pixel shifts, tints and sharpens everything a little. A smooth displacement, a smooth change
of tone and a change of sharpness, all bounded, are undone; then each place is compared with what is near it in the
other image, at a coarse scale. What is left is compared with what is left in most of the image: a redraw differs by
similar amounts everywhere, a change in its place. Where most of the image differs much, as when strands and folds are
painted again, single strokes differ as much as a small change does, so the windows and what counts as near are larger
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.graders.pixels.color import (
    Floats,
    Mask,
    Pixels,
    ciede2000_of_bytes,
    lab_of_linear,
    linear_light,
    on_backgrounds,
)
from visioneval.graders.pixels.difference import WINDOW_PX, different, luma

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
    detail = _detailed_pixels(base, region)
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
            return IsolatedChange(pixels, _window_around(box, region.shape))
    return IsolatedChange(0, None)


def _detailed_pixels(base: Pixels, region: Mask) -> Mask:
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


def _window_around(box: tuple[slice, slice], shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The box, grown to ``WINDOW_PX`` on each side where it is smaller, inside the image."""
    ranges = []
    for part, size in zip(box, shape, strict=True):
        length = min(size, max(WINDOW_PX, part.stop - part.start))
        start = min(max(0, (part.start + part.stop - length) // 2), size - length)
        ranges.append((start, length))
    (top, height), (left, width) = ranges
    return left, top, width, height


MAX_DISPLACEMENT = 0.006
"""The largest displacement that is undone, as a share of the shorter side."""
MAX_CURVE, MAX_TINT = 12.0, 8.0
"""Of 255: the largest change of tone that is undone by a curve of each channel, and by a tint of each surrounding."""
MAX_SHARPNESS = 1.0
"""The largest change of sharpness that is undone: 1 is twice the contrast of detail."""
REST = 2.5
"""The multiple of the difference of most windows beyond which a window counts as changed."""

_LONGEST = 512
_WINDOW = 0.025
"""The side of a window as a share of the shorter side, as all of the following."""
_SCALE, _REACH, _BORDER = 0.003, 0.004, 0.01
_COARSEST = 2.0
"""The factor by which the window and the reach grow at most: by the color difference (CIE76) of nine of ten windows."""
_FLOW_SIGMA, _TINT_SIGMA, _DETAIL_SIGMA = 0.06, 0.08, 0.012
_STEPS = 4
_PASSES = (4.0, 2.0, 1.0)
_KNOTS = np.arange(8, 256, 16)
_AROUND = 2
"""How many windows around the worst one are looked at for the cause."""
_EVEN, _EXPLAINED = 0.7, 0.5
"""What a cause must explain there: a mean color of the difference, a change of sharpness of its square, as shares."""
_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Redraw:
    """``content`` is the color difference (CIE76) of the worst window beyond ``REST`` times that of most windows, 0 and
    up; ``overall`` that which nine of ten windows do not exceed.

    ``window`` is (left, top, width, height) of the worst window, and ``cause`` what differs around it: ``color``,
    ``sharpness`` or ``content``. ``tone`` is the mean change of tone in levels of 255, ``displacement`` the largest, as
    a share of the shorter side, and ``sharpness`` by how much the contrast of detail changed, as a share, which were
    undone. ``local_sharpness`` is the same around the worst window, beyond what was undone.
    """

    content: float
    overall: float
    tone: float
    displacement: float
    sharpness: float
    local_sharpness: float
    cause: str
    window: tuple[int, int, int, int]


def measure_redraw(base: Pixels, output: Pixels, region: Mask) -> Redraw | None:
    """Compares two images of the same size, as ``comparable`` returns them; ``None`` where ``region`` is too small."""
    scale = min(1.0, _LONGEST / max(region.shape))
    size = (max(1, round(region.shape[1] * scale)), max(1, round(region.shape[0] * scale)))
    inside: Mask = cv2.resize(region.astype(np.float32), size, interpolation=cv2.INTER_AREA) > 0.99
    border = max(1, round(_BORDER * min(size)))
    inside[:border] = inside[-border:] = False
    inside[:, :border] = inside[:, -border:] = False
    if not inside.any():
        return None
    small = [np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8) for image in (base, output)]
    shown = [_compared(before, after, inside, scale) for before, after in on_backgrounds(*small)]
    return max(shown, key=lambda redraw: (redraw.content, redraw.overall))


def _compared(base: Pixels, output: Pixels, inside: Mask, scale: float) -> Redraw:
    side = min(inside.shape)
    output = output.copy()
    output[~inside] = base[~inside]
    flow = _displacement(luma(base), luma(output), inside)
    moved = _moved(output, flow).astype(np.float32)
    sigma = max(0.5, _SCALE * side)
    before, after = (cv2.GaussianBlur(image, (0, 0), sigma) for image in (base.astype(np.float32), moved))
    toned = _tinted(_curved(before, after, inside), after, inside)
    detail_sigma = max(1.0, _DETAIL_SIGMA * side)
    sharpness = _sharpness(_detail(toned, detail_sigma), after - toned, inside)
    sharp = toned + np.float32(sharpness) * _detail(toned, detail_sigma)
    first, second = (lab_of_linear(linear_light(np.clip(image, 0, 255))) for image in (sharp, after))
    window, means = _left_over(first, second, inside, 1.0)
    overall = rest = float(np.percentile(means[inside], 90))
    coarseness = min(_COARSEST, max(1.0, overall))
    if coarseness > 1:
        window, means = _left_over(first, second, inside, coarseness)
        rest = float(np.percentile(means[inside], 90))
    row, column = (int(at) for at in np.unravel_index(int(np.argmax(np.where(inside, means, -1))), means.shape))
    part = tuple(slice(max(0, at - _AROUND * window), at + _AROUND * window + 1) for at in (row, column))
    step, detail = (second - first)[part][inside[part]], _detail(first, detail_sigma)[part][inside[part]]
    local, cause = _cause(step, detail)
    corner = [max(0, round((at - window // 2) / scale)) for at in (column, row)]
    length = round(window / scale)
    return Redraw(
        content=round(max(0.0, float(means[row, column]) - REST * rest), _DIGITS),
        overall=round(overall, _DIGITS),
        tone=round(float(np.abs(toned - before)[inside].mean()), _DIGITS),
        displacement=round(float(np.hypot(*flow)[inside].max()) / side, 4),
        sharpness=round(sharpness, _DIGITS),
        local_sharpness=round(local, _DIGITS),
        cause=cause,
        window=(corner[0], corner[1], length, length),
    )


def _left_over(first: Floats, second: Floats, inside: Mask, coarseness: float) -> tuple[int, Floats]:
    """The side of a window in pixels, and the mean difference of the window around each pixel (CIE76)."""
    side = min(inside.shape)
    window, reach = max(3, round(coarseness * _WINDOW * side)), max(1, round(coarseness * _REACH * side))
    differs = np.maximum(_beyond(first, second, reach), _beyond(second, first, reach)) * inside
    return window, np.asarray(cv2.blur(differs, (window, window)), np.float32)


def _cause(step: Floats, detail: Floats) -> tuple[float, str]:
    """By how much the sharpness around a window differs, and what explains most of the difference there: its mean
    color, its sharpness, or neither."""
    gain = float((step * detail).sum() / (np.square(detail).sum() + 1e-6))
    if np.linalg.norm(step.mean(axis=0)) >= _EVEN * np.linalg.norm(step, axis=1).mean():
        return gain, "color"
    explained = 1 - np.square(step - gain * detail).sum() / (np.square(step).sum() + 1e-6)
    return gain, "sharpness" if explained >= _EXPLAINED else "content"


def _detail(image: Any, sigma: float) -> Floats:
    """What a blur takes away."""
    return np.asarray(image - cv2.GaussianBlur(image, (0, 0), sigma), np.float32)


def _sharpness(detail: Floats, step: Floats, inside: Mask) -> float:
    """The change of the contrast of detail that explains most of ``step``, with less weight for what it does not."""
    details, steps = detail[inside].astype(np.float64), step[inside].astype(np.float64)
    gain, trust = 0.0, np.ones_like(steps)
    for _ in range(_STEPS):
        gain = float((trust * details * steps).sum() / ((trust * np.square(details)).sum() + 1e-6))
        residual = steps - gain * details
        spread = 1.4826 * float(np.median(np.abs(residual))) + 0.5
        trust = 1 / np.square(1 + np.square(residual / (3 * spread)))
    return round(min(MAX_SHARPNESS, max(-MAX_SHARPNESS / 2, gain)), _DIGITS)


def _displacement(base: Floats, output: Floats, inside: Mask) -> Floats:
    """How far each place moved to the right and down, ``(2, height, width)`` in pixels.

    Lucas and Kanade (1981) over wide windows, so that the motion of one object explains nothing, on band-passed luma,
    with less weight for what does not match.
    """
    height, width = base.shape
    side = min(base.shape)
    total = np.zeros((2, height, width), np.float32)
    mean = _wide_mean(base.shape, 4, _FLOW_SIGMA * side)
    for size in _PASSES:
        sigma = max(0.5, size * side / 700)
        before, after = (
            cv2.GaussianBlur(image, (0, 0), sigma) - cv2.GaussianBlur(image, (0, 0), 6 * sigma)
            for image in (base, output)
        )
        for _ in range(2):
            moved = _moved(after, total)
            slope = (before + moved) / 2
            across, down = (cv2.Sobel(slope, cv2.CV_32F, *axis, scale=1 / 8) for axis in ((1, 0), (0, 1)))
            residual = moved - before
            spread = 1.4826 * float(np.median(np.abs(residual)[inside])) + 0.5
            trust = inside / np.square(1 + np.square(residual / (2 * spread)))
            xx, xy, yy = (mean(product * trust) for product in (across * across, across * down, down * down))
            x_target, y_target = mean(across * residual * trust), mean(down * residual * trust)
            steady = 0.025 * float(xx.mean() + yy.mean()) + 1e-6
            xx, yy = xx + steady, yy + steady
            area = xx * yy - xy * xy
            total[0] -= cv2.resize((yy * x_target - xy * y_target) / area, (width, height))
            total[1] -= cv2.resize((xx * y_target - xy * x_target) / area, (width, height))
            total *= np.minimum(1, MAX_DISPLACEMENT * side / np.maximum(np.hypot(*total), 1e-6))
    return total


def _moved(image: Any, flow: Floats) -> Any:
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]].astype(np.float32)
    return cv2.remap(image, columns + flow[0], rows + flow[1], cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)


def _curved(before: Any, after: Any, inside: Mask) -> Floats:
    """``before`` with a smooth curve of each channel that makes it most like ``after``, by medians of 16 levels."""
    result = before.copy()
    near = np.exp(-0.5 * np.square(np.arange(16)[:, None] - np.arange(16)))
    for channel in range(3):
        levels, steps = before[..., channel][inside], (after - before)[..., channel][inside]
        place = np.clip(levels / 16, 0, 15).astype(int)
        counts = np.bincount(place, minlength=16)
        weights = np.where(counts > 50, np.sqrt(counts), 0)
        medians = [float(np.median(steps[place == at])) if weights[at] else 0.0 for at in range(16)]
        curve = (near @ (weights * medians)) / (near @ weights + 1e-9)
        result[..., channel] += np.interp(before[..., channel], _KNOTS, np.clip(curve, -MAX_CURVE, MAX_CURVE))
    return np.asarray(result, np.float32)


def _tinted(before: Floats, after: Any, inside: Mask) -> Floats:
    """``before`` with the mean color that the wide surroundings of each place have in ``after``."""
    mean = _wide_mean(inside.shape, 8, _TINT_SIGMA * min(inside.shape))
    step = np.clip(after - before, -3 * MAX_TINT, 3 * MAX_TINT) * inside[..., None]
    tint = mean(step) / np.maximum(mean(inside.astype(np.float32)), 1e-3)[..., None]
    tint = np.clip(cv2.resize(tint, inside.shape[::-1]), -MAX_TINT, MAX_TINT)
    return np.asarray(before + tint, np.float32)


def _wide_mean(shape: tuple[int, ...], factor: int, sigma: float) -> Callable[[Any], Any]:
    """A Gaussian mean of ``sigma`` pixels, computed on an image that is smaller by ``factor``."""
    size = (max(1, shape[1] // factor), max(1, shape[0] // factor))

    def mean(values: Any) -> Any:
        small = cv2.resize(np.asarray(values, np.float32), size, interpolation=cv2.INTER_AREA)
        return cv2.GaussianBlur(small, (0, 0), max(0.5, sigma / factor))

    return mean


def _beyond(colors: Floats, around: Floats, reach: int) -> Floats:
    """How far colors are outside the range of those within ``reach`` pixels in the other image (CIE76)."""
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    over = np.maximum(np.maximum(colors - cv2.dilate(around, disc), cv2.erode(around, disc) - colors), 0)
    return np.asarray(np.sqrt(np.square(over).sum(axis=2)), np.float32)
