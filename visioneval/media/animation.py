"""Animations: GIF, WebP and APNG files with several frames, which are videos without sound.

Pillow composes their frames; transparent pixels are white, and colors are sRGB by the file's color profile.
"""

from __future__ import annotations

import io
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.bounds import check_frames, max_pixels
from visioneval.errors import ImageError
from visioneval.media.color import color_space, in_srgb
from visioneval.media.images import IN_MEMORY, header, on_background, opened

if TYPE_CHECKING:
    from PIL import Image

ANIMATION_TYPES = {"GIF": "video/gif", "WEBP": "video/webp", "PNG": "video/apng"}
"""The type of an animation in records, by Pillow's name of its format: unlike that of a still image."""
EXTENSIONS = {"gif": ".gif", "webp": ".webp", "apng": ".png"}
_STARTS = (b"GIF8", b"RIFF", b"\x89PNG")
_TRAILER, _EXTENSION, _IMAGE = b";!,"
"""How the blocks of a GIF begin."""
_SHORTEST_S = 0.01
"""Browsers show a frame with this delay or a shorter one, such as 0, for 0.1 s."""
_USUAL_S = 0.1
PAGE_SIDE = 1024


@dataclass(frozen=True, slots=True)
class AnimationFrame:
    """A frame: its start and duration in seconds, as browsers show it, and the whole image as RGB."""

    start: float
    duration: float
    image: Image.Image


@dataclass(frozen=True, slots=True)
class SampledFrame:
    """The frame that is shown at ``seconds``, the middle of a part of a video. It has been shown since ``start``."""

    seconds: float
    start: float
    image: Image.Image


def animation_of(source: Path | bytes) -> tuple[str, int, int] | None:
    """The type, width and height of an animation; ``None`` for any other file. Raises ``ImageError``."""
    if _start(source).startswith(_STARTS):
        with header(source) as handle:
            hides_image = getattr(handle, "default_image", False)  # a still image that no viewer of animations shows
            if handle.format in ANIMATION_TYPES and (_frame_count(handle) > 1 or hides_image):
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
    """Whether a GIF ends as it must; a cut-off one ends like a shorter one. Bytes may follow, such as a line end."""
    try:
        if isinstance(source, bytes):
            return _has_trailer(source)
        with source.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            return _has_trailer(data)
    except IndexError:
        return False


def _has_trailer(data: bytes | mmap) -> bool:
    """Whether the trailer follows the blocks of a GIF. Raises ``IndexError`` if the data ends before."""
    position = 13 + _colors(data[10])
    while (kind := data[position]) != _TRAILER:
        position += 1
        if kind == _IMAGE:
            position += 10 + _colors(data[position + 8])
        elif kind == _EXTENSION:
            position += 1
        else:  # what is between blocks is skipped, as decoders do
            continue
        while length := data[position]:
            position += length + 1
        position += 1
    return True


def _colors(flags: int) -> int:
    """The bytes of the color table that the flags declare."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def check_still(source: Path | bytes) -> None:
    """Raises ``ImageError`` for an animation, of which every use as an image would see one frame."""
    if animation_of(source) is not None:
        raise ImageError("it is an animation, which only graders of videos measure")


def shown_at_middles(starts: Sequence[int], end: int, count: int) -> list[int]:
    """The start of the frame that is shown in the middle of each of ``count`` equal parts of the time up to ``end``.

    ``starts`` are sorted, in whole units of time. A frame that begins less than a unit later counts: times are rounded.
    """
    middles = (starts[0] - (2 * part + 1) * (starts[0] - end) // (2 * count) for part in range(count))
    return [starts[bisect_right(starts, middle) - 1] for middle in middles]


def sample_animation(source: Path, count: int, largest_side: int) -> list[SampledFrame]:
    """The frames in the middle of ``count`` equal parts of the time, scaled down to ``largest_side``."""
    starts, end = [], 0
    for frame in animation_frames(source):
        starts.append(_microseconds(frame.start))
        end = _microseconds(frame.start + frame.duration)
    selected = shown_at_middles(starts, end, count)
    images: dict[int, Image.Image] = {}
    for frame in animation_frames(source):
        if (start := _microseconds(frame.start)) in selected:
            frame.image.thumbnail((largest_side, largest_side))
            images[start] = frame.image
    step = end / count / 1_000_000
    return [SampledFrame((part + 0.5) * step, start / 1_000_000, images[start]) for part, start in enumerate(selected)]


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


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
