"""Files that look like images and do not decode."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from PIL import Image


def encoded(kind: str = "PNG", size: tuple[int, int] = (64, 48), **options: Any) -> bytes:
    """A whole image with noise in it."""
    out = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(out, kind, **options)
    return out.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG, with a good checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def short_png(width: int = 64, height: int = 48, rows: int = 3) -> bytes:
    """A PNG with valid checksums whose pixel data ends after a few rows."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + b"\x80" * 3 * width for _ in range(rows))))
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


def flat_png(width: int, height: int) -> bytes:
    """A small file of many pixels, all of them there."""
    out = io.BytesIO()
    Image.new("L", (width, height), 200).save(out, "PNG")
    return out.getvalue()


def no_palette_png() -> bytes:
    """Indices of colours without the colours: Pillow loads it, and cannot show it."""
    rows = (b"\0" + b"\xff" * 64) * 64
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 3, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


BROKEN = {
    "short.png": short_png(),
    "no_palette.png": no_palette_png(),
    "cut.jpg": encoded("JPEG")[:900],
    "cut.webp": encoded("WEBP")[:300],
    "cut.gif": encoded("GIF")[:1500],
    "cut.bmp": encoded("BMP")[:600],
}
