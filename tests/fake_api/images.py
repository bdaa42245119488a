"""Small real images for answers, and inspection of the images that were sent."""

from __future__ import annotations

import base64
import binascii
import io
import random
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw

VARIANTS = 8
"""The number of different default images per size and format, as encoding is slow."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What a decoder reports: Pillow's format in lower case, size in pixels, whether pixels may be transparent."""

    format: str
    width: int
    height: int
    alpha: bool
    transparent: bool
    frames: int


@lru_cache(maxsize=256)
def generated(width: int, height: int, fmt: str, variant: int) -> bytes:
    """A plain image with a block in it. ``fmt`` is ``png``, ``jpeg`` or ``webp``; ``variant`` picks the colours."""
    shade = 40 + 25 * (variant % VARIANTS)
    image = Image.new("RGB", (width, height), (shade, 255 - shade, 120))
    box = (width // 4, height // 4, width // 4 + max(1, width // 8) * (1 + variant % 3), height // 2)
    ImageDraw.Draw(image).rectangle(box, fill=(250, 250, 240))
    out = io.BytesIO()
    image.save(out, fmt.upper())
    return out.getvalue()


@lru_cache(maxsize=VARIANTS)
def weighty(kilobytes: int, variant: int) -> bytes:
    """A PNG of 1024 x 1024 pixels and about so many kilobytes: a band of noise on a plain ground."""
    noise = random.Random(variant).randbytes(kilobytes * 1000)
    rows = bytes([90, 120, 40 + 20 * variant]) * (1024 * 1024)
    out = io.BytesIO()
    Image.frombytes("RGB", (1024, 1024), noise + rows[len(noise) :]).save(out, "PNG", compress_level=1)
    return out.getvalue()


@lru_cache(maxsize=512)
def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@lru_cache(maxsize=128)
def decoded(text: str) -> bytes | None:
    """The bytes of a base64 text, in the standard or the URL-safe alphabet; ``None`` where it is neither."""
    try:
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError):
        return None


@lru_cache(maxsize=128)
def inspect_image(data: bytes) -> ImageFacts | None:
    """Facts about an image after decoding it completely; ``None`` if it is no image."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
            transparent = alpha and image.convert("RGBA").getchannel("A").getextrema()[0] != 255
            frames = int(getattr(image, "n_frames", 1))
            return ImageFacts((image.format or "").lower(), image.width, image.height, alpha, transparent, frames)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Warning):
        return None
