"""What the eye would call different: colour difference, structural similarity, and changed pixels.

Pictures are ``(height, width, 3)`` arrays of 8-bit sRGB; maps are ``(height, width)``. Large pictures are worked
through in bands, so that the float copies stay small however large the picture is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visioneval.images import encode_png

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

TOOL_VERSIONS = {"opencv": cv2.__version__, "numpy": np.__version__}

FINE_SIGMA = 1.5
"""Pixels: smoothing before colours are compared. Removes codec noise and ringing, keeps a letter's stroke."""
FINE_CHROMA = 2.0
"""How much wider a* and b* are smoothed than L*: the eye sees colour that much coarser, and so do codecs keep it."""
FINE_REACH = 2
"""Pixels: a colour that stands this near in the other picture is not a change."""
FINE_DELTA_E = 8.0
"""CIEDE2000 from which a place counts as changed; what an editing model re-encodes stays below almost everywhere."""
BROAD_SIGMA = 16.0
"""Pixels: the scale at which tints, changes of brightness and added grain are looked for."""
BROAD_DELTA_E = 3.0
"""CIEDE2000 from which an area counts as changed: over large areas the eye sees smaller differences."""
BROAD_GRAIN = 1.0
"""Added fine texture from which an area counts as changed: root mean square, in percent of white's luma."""

WINDOW_PX = 24
"""Pixels a side: the window in which a small change stands out. A 12 x 12 patch fills a quarter of it."""

_BLOCK = 4
_BAND_PIXELS = 1 << 20
_LINEAR = np.array([v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in np.arange(256) / 255])
_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
_TO_XYZ = (_XYZ / np.array([[0.95047], [1.0], [1.08883]])).astype(np.float32)
_TO_LAB = np.array([[0, 116, 0, -16], [500, -500, 0, 0], [0, 200, -200, 0]], np.float32)


def to_lab(picture: Pixels) -> Floats:
    """sRGB (IEC 61966-2-1) as CIELAB (CIE 15, white D65, 2 degree observer): L* 0..100, a* and b* about -128..128."""
    return _lab_of_linear(cv2.LUT(np.ascontiguousarray(picture), _LINEAR.astype(np.float32)))


def _lab_of_linear(linear: Any) -> Floats:
    ratio = cv2.transform(linear, _TO_XYZ)
    root = cv2.pow(ratio, 1 / 3)
    dark = ratio <= 0.008856
    root[dark] = 7.787 * ratio[dark] + 16 / 116
    lab: Floats = cv2.transform(root, _TO_LAB).astype(np.float32, copy=False)
    return lab


def ciede2000(first: Floats, second: Floats) -> Floats:
    """Colour difference of CIELAB arrays ``(..., 3)``: CIEDE2000 with kL = kC = kH = 1 (Sharma et al. 2005).

    The result has the arrays' shape without the last axis; 0 is the same colour, about 1 just noticeable, 100
    black against white.
    """
    l1, a1, b1 = np.moveaxis(first, -1, 0)
    l2, a2, b2 = np.moveaxis(second, -1, 0)
    mean_chroma7 = ((np.hypot(a1, b1) + np.hypot(a2, b2)) / 2) ** 7
    stretch = 1.5 - 0.5 * np.sqrt(mean_chroma7 / (mean_chroma7 + 25.0**7))
    c1, c2 = np.hypot(a1 * stretch, b1), np.hypot(a2 * stretch, b2)
    h1, h2 = np.arctan2(b1, a1 * stretch), np.arctan2(b2, a2 * stretch)
    turn = np.where(c1 * c2 == 0, 0, (h2 - h1 + np.pi) % (2 * np.pi) - np.pi)
    hue = np.where(c1 * c2 == 0, h1 + h2, h1 + turn / 2)
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    weight = (
        1
        - 0.17 * np.cos(hue - np.pi / 6)
        + 0.24 * np.cos(2 * hue)
        + 0.32 * np.cos(3 * hue + np.pi / 30)
        - 0.20 * np.cos(4 * hue - np.deg2rad(63))
    )
    off_grey = (lightness - 50) ** 2
    dl = (l2 - l1) / (1 + 0.015 * off_grey / np.sqrt(20 + off_grey))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * np.sqrt(c1 * c2) * np.sin(turn / 2) / (1 + 0.015 * chroma * weight)
    blue = np.deg2rad(60) * np.exp(-((((np.rad2deg(hue) % 360) - 275) / 25) ** 2))
    rotation = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(blue)
    difference: Floats = np.sqrt(np.maximum(dl**2 + dc**2 + dh**2 + rotation * dc * dh, 0)).astype(np.float32)
    return difference


