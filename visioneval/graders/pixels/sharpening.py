"""Sharpening of a whole image, such as by an editing model or an encoder's filter: measured, and undone.

Sharpening amplifies the detail that is there, by the same filter everywhere. Added grain is no multiple of it, and a
change in one place is no filter of the whole image, so neither is mistaken for it. Edges of transparency are left
out: formats without partial transparency harden them, and filters of colors leave them. The output is softened, not the
base sharpened: the noise of an encoding before the sharpening was amplified as well.
"""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from visioneval.graders.pixels.color import Floats, Mask, Pixels
from visioneval.graders.pixels.difference import luma
from visioneval.graders.pixels.registration import AlignedPair

MIN_AMPLIFICATION = 0.03
"""A smaller one is ignored: rounding and codecs reach that."""
MAX_AMPLIFICATION = 1.5
"""The largest that is undone: 1 doubles the contrast of detail. More is a visible change."""

_SCALES = (1.0, 2.0, 4.0)
"""Pixels: the sigmas of the blurs whose difference from the image is amplified; usual filters have radii of 1 to 4."""
_FREQUENCIES = np.arange(129) / 256
"""Cycles per pixel, up to the finest detail."""
_RESPONSES = np.stack([1 - np.exp(-2 * np.square(np.pi * sigma * _FREQUENCIES)) for sigma in _SCALES])
"""By how much each of the differences amplifies each frequency."""
_STEPS = 4
_FIT_PIXELS = 1 << 20
_DIGITS = 3
_BAND_ROWS = 512
_REACH = 24
_EDGE = 8
"""Pixels: twice the widest sigma, within which a blur mixes colors with transparency."""


def softened_alike(aligned: AlignedPair, region: Mask) -> tuple[AlignedPair, float]:
    """The pair with an output as soft as the base, if it was sharpened as a whole, and the amplification: 1 is twice
    the contrast of the detail that was amplified most, 0 is as it was."""
    opaque = _far_from_transparency(aligned.base) & _far_from_transparency(aligned.output)
    gains = amplification(aligned.base, aligned.output, region & opaque)
    if not gains:
        return aligned, 0.0
    softened = filtered(aligned.output, softening(gains))
    alike = replace(aligned, output=np.where(opaque[..., None], softened, aligned.output))
    return alike, round(float((gains @ _RESPONSES).max()), _DIGITS)


def amplification(base: Pixels, output: Pixels, region: Mask) -> tuple[float, ...]:
    """By how much the output amplifies the detail of ``base`` in ``region``, for each of ``_SCALES``.

    Empty if it does not, or by more than ``MAX_AMPLIFICATION``. Both images have the same size; of a large image, as
    many rows from its middle are measured as make up ``_FIT_PIXELS``.
    """
    height, width = region.shape
    count = min(height, max(64, _FIT_PIXELS // width))
    rows = slice((height - count) // 2, (height + count) // 2)
    before, after, inside = luma(base[rows, :, :3]), luma(output[rows, :, :3]), region[rows]
    layers = np.stack([before - _blurred(before, sigma) for sigma in _SCALES])
    use = inside & (after > 2) & (after < 253)
    if use.sum() < 64:
        return ()
    details, step = layers[:, use].astype(np.float64), (after - before)[use].astype(np.float64)
    gains: NDArray[np.float64] = np.zeros(len(_SCALES))
    trust: NDArray[np.float64] = np.ones_like(step)
    for _ in range(_STEPS):
        weighted = details * trust
        normal = weighted @ details.T
        normal += np.eye(len(_SCALES)) * (1e-3 * np.trace(normal) / len(_SCALES) + 1e-6)
        gains = np.asarray(np.linalg.solve(normal, weighted @ step))
        residual = step - gains @ details
        spread = 1.4826 * float(np.median(np.abs(residual))) + 0.5
        trust = 1 / np.square(1 + np.square(residual / (3 * spread)))
    gains = gains.round(_DIGITS)
    most = float((gains @ _RESPONSES).max())
    return tuple(map(float, gains)) if MIN_AMPLIFICATION <= most <= MAX_AMPLIFICATION else ()


def softening(gains: tuple[float, ...]) -> tuple[float, ...]:
    """The gains that undo amplification, and restore no lost detail.

    Detail finer than what was amplified most is reduced as much: little of the base's may be left there, but the noise
    of an encoder was amplified.
    """
    rest = np.minimum.accumulate(1 / np.maximum(1 + gains @ _RESPONSES, 1)) - 1
    solution = np.linalg.lstsq(_RESPONSES.T, rest, rcond=None)[0]
    return tuple(map(float, solution.round(_DIGITS)))


def filtered(image: Pixels, gains: tuple[float, ...]) -> Pixels:
    """The image with the detail of its colors amplified by ``gains``."""
    result = image.copy()
    for top in range(0, image.shape[0], _BAND_ROWS):
        first, bottom = max(0, top - _REACH), min(image.shape[0], top + _BAND_ROWS)
        colors = np.ascontiguousarray(image[first : bottom + _REACH, :, :3]).astype(np.float32)
        sharp = colors * np.float32(1 + sum(gains))
        for gain, sigma in zip(gains, _SCALES, strict=True):
            sharp -= np.float32(gain) * _blurred(colors, sigma)
        result[top:bottom, :, :3] = np.clip(np.rint(sharp[top - first : bottom - first]), 0, 255).astype(np.uint8)
    return result


def _far_from_transparency(image: Pixels) -> Mask:
    """Where all is opaque within ``_EDGE`` pixels."""
    if image.shape[2] == 3:
        return np.ones(image.shape[:2], np.bool_)
    alpha, square = np.ascontiguousarray(image[..., 3]), np.ones((2 * _EDGE + 1, 2 * _EDGE + 1), np.uint8)
    opaque: Mask = cv2.erode(alpha, square, borderValue=255) == 255
    return opaque


def _blurred(values: NDArray[np.float32], sigma: float) -> Floats:
    return np.asarray(cv2.GaussianBlur(values, (0, 0), sigma), np.float32)
