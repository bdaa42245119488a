"""Reads the text of an image with transparency on backgrounds on which it can be seen: white, black, or both."""

from __future__ import annotations

import cv2
import numpy as np
from PIL import Image

from visioneval.graders.text.copy_match import Reading
from visioneval.graders.text.reading import ocr
from visioneval.graders.text.reading.merging import merged
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


def read(image: Image.Image) -> list[Reading]:
    """The text segments in an image of ``load_image``: RGB as it is, RGBA on each background that it needs.

    Where readings on both backgrounds overlap, those of the background with more confident characters count. Raises
    ``GraderError``.
    """
    return merged([ocr.read(flat) for flat in on_backgrounds(image)])


def on_backgrounds(image: Image.Image) -> list[Image.Image]:
    """The image, as RGB, on each background that it needs."""
    return [on_background(image, color) for color in backgrounds(image)]


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
