"""Transparency in comparisons of pixels.

An image with transparency looks different on every background. Each channel of what it shows is a linear function of
that channel of the background, so two such images differ most on white or on black, and if they are the same on both,
they are the same on any. Every comparison therefore looks at both backgrounds. Opaque images are compared once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
        yield tuple(_on_white(image) for image in images)


def _on_white(image: Pixels) -> Pixels:
    rest = cv2.merge([255 - image[..., 3]] * 3)
    return np.asarray(cv2.add(np.ascontiguousarray(image[..., :3]), rest), np.uint8)


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
