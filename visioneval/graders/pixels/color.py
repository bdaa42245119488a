"""Pixels of files, their transparency, CIELAB and the color difference CIEDE2000, the same on every processor.

An image with transparency looks different on every background. Each channel of what it shows is a linear function of
that channel of the background, so two such images differ most on white or on black, and if they are the same on both,
they are the same on any. Every comparison therefore looks at both backgrounds. Opaque images are compared once.

Sums, products, quotients and roots are rounded alike everywhere. Sines and exponential functions are not, so they are
only used for a table.

OpenCV has several versions of most functions (AVX2, AVX-512, Intel IPP) and selects one at run time. They round
differently: a resized image can differ by whole levels, and comparisons with thresholds can flip. The portable code
is fast enough for graders, and is what they run (``media.opencv``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

ALPHA_STEP = 26
"""Of 255: alpha that differs by less is not reported as a change of transparency."""
_BOARD_PX = 16
_BOARD_LEVELS = (96, 144)


def comparable(first: Pixels, second: Pixels) -> tuple[Pixels, Pixels]:
    """Both images in one form: RGB if both are, else premultiplied RGBA, in which resizing mixes no hidden colors."""
    if first.shape[2] == second.shape[2] == 3:
        return first, second
    return premultiplied(first), premultiplied(second)


def premultiplied(image: Pixels) -> Pixels:
    """RGB or straight RGBA as RGBA whose colors are multiplied by alpha: the image on black, and its alpha."""
    image = with_alpha(image)
    alpha = np.ascontiguousarray(image[..., 3])
    colors = cv2.multiply(np.ascontiguousarray(image[..., :3]), cv2.merge([alpha] * 3), scale=1 / 255)
    return np.asarray(cv2.merge([*cv2.split(colors), alpha]), np.uint8)


def with_alpha(image: Pixels) -> Pixels:
    """The same as RGBA; RGB becomes opaque."""
    if image.shape[2] == 4:
        return image
    return np.asarray(np.dstack([image, np.full(image.shape[:2], 255, np.uint8)]), np.uint8)


def on_backgrounds(*images: Pixels) -> Iterator[tuple[Pixels, ...]]:
    """Premultiplied RGBA images as RGB on black, then on white; RGB images once, as they are."""
    yield tuple(np.ascontiguousarray(image[..., :3]) for image in images) if images[0].shape[2] == 4 else images
    if images[0].shape[2] == 4:
        yield tuple(
            np.asarray(cv2.add(np.ascontiguousarray(image[..., :3]), cv2.merge([255 - image[..., 3]] * 3)), np.uint8)
            for image in images
        )


def on_checkerboard(image: Pixels) -> Pixels:
    """Premultiplied RGBA as RGB on a checkerboard of two greys, on which white and black are visible; RGB as it is."""
    if image.shape[2] == 3:
        return image
    rows, columns = (np.arange(side) // _BOARD_PX for side in image.shape[:2])
    board = np.asarray(_BOARD_LEVELS, np.uint8)[(rows[:, None] + columns[None, :]) % 2]
    rest = cv2.merge([np.asarray(cv2.multiply(board, 255 - image[..., 3], scale=1 / 255), np.uint8)] * 3)
    return np.asarray(cv2.add(np.ascontiguousarray(image[..., :3]), rest), np.uint8)


def visible_pixels(first: Pixels, second: Pixels) -> Mask:
    """The pixels that are not fully transparent in both images of ``comparable``."""
    if first.shape[2] == 3:
        return np.ones(first.shape[:2], np.bool_)
    visible: Mask = (first[..., 3] > 0) | (second[..., 3] > 0)
    return visible


def alpha_changes(base: Pixels, output: Pixels, region: Mask) -> dict[str, float]:
    """The shares of ``region``, 0..1, that became more opaque and more transparent; empty for opaque images."""
    pixels = int(region.sum())
    if base.shape[2] == 3 or not pixels:
        return {}
    step = (output[..., 3].astype(np.int16) - base[..., 3])[region]
    counts = {"more_opaque": step >= ALPHA_STEP, "more_transparent": step <= -ALPHA_STEP}
    return {name: int(mask.sum()) / pixels for name, mask in counts.items()}


def alpha_text(changes: Mapping[str, float]) -> str:
    """The result of ``alpha_changes`` in words; empty if no pixel changed in transparency."""
    return " and ".join(
        f"{percent(share)} of the pixels became {name.replace('_', ' ')}" for name, share in changes.items() if share
    )


def percent(share: float) -> str:
    """A share in per cent with two significant digits, and never rounded to 0 or 100."""
    return f"{share * 100:.2g}%" if share < 0.995 else f"{share * 100:.4g}%"


Values = NDArray[np.floating[Any]]
"""Of 32 or 64 bits: what comes out is as wide as what goes in."""

NEUTRAL_CHROMA = 0.01
"""CIELAB chroma below which a color is grey. Its hue is a rounding error and depends on the processor."""

LINEAR = np.array([v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in np.arange(256) / 255])
"""Linear light, 0..1, of the 8-bit levels of sRGB."""

_PIXELS_AT_ONCE = 1 << 14
"""So many that all intermediate results stay in the processor's cache."""
_XYZ = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])
# White is the matrix applied to (1, 1, 1). A D65 from a table, rounded differently, would give greys a chroma of up
# to 0.005, and CIEDE2000 weights a hue difference by the root of the chromas: 0.1 against a strong blue.
_TO_XYZ = (_XYZ / _XYZ.sum(axis=1, keepdims=True)).astype(np.float32)
_COS, _SIN = ({angle: turn(math.radians(angle)) for angle in (6, 30, 63)} for turn in (math.cos, math.sin))
_TO_LAB = np.array([[0, 116, 0, -16], [500, -500, 0, 0], [0, 200, -200, 0]], np.float32)


