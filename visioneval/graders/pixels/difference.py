"""Visible differences between images: color difference, structural similarity, and changed pixels.

Images are ``(height, width, 3)`` arrays of 8-bit sRGB, or premultiplied RGBA if one of a pair has transparency
(``transparency.comparable``), which is compared on black and on white, pixel by pixel the worse of the two; maps are
``(height, width)``. Large images are processed in bands, so that the float copies stay small.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.graders.pixels.transparency import (
    Floats,
    Mask,
    Pixels,
    on_backgrounds,
    with_alpha,
)

Doubles = NDArray[np.float64]

TOOL_VERSIONS = {"opencv": cv2.__version__, "numpy": np.__version__}

FINE_SIGMA = 1.5
"""Pixels: smoothing before colors are compared. Removes codec noise and ringing, keeps letter strokes."""
FINE_CHROMA = 2.0
"""How much wider a* and b* are smoothed than L*: the eye and codecs resolve color that much more coarsely."""
FINE_REACH = 2
"""Pixels: a color that appears this close by in the other image is not a change."""
FINE_DELTA_E = 8.0
"""CIEDE2000 from which a pixel counts as changed; re-encoding by an editing model stays below almost everywhere."""
BROAD_SIGMA = 16.0
"""Pixels: the scale at which tints, brightness changes and added grain are detected."""
BROAD_DELTA_E = 3.0
"""CIEDE2000 from which an area counts as changed: over large areas the eye sees smaller differences."""
BROAD_GRAIN = 1.0
"""Added fine texture from which an area counts as changed: root mean square, in percent of white's luma."""

FLAT_DETAIL = 0.2
"""Fine texture below which an area has no detail to lose: root mean square, in percent of white's luma."""

SCORE_DIGITS = 4
"""Decimals of a mean SSIM or color difference in records, in reasons, and in comparisons with a limit."""

WINDOW_PX = 24
"""Side in pixels of the window in which a small change stands out. A 12 x 12 patch fills a quarter of it."""

NEUTRAL_CHROMA = 0.01
"""CIELAB chroma below which a color is grey. Its hue is a rounding error and depends on the processor."""

_BLOCK = 4
_PIXELS_AT_ONCE = 1 << 14
_BAND_PIXELS = 1 << 20
_LINEAR = np.array([v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in np.arange(256) / 255])
_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
# White is the matrix applied to (1, 1, 1). A D65 from a table, rounded differently, would give greys a chroma of up
# to 0.005, and CIEDE2000 weights a hue difference by the root of the chromas: 0.1 against a strong blue.
_TO_XYZ = (_XYZ / _XYZ.sum(axis=1, keepdims=True)).astype(np.float32)
_COS, _SIN = ({angle: turn(math.radians(angle)) for angle in (6, 30, 63)} for turn in (math.cos, math.sin))
_TO_LAB = np.array([[0, 116, 0, -16], [500, -500, 0, 0], [0, 200, -200, 0]], np.float32)


def to_lab(output: Pixels) -> Floats:
    """sRGB (IEC 61966-2-1) as CIELAB (CIE 15, white D65, 2 degree observer): L* 0..100, a* and b* about -128..128."""
    return _lab_of_linear(cv2.LUT(np.ascontiguousarray(output), _LINEAR.astype(np.float32)))


def _lab_of_linear(linear: Any) -> Floats:
    ratio = cv2.transform(linear, _TO_XYZ)
    root = cv2.pow(ratio, 1 / 3)
    dark = ratio <= 0.008856
    root[dark] = 7.787 * ratio[dark] + 16 / 116
    lab: Floats = cv2.transform(root, _TO_LAB).astype(np.float32, copy=False)
    return lab


def ciede2000(first: Floats, second: Floats) -> Floats:
    """Color difference of CIELAB arrays ``(..., 3)``: CIEDE2000 with kL = kC = kH = 1 (Sharma et al. 2005).

    The result has the arrays' shape without the last axis; 0 is the same color, about 1 just noticeable, 100
    black against white. A chroma below ``NEUTRAL_CHROMA`` counts as 0, with the hue of the other color.
    """
    first_colors, second_colors = first.reshape(-1, 3), second.reshape(-1, 3)
    difference = np.empty(len(first_colors), np.float32)
    for start in range(0, len(first_colors), _PIXELS_AT_ONCE):
        part = slice(start, start + _PIXELS_AT_ONCE)
        difference[part] = _ciede2000(first_colors[part].T.astype(np.float64), second_colors[part].T.astype(np.float64))
    return difference.reshape(first.shape[:-1])


