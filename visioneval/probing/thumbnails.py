"""Missed damage as two small images: the part around the damage, before and after."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from visioneval.probing.damage.subject import Box, Pixels, PlantedFile, decode

SIDE = 320
CONTEXT = 2.5
"""A cutout is this many times as large as the damage."""


def side_by_side(before: Pixels, after: PlantedFile) -> tuple[bytes, bytes]:
    """Both images as WebP, at most ``SIDE`` pixels on their longer side, on a checkered ground if transparent."""
    image = decode(after.data)
    box = after.box if image.shape[:2] == before.shape[:2] else None
    return _cutout(before, box), _cutout(image, box)


def _cutout(image: Pixels, box: Box | None) -> bytes:
    shown = Image.fromarray(image)
    if box is not None:
        left, top, width, height = box
        side = max(CONTEXT * width, CONTEXT * height, 96)
        x, y = left + width / 2 - side / 2, top + height / 2 - side / 2
        shown = shown.crop(
            (max(0, round(x)), max(0, round(y)), min(shown.width, round(x + side)), min(shown.height, round(y + side)))
        )
    shown.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    if shown.mode == "RGBA":
        shown = Image.alpha_composite(_checkered(shown.size), shown)
    buffer = io.BytesIO()
    shown.convert("RGB").save(buffer, "WEBP", quality=82, method=2)
    return buffer.getvalue()


def _checkered(size: tuple[int, int]) -> Image.Image:
    rows, columns = np.mgrid[: size[1], : size[0]] // 8
    levels = np.where((rows + columns) % 2, 220, 160).astype(np.uint8)
    return Image.fromarray(np.dstack([levels] * 3)).convert("RGBA")