def to_lab(output: Pixels) -> Floats:
    """sRGB (IEC 61966-2-1) as CIELAB (CIE 15, white D65, 2 degree observer): L* 0..100, a* and b* about -128..128.

    From ``(height, width, 3)`` to the same shape.
    """
    lab = np.empty(output.shape, np.float32)
    rows_at_once = max(1, _PIXELS_AT_ONCE // output.shape[1])
    for top in range(0, output.shape[0], rows_at_once):
        rows = slice(top, top + rows_at_once)
        lab[rows] = lab_of_linear(cv2.LUT(np.ascontiguousarray(output[rows]), LINEAR.astype(np.float32)))
    return lab


def linear_light(levels: Floats) -> Floats:
    """Linear light, 0..1, of levels of sRGB between 0 and 255."""
    table = LINEAR.astype(np.float32)
    index = np.minimum(levels.astype(np.uint8), 254)
    low: Floats = table[index]
    light: Floats = low + (table[1:][index] - low) * (levels - index)
    return light


def lab_of_linear(linear: Any) -> Floats:
    """CIELAB of linear light, 0..1, ``(height, width, 3)`` in 32 bits."""
    ratio = cv2.transform(linear, _TO_XYZ)
    root = cv2.pow(ratio, 1 / 3)
    dark = ratio <= 0.008856
    if dark.any():
        np.copyto(root, 7.787 * ratio + 16 / 116, where=dark)
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


def ciede2000_of_bytes(first: Pixels, second: Pixels) -> Floats:
    """The same of sRGB pixels ``(height, width, 3)``, in 32 bits: three times as fast, and good for means.

    The result has two axes. A single value is up to 0.001 off.
    """
    difference = np.zeros(first.shape[:2], np.float32)
    rows_at_once = max(1, _PIXELS_AT_ONCE // first.shape[1])
    for top in range(0, first.shape[0], rows_at_once):
        rows = slice(top, top + rows_at_once)
        columns = np.flatnonzero((first[rows] != second[rows]).any(axis=(0, 2)))
        if columns.size:
            part = rows, slice(columns[0], columns[-1] + 1)
            channels = (np.asarray(cv2.split(to_lab(image[part])), np.float32) for image in (first, second))
            difference[part] = _ciede2000(*channels)
    return difference


def _ciede2000(first: Values, second: Values) -> Values:
    """The same for ``(3, ...)``, in the type of the arrays. Hues are unit vectors, which need no angles."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    stretch = 1.5 - 0.5 * _strength((_length(a1, b1) + _length(a2, b2)) / 2)
    c1, x1, y1 = _polar(a1 * stretch, b1)
    c2, x2, y2 = _polar(a2 * stretch, b2)
    cosine, sine, half_turn = _mean_hue(x1, y1, x2, y2)
    chroma, off_grey = (c1 + c2) / 2, np.square((l1 + l2) / 2 - 50)
    dl = (l2 - l1) / (1 + 0.015 * off_grey / np.sqrt(20 + off_grey))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * np.sqrt(c1 * c2) * half_turn / (1 + 0.015 * chroma * _hue_weight(cosine, sine))
    rotation = -2 * _strength(chroma) * _blue_turn(cosine, sine)
    difference: Values = np.sqrt(np.maximum(dl * dl + dc * dc + dh * dh + rotation * dc * dh, 0))
    return difference


def _length(x: Values, y: Values) -> Values:
    length: Values = np.sqrt(x * x + y * y)
    return length


def _strength(chroma: Values) -> Values:
    """0 for greys, 1 for saturated colors."""
    cubed = chroma * chroma * chroma
    seventh = cubed * cubed * chroma
    strength: Values = np.sqrt(seventh / (seventh + 25.0**7))
    return strength


def _polar(a: Values, b: Values) -> tuple[Values, Values, Values]:
    """Chroma, and the hue as a unit vector; all 0 for a grey."""
    chroma = _length(a, b)
    colored = chroma >= NEUTRAL_CHROMA
    inverse = colored / np.maximum(chroma, NEUTRAL_CHROMA)
    hued: Values = chroma * colored
    return hued, a * inverse, b * inverse


def _mean_hue(x1: Values, y1: Values, x2: Values, y2: Values) -> tuple[Values, Values, Values]:
    """The unit vector halfway between two hues on the shorter arc, and the sine of half the angle from first to second.

    The mean of two opposite hues is 90 degrees from the lower one, as in the paper.
    """
    x, y = x1 + x2, y1 + y2
    turned = x1 * y2 - x2 * y1 >= 0
    opposite = (x * x + y * y < np.square(8 * np.finfo(x.dtype).eps)) & (x1 * x1 + y1 * y1 > 0)
    if opposite.any():
        upper = (y1 > 0) | ((np.abs(y1) <= 0) & (x1 > 0))
        turned = turned & ~opposite | upper & opposite
        x = np.where(opposite, np.where(upper, -y1, y1), x)
        y = np.where(opposite, np.where(upper, x1, -x1), y)
    inverse = 1 / np.maximum(_length(x, y), 1e-18)
    half_turn = _length(x2 - x1, y2 - y1) / 2
    return x * inverse, y * inverse, np.where(turned, half_turn, -half_turn)


def _hue_weight(cosine: Values, sine: Values) -> Values:
    """T of the paper, from the cosine and sine of the hue by the formulas for multiple angles."""
    cosine2, sine2 = 2 * cosine * cosine - 1, 2 * sine * cosine
    cosine3, sine3 = (4 * cosine * cosine - 3) * cosine, (3 - 4 * sine * sine) * sine
    cosine4, sine4 = 2 * cosine2 * cosine2 - 1, 2 * sine2 * cosine2
    weight: Values = (
        1
        - 0.17 * (cosine * _COS[30] + sine * _SIN[30])
        + 0.24 * cosine2
        + 0.32 * (cosine3 * _COS[6] - sine3 * _SIN[6])
        - 0.20 * (cosine4 * _COS[63] + sine4 * _SIN[63])
    )
    return weight


_TURNS = 1 << 14


def _turn_table() -> NDArray[np.float64]:
    """The sine of twice the paper's rotation angle by the hue: 0 to 4 over a full turn, as in ``_blue_turn``."""
    quarter, rest = np.divmod(np.arange(_TURNS + 2) * (4 / _TURNS), 1)
    degrees = np.rad2deg(np.arctan2(rest, 1 - rest)) + 90 * (quarter % 4)
    sine: NDArray[np.float64] = np.sin(np.deg2rad(60) * np.exp(-np.square((degrees - 275) / 25)))
    return sine


_TURN = _turn_table()


def _blue_turn(cosine: Values, sine: Values) -> Values:
    """The sine of twice the rotation angle, which is large for blue hues only.

    Read from a table, linearly interpolated, by the hue's way around a square instead of a circle.
    """
    across = np.abs(cosine) + np.abs(sine)
    way = np.abs(sine) / np.maximum(across, 1e-18)
    way = np.where(cosine < 0, 2 - way, way)
    way = np.where(sine < 0, 4 - way, way) * (_TURNS / 4)
    table = _TURN.astype(way.dtype, copy=False)
    index = way.astype(np.int32)
    low: Values = table[index]
    turn: Values = low + (table[index + 1] - low) * (way - index.astype(way.dtype))
    return turn