def _ciede2000(first: Doubles, second: Doubles) -> Doubles:
    """The same for ``(3, n)``. Hues are unit vectors: roots and products are the same on every processor.

    The rotation term for blue needs an angle. Its last digits depend on the processor and vanish in 32 bits.
    """
    (l1, a1, b1), (l2, a2, b2) = first, second
    stretch = 1.5 - 0.5 * _strength((_length(a1, b1) + _length(a2, b2)) / 2)
    c1, x1, y1 = _polar(a1 * stretch, b1)
    c2, x2, y2 = _polar(a2 * stretch, b2)
    cosine, sine, half_turn = _mean_hue(x1, y1, x2, y2)
    chroma, off_grey = (c1 + c2) / 2, np.square((l1 + l2) / 2 - 50)
    dl = (l2 - l1) / (1 + 0.015 * off_grey / np.sqrt(20 + off_grey))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * np.sqrt(c1 * c2) * half_turn / (1 + 0.015 * chroma * _hue_weight(cosine, sine))
    degrees = np.rad2deg(np.arctan2(sine, cosine)) % 360
    blue = np.deg2rad(60) * np.exp(-np.square((degrees - 275) / 25))
    rotation = -2 * _strength(chroma) * np.sin(blue)
    difference: Doubles = np.sqrt(np.maximum(dl * dl + dc * dc + dh * dh + rotation * dc * dh, 0))
    return difference


def _length(x: Doubles, y: Doubles) -> Doubles:
    length: Doubles = np.sqrt(x * x + y * y)
    return length


def _strength(chroma: Doubles) -> Doubles:
    """0 for greys, 1 for saturated colors."""
    cubed = chroma * chroma * chroma
    seventh = cubed * cubed * chroma
    strength: Doubles = np.sqrt(seventh / (seventh + 25.0**7))
    return strength


