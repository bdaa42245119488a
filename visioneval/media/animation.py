"""Animations: GIF, WebP and APNG files with several frames, which are videos without sound.

Pillow composes their frames; transparent pixels are white, and colors are sRGB by the file's color profile.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.bounds import check_frames, max_pixels
from visioneval.errors import ImageError
from visioneval.media.color import color_space, in_srgb
from visioneval.media.images import header, on_background, opened
from visioneval.media.pixel_budget import IN_MEMORY

if TYPE_CHECKING:
    from PIL import Image

ANIMATION_TYPES = {"GIF": "video/gif", "WEBP": "video/webp", "PNG": "video/apng"}
"""The type of an animation in records, by Pillow's name of its format: unlike that of a still image."""
EXTENSIONS = {"gif": ".gif", "webp": ".webp", "apng": ".png"}
_STARTS = (b"GIF8", b"RIFF", b"\x89PNG")
_SHORTEST_S = 0.01
"""Browsers show a frame with this delay or a shorter one, such as 0, for 0.1 s."""
_USUAL_S = 0.1
PAGE_SIDE = 1024
_BLOCK = 65_536


@dataclass(frozen=True, slots=True)
class AnimationFrame:
    """A frame: its start and duration in seconds, as browsers show it, and the whole image as RGB."""

    start: float
    duration: float
    image: Image.Image


def animation_of(source: Path | bytes) -> tuple[str, int, int] | None:
    """The type, width and height of an animation; ``None`` for any other file. Raises ``ImageError``."""
    if _start(source).startswith(_STARTS):
        with header(source) as handle:
            if handle.format in ANIMATION_TYPES and _frame_count(handle) > 1:
                return ANIMATION_TYPES[handle.format], handle.width, handle.height
    return None


def still_kind(source: Path | bytes) -> str | None:
    """The format of an image that could be an animation, but has one frame; ``None`` for any other file."""
    if not _start(source).startswith(_STARTS):
        return None
    with header(source) as handle:
        return handle.format if handle.format in ANIMATION_TYPES and _frame_count(handle) == 1 else None


def _start(source: Path | bytes) -> bytes:
    if isinstance(source, bytes):
        return source[:4] if source[:4] != b"RIFF" or source[8:12] == b"WEBP" else b""
    with source.open("rb") as file:
        return _start(file.read(12))


def _frame_count(handle: Image.Image) -> int:
    """The frames that the file declares. A GIF declares none, so it counts as two if there is a second."""
    if handle.format == "GIF":
        return 2 if getattr(handle, "is_animated", False) else 1
    return int(getattr(handle, "n_frames", 1)) - bool(getattr(handle, "default_image", False))


def animation_frames(source: Path | bytes) -> Iterator[AnimationFrame]:
    """All frames in their order. Raises ``ImageError`` if the file is damaged, cut off or over the limits of videos."""
    with opened(source) as handle:
        declared, pixels = _frame_count(handle), handle.width * handle.height
        space, start = color_space(handle), 0.0
        number, skipped = 0, int(bool(getattr(handle, "default_image", False)))  # a still image before the animation
        while True:
            try:
                handle.seek(number + skipped)
            except EOFError:
                break
            check_frames(number + 1, (number + 1) * pixels)
            handle.load()
            seconds = float(handle.info.get("duration") or 0) / 1000
            duration = seconds if seconds > _SHORTEST_S else _USUAL_S
            yield AnimationFrame(start, duration, on_background(in_srgb(handle, space), "white"))
            start, number = start + duration, number + 1
        if number < declared:
            raise ImageError(f"the animation is cut off: it has {number:,} of {declared:,} frames")
    if handle.format == "GIF" and not _has_end(source):
        raise ImageError("the animation is cut off: its end is missing")


def _has_end(source: Path | bytes) -> bool:
    """Whether a GIF ends as it must; a cut-off one ends like a shorter one. Padding with zeros is common."""
    with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            if data := file.read(end - start).rstrip(b"\0"):
                return data.endswith(b";")
            end = start
    return False


def check_still(source: Path | bytes) -> None:
    """Raises ``ImageError`` for an animation, of which every use as an image would see one frame."""
    if animation_of(source) is not None:
        raise ImageError("it is an animation, which only graders of videos measure")


def sample_animation(source: Path, count: int) -> list[tuple[float, Image.Image]]:
    """Up to ``count`` frames, each from the middle of an equal part: seconds from the start, and the image as RGB."""
    total = sum(1 for _ in animation_frames(source))
    selected = {int((part + 0.5) * total / count) for part in range(count)}
    frames = enumerate(animation_frames(source))
    return [(frame.start, frame.image) for number, frame in frames if number in selected]


def as_webp(source: Path) -> bytes:
    """The animation as a new lossless WebP without metadata, for a page. Raises ``ImageError``.

    Its longer side is at most ``PAGE_SIDE``, and all of its frames together have at most half of the pixels that may be
    in memory.
    """
    with header(source) as handle:
        count, pixels = int(getattr(handle, "n_frames", 1)), handle.width * handle.height
        check_frames(count, count * pixels)
        factor = min(1.0, PAGE_SIDE / max(handle.size), math.sqrt(max_pixels() / 2 / count / pixels))
        size = max(1, int(handle.width * factor)), max(1, int(handle.height * factor))
    with IN_MEMORY.reserve(pixels + count * size[0] * size[1]):
        images, durations = [], []
        for frame in animation_frames(source):
            images.append(frame.image if frame.image.size == size else frame.image.resize(size, reducing_gap=2))
            durations.append(round(frame.duration * 1000))
        target = io.BytesIO()
        images[0].save(
            target,
            "WEBP",
            save_all=True,
            append_images=images[1:],
            duration=durations,
            loop=0,
            lossless=True,
            method=0,
        )
        return target.getvalue()
