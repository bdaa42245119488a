"""Generates small videos."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
from PIL import Image


def clip(
    path: Path, colours: Sequence[str], *, seconds_each: float = 0.5, size: tuple[int, int] = (64, 48), fps: int = 10
) -> Path:
    """A video that shows one colour after the other; the file extension selects the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    codec = {".mp4": "mpeg4", ".mov": "mpeg4", ".avi": "mpeg4", ".mkv": "mpeg4", ".webm": "libvpx"}[path.suffix]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=Fraction(fps))
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for colour in colours:
            image = Image.new("RGB", size, colour)
            for _ in range(round(seconds_each * fps)):
                container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    return path


def colour_of(jpeg: bytes) -> tuple[bool, bool, bool]:
    """Which of red, green and blue the middle of an image has plenty of."""
    image = Image.open(io.BytesIO(jpeg)).convert("RGB")
    red, green, blue = image.getpixel((image.width // 2, image.height // 2))  # type: ignore[misc]
    return red > 128, green > 128, blue > 128