def mean_delta_e(first: Pixels, second: Pixels, region: Mask) -> float:
    """The mean CIEDE2000 (0 up, 1 is just noticeable) of the pixels of ``region``, which must hold some."""
    total = 0.0
    for rows, _, _ in _bands(region.shape, halo=0):
        inside = region[rows]
        pair = (to_lab(picture[rows])[inside] for picture in (first, second))
        total += float(ciede2000(*pair).sum(dtype=np.float64))
    return total / int(region.sum())


def luma(picture: Pixels) -> Floats:
    """ITU-R BT.601 luma, 0..255, not rounded."""
    grey: Floats = cv2.transform(np.ascontiguousarray(picture), np.array([[0.299, 0.587, 0.114]], np.float32)).astype(
        np.float32
    )
    return grey


def ssim_map(first: Floats, second: Floats) -> Floats:
    """Structural similarity per pixel, -1..1, 1 is the same (Wang et al. 2004).

    The inputs have the range 0..255. Gaussian window of sigma 1.5 cut at 3.5 sigma (11 x 11), K1 = 0.01,
    K2 = 0.03, population covariance, mirrored borders.
    """

    def mean(values: Floats) -> Floats:
        return cv2.GaussianBlur(values, (11, 11), 1.5, borderType=cv2.BORDER_REFLECT)  # type: ignore[return-value]

    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    # Local variances do not know the level; without it the squares are small enough for 32 bits.
    level = np.float32((first.mean(dtype=np.float64) + second.mean(dtype=np.float64)) / 2)
    x, y = first - level, second - level
    mx, my = mean(x), mean(y)
    xx, yy, xy = mean(x * x) - mx * mx, mean(y * y) - my * my, mean(x * y) - mx * my
    mx, my = mx + level, my + level
    similarity = ((2 * mx * my + c1) * (2 * xy + c2)) / ((mx * mx + my * my + c1) * (xx + yy + c2))
    return similarity.astype(np.float32)


def mean_ssim(first: Pixels, second: Pixels, region: Mask) -> float:
    """The mean of ``ssim_map`` of both pictures' luma over ``region``, which must hold pixels."""
    total = 0.0
    for rows, core, target in _bands(region.shape, halo=8):
        band = ssim_map(luma(first[rows]), luma(second[rows]))[core]
        total += float(band[region[target]].sum(dtype=np.float64))
    return total / int(region.sum())


def changed_exactly(base: Pixels, output: Pixels, region: Mask) -> Mask:
    """The pixels of ``region`` whose RGB differs at all."""
    differs: Mask = (base != output).any(axis=-1) & region
    return differs


def changed_visibly(
    base: Pixels, output: Pixels, region: Mask, *, grainy: Pixels | None = None, coarseness: float = 1.0
) -> Mask:
    """The pixels of ``region`` that a person would call changed; re-encoding noise is not counted.

    Outside ``region`` both pictures are taken as equal, so nothing leaks in over its border. A pixel is changed

    - where its colour, smoothed over ``FINE_SIGMA``, is ``FINE_DELTA_E`` (CIEDE2000) away from every colour in
      the range that the other picture shows within ``FINE_REACH`` pixels (either way, so that a thin line that
      is gone counts like one that is new);
    - or where, between such places, the mean colour over ``BROAD_SIGMA`` moved by ``BROAD_DELTA_E``, or fine
      texture of ``BROAD_GRAIN``, such as noise, was added to what ``grainy`` has there (``base`` where ``None``).
      Texture that is lost is not counted: every codec loses some, and it shows in the SSIM.

    ``coarseness`` (1 or more) is how many pixels a side one pixel of the output covered before it was enlarged:
    the noise of its codec was enlarged with it, and is smoothed over that much more.
    """
    changed = np.zeros(region.shape, np.bool_)
    if not region.any():
        return changed
    sigma = FINE_SIGMA * coarseness
    halo = round(4 * sigma * FINE_CHROMA) + FINE_REACH + 4
    window = _surroundings(region, halo)
    base, output, region = base[window], output[window], region[window]
    grainy = base if grainy is None else grainy[window]
    found = np.zeros(region.shape, np.bool_)
    blocks = []
    for rows, core, target in _bands(region.shape, halo=halo):
        within = region[rows]
        edited = np.where(within[..., None], output[rows], base[rows])
        fine = _fine(to_lab(base[rows]), to_lab(edited), sigma) & within
        found[target] = fine[core]
        rest = (within & ~_grown(fine, 3)).astype(np.float32)
        layers = (base[rows], edited, _grain(grainy[rows]), _grain(edited), np.ones_like(rest))
        blocks.append(_blocks((np.dstack(layers) * rest[..., None])[core]))
    found |= _broad(np.concatenate(blocks), region.shape) & region
    changed[window] = found
    return changed