def _polar(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """Chroma, and the hue as a unit vector; all 0 for a grey."""
    chroma = _length(a, b)
    chroma[chroma < NEUTRAL_CHROMA] = 0
    inverse = np.divide(1, chroma, out=np.zeros_like(chroma), where=chroma > 0)
    return chroma, a * inverse, b * inverse


def _mean_hue(x1: Doubles, y1: Doubles, x2: Doubles, y2: Doubles) -> tuple[Doubles, Doubles, Doubles]:
    """The unit vector halfway between two hues on the shorter arc, and the sine of half the angle from first to second.

    The mean of two opposite hues is 90 degrees from the lower one, as in the paper.
    """
    upper = (y1 > 0) | ((y1 == 0) & (x1 > 0))
    x, y = x1 + x2, y1 + y2
    opposite = (x * x + y * y < 1e-18) & (x1 * x1 + y1 * y1 > 0)
    turned = (x1 * y2 - x2 * y1 >= 0) & ~opposite | upper & opposite
    x[opposite] = np.where(upper, -y1, y1)[opposite]
    y[opposite] = np.where(upper, x1, -x1)[opposite]
    inverse = 1 / np.maximum(_length(x, y), 1e-18)
    half_turn = _length(x2 - x1, y2 - y1) / 2
    return x * inverse, y * inverse, np.where(turned, half_turn, -half_turn)


def _hue_weight(cosine: Doubles, sine: Doubles) -> Doubles:
    """T of the paper, from the cosine and sine of the hue by the formulas for multiple angles."""
    cosine2, sine2 = 2 * cosine * cosine - 1, 2 * sine * cosine
    cosine3, sine3 = (4 * cosine * cosine - 3) * cosine, (3 - 4 * sine * sine) * sine
    cosine4, sine4 = 2 * cosine2 * cosine2 - 1, 2 * sine2 * cosine2
    weight: Doubles = (
        1
        - 0.17 * (cosine * _COS[30] + sine * _SIN[30])
        + 0.24 * cosine2
        + 0.32 * (cosine3 * _COS[6] - sine3 * _SIN[6])
        - 0.20 * (cosine4 * _COS[63] + sine4 * _SIN[63])
    )
    return weight


def mean_delta_e(first: Pixels, second: Pixels, region: Mask) -> float:
    """The mean CIEDE2000 (0 up, 1 is just noticeable) of the pixels of ``region``, which must not be empty."""
    total = 0.0
    for rows, _, _ in _bands(region.shape, halo=0):
        inside = region[rows]
        worst = reduce(
            np.maximum,
            (
                ciede2000(*(to_lab(output)[inside] for output in pair))
                for pair in on_backgrounds(first[rows], second[rows])
            ),
        )
        total += float(worst.sum(dtype=np.float64))
    return total / int(region.sum())


def luma(output: Pixels) -> Floats:
    """ITU-R BT.601 luma, 0..255, not rounded to whole levels."""
    # Integers up to 255,000 are exact in 32 bits, in any order of summation; only the division rounds.
    thousandths = cv2.transform(output.astype(np.float32), np.array([[299, 587, 114]], np.float32))
    grey: Floats = (thousandths / np.float32(1000)).astype(np.float32, copy=False)
    return grey


def ssim_map(first: Floats, second: Floats) -> Floats:
    """Structural similarity per pixel, -1..1, 1 is identical (Wang et al. 2004).

    The inputs have the range 0..255. Gaussian window of sigma 1.5 cut at 3.5 sigma (11 x 11), K1 = 0.01,
    K2 = 0.03, population covariance, mirrored borders.
    """

    def mean(values: Floats) -> Floats:
        return cv2.GaussianBlur(values, (11, 11), 1.5, borderType=cv2.BORDER_REFLECT)  # type: ignore[return-value]

    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    # Local variances do not depend on the level; without it the squares are small enough for 32 bits. Rounded, as
    # the last digit of the mean depends on the processor.
    level = np.float32(np.rint((first.mean(dtype=np.float64) + second.mean(dtype=np.float64)) / 2))
    x, y = first - level, second - level
    mx, my = mean(x), mean(y)
    xx, yy, xy = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    mx, my = mx + level, my + level
    similarity = ((2 * mx * my + c1) * (2 * xy + c2)) / ((mx * mx + my * my + c1) * (xx + yy + c2))
    return similarity.astype(np.float32)


def mean_ssim(first: Pixels, second: Pixels, region: Mask) -> float:
    """The mean of ``ssim_map`` of both images' luma over ``region``, which must not be empty."""
    total = 0.0
    for rows, core, target in _bands(region.shape, halo=8):
        pairs = on_backgrounds(first[rows], second[rows])
        band = reduce(np.minimum, (ssim_map(*map(luma, pair)) for pair in pairs))[core]
        total += float(band[region[target]].sum(dtype=np.float64))
    return total / int(region.sum())


def detail_ratio(base: Pixels, output: Pixels, region: Mask) -> float | None:
    """The fine detail of ``output`` in ``region`` relative to that of ``base``: 1 is as sharp, 0 has none.

    The ratio of the root mean squares of the detail finer than ``FINE_SIGMA`` in luma, on the background where it is
    least. ``None`` if ``base`` has less than ``FLAT_DETAIL`` on every background.
    """
    totals: dict[int, Doubles] = {}
    pixels = int(region.sum())
    for rows, core, target in _bands(region.shape, halo=8):
        inside = region[target]
        for number, pair in enumerate(on_backgrounds(base[rows], output[rows])):
            energies = [float(_grain(image)[core][inside].sum(dtype=np.float64)) for image in pair]
            totals[number] = totals.get(number, np.zeros(2)) + energies
    ratios = [(after / before) ** 0.5 for before, after in totals.values() if before > FLAT_DETAIL**2 * pixels]
    return min(ratios, default=None)


def exceeds(values: Any, limit: Any) -> Mask:
    """Where ``values`` are above ``limit`` by more than the rounding error of 32 bits."""
    above: Mask = values > limit + 1e-4
    return above


def changed_exactly(base: Pixels, output: Pixels, region: Mask) -> Mask:
    """The pixels of ``region`` with another RGB or alpha value. The color of fully transparent pixels does not count.

    An image may have an alpha channel, the other none; the channels are compared as they are.
    """
    if base.shape[2] != output.shape[2]:
        base, output = with_alpha(base), with_alpha(output)
    differs: Mask = (base != output).any(axis=-1) & region
    return differs if base.shape[2] == 3 else differs & ((base[..., 3] > 0) | (output[..., 3] > 0))


def changed_visibly(
    base: Pixels, output: Pixels, region: Mask, *, grainy: Pixels | None = None, coarseness: float = 1.0
) -> Mask:
    """The visibly changed pixels of ``region``; re-encoding noise does not count.

    Outside ``region`` both images are treated as equal, so that nothing leaks across its border. A pixel is changed

    - where its color, smoothed over ``FINE_SIGMA``, is ``FINE_DELTA_E`` (CIEDE2000) away from the range of
      colors within ``FINE_REACH`` pixels in the other image (in both directions, so that a removed thin line
      counts like an added one);
    - or where, between such pixels, the mean color over ``BROAD_SIGMA`` moved by ``BROAD_DELTA_E``, or fine
      texture of ``BROAD_GRAIN``, such as noise, was added compared with ``grainy`` (``base`` if ``None``).
      Lost texture does not count: every codec loses some, and the SSIM shows it.

    The result is the area in which the change is seen: it may contain pixels with the same value in both images.

    ``coarseness`` (1 or more) is the factor by which the output was enlarged: its codec noise grew as well, so the
    smoothing grows by the same factor.
    """
    changed = np.zeros(region.shape, np.bool_)
    if not region.any():
        return changed
    for shown in on_backgrounds(base, output, base if grainy is None else grainy):
        changed |= _changed_on_background(*shown, region=region, sigma=FINE_SIGMA * coarseness)
    return changed


def _changed_on_background(base: Pixels, output: Pixels, grainy: Pixels, *, region: Mask, sigma: float) -> Mask:
    """``changed_visibly`` for RGB."""
    changed = np.zeros(region.shape, np.bool_)
    halo = round(4 * sigma * FINE_CHROMA) + FINE_REACH + 4
    window = _surroundings(region, halo)
    base, output, grainy, region = base[window], output[window], grainy[window], region[window]
    changed_in_window = np.zeros(region.shape, np.bool_)
    blocks = []
    for rows, core, target in _bands(region.shape, halo=halo):
        within = region[rows]
        edited = np.where(within[..., None], output[rows], base[rows])
        fine = _fine(to_lab(base[rows]), to_lab(edited), sigma) & within
        changed_in_window[target] = fine[core]
        rest = (within & ~_grown(fine, 3)).astype(np.float32)
        layers = (base[rows], edited, _grain(grainy[rows]), _grain(edited), np.ones_like(rest))
        blocks.append(_blocks((np.dstack(layers) * rest[..., None])[core]))
    changed_in_window |= _broad(np.concatenate(blocks), region.shape) & region
    changed[window] = changed_in_window
    return changed


def worst_window(changed: Mask, region: Mask, side: int = WINDOW_PX) -> tuple[float, tuple[int, int, int, int]]:
    """The largest changed share of a square window, 0..1, and its ``(left, top, width, height)`` in pixels.

    The share is relative to the most pixels of ``region`` in any window: usually a whole window, fewer if
    ``region`` is a narrow frame.
    """
    height, width = min(side, changed.shape[0]), min(side, changed.shape[1])
    hits = _window_sums(changed, height, width)
    most = int(_window_sums(region, height, width).max())
    top, left = np.unravel_index(int(hits.argmax()), hits.shape)
    share = float(hits[top, left]) / most if most else 0.0
    return share, (int(left), int(top), width, height)


def _window_sums(mask: Mask, height: int, width: int) -> NDArray[np.int32]:
    """The number of pixels of ``mask`` in each window, by the window's top left corner."""
    sums = cv2.integral(mask.astype(np.uint8), sdepth=cv2.CV_32S)
    counts: NDArray[np.int32] = (
        sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    ).astype(np.int32)
    return counts


def _fine(before: Floats, after: Floats, sigma: float) -> Mask:
    """The pixels whose smoothed CIELAB color does not appear nearby in the other image, in both directions."""
    smooth_before, smooth_after = _as_seen(before, sigma), _as_seen(after, sigma)
    return _beyond(smooth_before, smooth_after) | _beyond(smooth_after, smooth_before)


def _as_seen(lab: Floats, sigma: float) -> Floats:
    """CIELAB without imperceptibly fine detail; color is smoothed more than lightness."""
    seen = cv2.GaussianBlur(lab, (0, 0), sigma * FINE_CHROMA).astype(np.float32, copy=False)
    seen[..., 0] = cv2.GaussianBlur(np.ascontiguousarray(lab[..., 0]), (0, 0), sigma)
    return seen


def _beyond(colors: Floats, around: Floats) -> Mask:
    """Where ``colors`` are outside the nearby range of ``around``."""
    square = np.ones((2 * FINE_REACH + 1, 2 * FINE_REACH + 1), np.uint8)
    nearest = cv2.min(cv2.max(colors, cv2.erode(around, square)), cv2.dilate(around, square))
    # CIEDE2000 is slow, and always less than twice CIE76 (1.5 times on greys), so few pixels need it.
    maybe = cv2.transform(cv2.pow(colors - nearest, 2), np.ones((1, 3), np.float32)) > (FINE_DELTA_E / 2) ** 2
    changed = np.zeros(maybe.shape, np.bool_)
    changed[maybe] = exceeds(ciede2000(colors[maybe], nearest[maybe].astype(np.float32)), FINE_DELTA_E)
    return changed


def _grain(output: Pixels) -> Floats:
    """The energy of detail finer than ``FINE_SIGMA``, in squared percent of white's luma."""
    grey = luma(output) / 2.55
    detail = grey - cv2.GaussianBlur(grey, (0, 0), FINE_SIGMA)
    energy: Floats = (detail * detail).astype(np.float32)
    return energy


def _broad(blocks: Floats, shape: tuple[int, ...]) -> Mask:
    """Where area means differ, at full size.

    ``blocks`` holds per block: sRGB before and after, the energy of the grain before and after, and the weight by
    which all of these are multiplied. Codecs preserve the mean of sRGB; the mean of CIELAB drifts with detail.
    """
    sums = [cv2.GaussianBlur(np.ascontiguousarray(blocks[..., k]), (0, 0), BROAD_SIGMA / _BLOCK) for k in range(9)]
    support = sums[8]
    mean = (np.dstack(sums[:8]) / np.maximum(support, 1e-3)[..., None]).astype(np.float32)
    linear = np.interp(mean[..., :6], np.arange(256), _LINEAR).astype(np.float32)
    tint = ciede2000(*(_lab_of_linear(np.ascontiguousarray(half)) for half in np.split(linear, 2, axis=2)))
    grain = np.sqrt(np.maximum(mean[..., 7], 0)) - np.sqrt(np.maximum(mean[..., 6], 0))
    changed = exceeds(tint, BROAD_DELTA_E) | exceeds(grain, BROAD_GRAIN)
    moved = (changed & exceeds(support, 0.05)).astype(np.uint8)
    size = (moved.shape[1] * _BLOCK, moved.shape[0] * _BLOCK)
    full = cv2.resize(moved, size, interpolation=cv2.INTER_NEAREST)
    return full[: shape[0], : shape[1]].astype(np.bool_)


def _blocks(values: Floats) -> Floats:
    """Means of square blocks; the last row and column of blocks are padded with zeros."""
    height, width = (-size % _BLOCK for size in values.shape[:2])
    padded = np.pad(values, ((0, height), (0, width), (0, 0)))
    rows, columns = padded.shape[0] // _BLOCK, padded.shape[1] // _BLOCK
    means: Floats = padded.reshape(rows, _BLOCK, columns, _BLOCK, -1).mean(axis=(1, 3), dtype=np.float32)
    return means


def _surroundings(region: Mask, margin: int) -> tuple[slice, slice]:
    """The smallest rectangle around ``region``, with a margin."""
    sides = []
    for axis in (1, 0):
        indices = np.flatnonzero(region.any(axis=axis))
        sides.append(slice(max(0, int(indices[0]) - margin), int(indices[-1]) + 1 + margin))
    return sides[0], sides[1]


def _grown(mask: Mask, pixels: int) -> Mask:
    square = np.ones((2 * pixels + 1, 2 * pixels + 1), np.uint8)
    return cv2.dilate(mask.astype(np.uint8), square).astype(np.bool_)


def _bands(shape: tuple[Any, ...], *, halo: int) -> Iterator[tuple[slice, slice, slice]]:
    """The rows to read (with ``halo`` rows around), the part of them to keep, and its rows in the image."""
    height, width = shape[0], shape[1]
    step = max(_BLOCK, _BAND_PIXELS // width // _BLOCK * _BLOCK)
    for top in range(0, height, step):
        bottom = min(height, top + step)
        first, last = max(0, top - halo), min(height, bottom + halo)
        yield slice(first, last), slice(top - first, bottom - first), slice(top, bottom)
