"""Whether an output that was redrawn as a whole still shows the same, as a model that repaints every pixel leaves it.

A redraw shifts, tints and sharpens everything a little. A smooth displacement and a smooth change of tone, both
bounded, are undone; then each place is compared with what is near it in the other image, at a coarse scale. What is
left is compared with what is left in most of the image: a redraw differs by similar amounts everywhere, a change in
its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from visioneval.graders.pixels.color import lab_of_linear, linear_light
from visioneval.graders.pixels.difference import luma
from visioneval.graders.pixels.transparency import Floats, Mask, Pixels, on_backgrounds

MAX_DISPLACEMENT = 0.006
"""The largest displacement that is undone, as a share of the shorter side."""
MAX_CURVE, MAX_TINT = 12.0, 8.0
"""Of 255: the largest change of tone that is undone by a curve of each channel, and by a tint of each surrounding."""

_LONGEST = 512
_WINDOW = 0.025
"""The side of a window as a share of the shorter side, as all of the following."""
_SCALE, _REACH, _BORDER = 0.003, 0.004, 0.01
_FLOW_SIGMA, _TINT_SIGMA = 0.06, 0.08
_PASSES = (4.0, 2.0, 1.0)
_KNOTS = np.arange(8, 256, 16)
_AROUND = 2
"""How many windows around the worst one are looked at for the cause."""
_EVEN = 0.7
"""The share of the difference there that a mean color must explain to be the cause."""
_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Redraw:
    """``content`` is the color difference (CIE76) of the worst window beyond twice that of most windows, 0 and up;
    ``overall`` that which nine of ten windows do not exceed.

    ``window`` is (left, top, width, height) of the worst window, and ``cause`` what differs around it: ``color`` or
    ``content``. ``tone`` is the mean change of tone in levels of 255, and ``displacement`` the largest, as a share of
    the shorter side, which were undone.
    """

    content: float
    overall: float
    tone: float
    displacement: float
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
    first, second = (lab_of_linear(linear_light(np.clip(image, 0, 255))) for image in (toned, after))
    left_over = np.maximum(_beyond(first, second), _beyond(second, first)) * inside
    window = max(3, round(_WINDOW * side))
    means = cv2.blur(left_over, (window, window))
    overall = float(np.percentile(means[inside], 90))
    row, column = (int(at) for at in np.unravel_index(int(np.argmax(np.where(inside, means, -1))), means.shape))
    part = tuple(slice(max(0, at - _AROUND * window), at + _AROUND * window + 1) for at in (row, column))
    step = (second - first)[part][inside[part]]
    even = np.linalg.norm(step.mean(axis=0)) >= _EVEN * np.linalg.norm(step, axis=1).mean()
    corner = [max(0, round((at - window // 2) / scale)) for at in (column, row)]
    length = round(window / scale)
    return Redraw(
        content=round(max(0.0, float(means[row, column]) - 2 * overall), _DIGITS),
        overall=round(overall, _DIGITS),
        tone=round(float(np.abs(toned - before)[inside].mean()), _DIGITS),
        displacement=round(float(np.hypot(*flow)[inside].max()) / side, 4),
        cause="color" if even else "content",
        window=(corner[0], corner[1], length, length),
    )


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


def _beyond(colors: Floats, around: Floats) -> Floats:
    """How far colors are outside the range of those near the same place in the other image (CIE76)."""
    reach = max(1, round(_REACH * min(colors.shape[:2])))
    disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    over = np.maximum(np.maximum(colors - cv2.dilate(around, disc), cv2.erode(around, disc) - colors), 0)
    return np.asarray(np.sqrt(np.square(over).sum(axis=2)), np.float32)