def worst_window(changed: Mask, region: Mask, side: int = WINDOW_PX) -> tuple[float, tuple[int, int, int, int]]:
    """The largest changed share of a square window, 0..1, and its ``(left, top, width, height)`` in pixels.

    The share is of the most pixels of ``region`` that any window holds: all of a window's in the usual case,
    fewer where ``region`` is a narrow frame.
    """
    height, width = min(side, changed.shape[0]), min(side, changed.shape[1])
    hits = _window_sums(changed, height, width)
    most = int(_window_sums(region, height, width).max())
    top, left = np.unravel_index(int(hits.argmax()), hits.shape)
    share = float(hits[top, left]) / most if most else 0.0
    return share, (int(left), int(top), width, height)


def _window_sums(mask: Mask, height: int, width: int) -> NDArray[np.int32]:
    """How many pixels of ``mask`` each window holds, by the window's top left corner."""
    sums = cv2.integral(mask.astype(np.uint8), sdepth=cv2.CV_32S)
    found: NDArray[np.int32] = (
        sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    ).astype(np.int32)
    return found


def _fine(before: Floats, after: Floats, sigma: float) -> Mask:
    """Places whose smoothed colour the other picture does not show nearby, either way; from CIELAB."""
    one, other = _as_seen(before, sigma), _as_seen(after, sigma)
    return _beyond(one, other) | _beyond(other, one)


def _as_seen(lab: Floats, sigma: float) -> Floats:
    """CIELAB without the detail that is too fine to tell, colour more so than lightness."""
    seen = cv2.GaussianBlur(lab, (0, 0), sigma * FINE_CHROMA).astype(np.float32, copy=False)
    seen[..., 0] = cv2.GaussianBlur(np.ascontiguousarray(lab[..., 0]), (0, 0), sigma)
    return seen


def _beyond(colours: Floats, around: Floats) -> Mask:
    """Where ``colours`` lie outside the range that ``around`` shows nearby."""
    square = np.ones((2 * FINE_REACH + 1, 2 * FINE_REACH + 1), np.uint8)
    nearest = cv2.min(cv2.max(colours, cv2.erode(around, square)), cv2.dilate(around, square))
    # CIEDE2000 is slow, and never twice as large as CIE76 (on greys 1.5 times), so few pixels need it.
    maybe = cv2.transform(cv2.pow(colours - nearest, 2), np.ones((1, 3), np.float32)) > (FINE_DELTA_E / 2) ** 2
    changed = np.zeros(maybe.shape, np.bool_)
    changed[maybe] = ciede2000(colours[maybe], nearest[maybe].astype(np.float32)) > FINE_DELTA_E
    return changed


def _grain(picture: Pixels) -> Floats:
    """The energy of what is finer than ``FINE_SIGMA``, in squared percent of white's luma."""
    grey = luma(picture) / 2.55
    detail = grey - cv2.GaussianBlur(grey, (0, 0), FINE_SIGMA)
    energy: Floats = (detail * detail).astype(np.float32)
    return energy


