"""Missed damage as two small images: the part around the damage, before and after."""

from __future__ import annotations

import io

from PIL import Image

from visioneval.media.images import on_checkerboard
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
    buffer = io.BytesIO()
    on_checkerboard(shown).save(buffer, "WEBP", quality=82, method=2)
    return buffer.getvalue()