def _broad(blocks: Floats, shape: tuple[int, ...]) -> Mask:
    """Where means over an area differ, at full size.

    ``blocks`` holds per block: sRGB before and after, the energy of the grain before and after, and the weight by
    which all of these are multiplied. sRGB is what codecs keep the mean of; the mean of CIELAB drifts with detail.
    """
    sums = [cv2.GaussianBlur(np.ascontiguousarray(blocks[..., k]), (0, 0), BROAD_SIGMA / _BLOCK) for k in range(9)]
    support = sums[8]
    mean = (np.dstack(sums[:8]) / np.maximum(support, 1e-3)[..., None]).astype(np.float32)
    linear = np.interp(mean[..., :6], np.arange(256), _LINEAR).astype(np.float32)
    tint = ciede2000(*(_lab_of_linear(np.ascontiguousarray(half)) for half in np.split(linear, 2, axis=2)))
    grain = np.sqrt(np.maximum(mean[..., 7], 0)) - np.sqrt(np.maximum(mean[..., 6], 0)) > BROAD_GRAIN
    moved = (((tint > BROAD_DELTA_E) | grain) & (support > 0.05)).astype(np.uint8)
    size = (moved.shape[1] * _BLOCK, moved.shape[0] * _BLOCK)
    full = cv2.resize(moved, size, interpolation=cv2.INTER_NEAREST)
    return full[: shape[0], : shape[1]].astype(np.bool_)


def _blocks(values: Floats) -> Floats:
    """Means of square blocks; the last row and column of blocks are filled up with zeros."""
    height, width = (-size % _BLOCK for size in values.shape[:2])
    padded = np.pad(values, ((0, height), (0, width), (0, 0)))
    rows, columns = padded.shape[0] // _BLOCK, padded.shape[1] // _BLOCK
    means: Floats = padded.reshape(rows, _BLOCK, columns, _BLOCK, -1).mean(axis=(1, 3), dtype=np.float32)
    return means


def _surroundings(region: Mask, margin: int) -> tuple[slice, slice]:
    """The smallest rectangle around ``region``, with a margin."""
    sides = []
    for axis in (1, 0):
        places = np.flatnonzero(region.any(axis=axis))
        sides.append(slice(max(0, int(places[0]) - margin), int(places[-1]) + 1 + margin))
    return sides[0], sides[1]


def _grown(mask: Mask, pixels: int) -> Mask:
    square = np.ones((2 * pixels + 1, 2 * pixels + 1), np.uint8)
    return cv2.dilate(mask.astype(np.uint8), square).astype(np.bool_)


def _bands(shape: tuple[Any, ...], *, halo: int) -> Iterator[tuple[slice, slice, slice]]:
    """Rows to read (with ``halo`` rows around), the part of them to keep, and the rows where that belongs."""
    height, width = shape[0], shape[1]
    step = max(_BLOCK, _BAND_PIXELS // width // _BLOCK * _BLOCK)
    for top in range(0, height, step):
        bottom = min(height, top + step)
        first, last = max(0, top - halo), min(height, bottom + halo)
        yield slice(first, last), slice(top - first, bottom - first), slice(top, bottom)


GREYS = 64
_OUTSIDE, _INSIDE, _OUTLINE, _BOX = range(GREYS, GREYS + 4)
_COLOURS = ((230, 30, 40), (30, 120, 230), (255, 255, 255), (255, 215, 0))
_MAP_SIDE = 2048


def difference_map(
    picture: Pixels,
    changed_outside: Mask,
    changed_inside: Mask | None = None,
    inside: Mask | None = None,
    window: tuple[int, int, int, int] | None = None,
) -> bytes:
    """A PNG for people: the picture in dim greys, what changed outside in red and inside in blue.

    The edge of ``inside`` is white, ``window`` (left, top, width, height) is boxed in yellow. Pictures over
    2048 pixels a side are drawn smaller.
    """
    canvas = (luma(picture) * (0.6 * (GREYS - 1) / 255)).astype(np.uint8)
    canvas[changed_outside] = _OUTSIDE
    if changed_inside is not None:
        canvas[changed_inside] = _INSIDE
    scale = min(1.0, _MAP_SIDE / max(canvas.shape))
    size = (max(1, round(canvas.shape[1] * scale)), max(1, round(canvas.shape[0] * scale)))
    canvas = cv2.resize(canvas, size, interpolation=cv2.INTER_NEAREST).astype(np.uint8)
    if inside is not None:
        shown = cv2.resize(inside.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
        outlines, _ = cv2.findContours(shown, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(canvas, outlines, -1, _OUTLINE, 1)
    if window is not None:
        left, top, width, height = (round(side * scale) for side in window)
        cv2.rectangle(canvas, (left - 3, top - 3), (left + width + 2, top + height + 2), _BOX, 2)
    image = Image.fromarray(canvas)
    greys = [level * 255 // (GREYS - 1) for level in range(GREYS) for _ in range(3)]
    image.putpalette([*greys, *itertools.chain(*_COLOURS)])
    return encode_png(image)
