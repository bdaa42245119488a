"""All frames of a video as luma, with their times. The work is bounded before the first frame is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visioneval.bounds import check_frames
from visioneval.errors import ImageError
from visioneval.media.animation import ANIMATION_TYPES, animation_frames
from visioneval.media.images import check_size
from visioneval.media.video import mime_of, opened, packets

Luma = NDArray[np.uint8]
"""``(height, width)``, 0 (black) to 255 (white), whatever the range and the depth in the file."""

_TRANSFERS = {16: "PQ", 18: "HLG"}
"""Transfer characteristics of HDR, by their number in ITU-T H.273."""
_FULL_RANGE = 2


@dataclass(frozen=True, slots=True)
class LumaFrame:
    """A frame: ``start`` in seconds from the first one, and ``duration`` in seconds; ``None`` if they are unknown."""

    start: float | None
    duration: float | None
    luma: Luma
    rotation: int
    """Degrees, counterclockwise, by which a player turns it."""
    hdr: str | None
    """The transfer function of HDR, ``PQ`` or ``HLG``, with which luma is not comparable to that of other videos."""


@dataclass(frozen=True, slots=True)
class VideoStream:
    """What the file says about its video. ``pixel_aspect`` is the width of a pixel over its height."""

    codec: str
    pixel_format: str
    pixel_aspect: float
    has_audio: bool
    """Whether there is any sound, silence included."""
    frames: Iterator[LumaFrame]
    """Raises ``ImageError`` at a frame that does not decode."""


@contextmanager
def opened_luma(path: Path) -> Iterator[VideoStream]:
    """Opens a video to read its frames once. Raises ``ImageError`` if it is cut off, damaged or over the limits."""
    mime = mime_of(path)
    if mime in ANIMATION_TYPES.values():
        codec = mime.removeprefix("video/")
        yield VideoStream(codec, pixel_format="rgb24", pixel_aspect=1.0, has_audio=False, frames=_animation_luma(path))
        return
    with opened(str(path), mime) as (container, stream):
        has_audio = _check_packets(container, stream)
    with opened(str(path), mime) as (container, stream):
        context, shape = stream.codec_context, stream.sample_aspect_ratio
        yield VideoStream(
            codec=context.name,
            pixel_format=context.pix_fmt or "unknown",
            pixel_aspect=float(shape) if shape else 1.0,
            has_audio=has_audio,
            frames=_frames(container, stream),
        )


def _check_packets(container: Any, stream: Any) -> bool:
    """Whether the file has sound. Raises ``ImageError`` if it is cut off or its frames are over the limits."""
    count, has_audio = 0, False
    pixels = stream.codec_context.width * stream.codec_context.height
    for packet in packets(container, stream):
        has_audio = has_audio or packet.stream.type == "audio"
        count += packet.stream_index == stream.index
        check_frames(count, count * pixels)
    return has_audio


def _animation_luma(path: Path) -> Iterator[LumaFrame]:
    for frame in animation_frames(path):
        yield LumaFrame(frame.start, frame.duration, np.asarray(frame.image.convert("L")), rotation=0, hdr=None)


def _frames(container: Any, stream: Any) -> Iterator[LumaFrame]:
    rate = stream.average_rate
    first, pixels = None, 0
    for number, frame in enumerate(container.decode(stream)):
        check_size(frame.width, frame.height)
        pixels += frame.width * frame.height
        check_frames(number + 1, pixels)
        if frame.is_corrupt:
            raise ImageError(f"the video is damaged: its frame {number + 1:,} does not decode")
        first = frame.pts if first is None else first
        unit = frame.time_base
        yield LumaFrame(
            start=float((frame.pts - first) * unit)
            if frame.pts is not None
            else float(number / rate)
            if rate
            else None,
            duration=float(frame.duration * unit) if frame.duration else float(1 / rate) if rate else None,
            luma=_luma(frame),
            rotation=int(frame.rotation),
            hdr=_TRANSFERS.get(getattr(frame, "color_trc", None) or 0),
        )


def _luma(frame: Any) -> Luma:
    """The luma of a frame. That of usual formats is read as it is, so that it does not depend on the processor."""
    name, bits = frame.format.name, frame.format.components[0].bits
    is_deep = 8 < bits <= 16 and name.endswith("le")
    is_plain = (name.startswith("yuv") and frame.format.is_planar and (bits == 8 or is_deep)) or name.startswith("nv")
    if not is_plain:
        gray: Luma = frame.reformat(format="gray").to_ndarray()
        return gray
    plane = frame.planes[0]
    samples = np.frombuffer(plane, np.dtype("<u2") if is_deep else np.dtype(np.uint8))
    rows = samples.reshape(plane.height, -1)[:, : plane.width]
    values: Luma = (rows >> (bits - 8)).astype(np.uint8)
    if name.startswith("yuvj") or frame.color_range == _FULL_RANGE:
        return values
    full: Luma = _from_limited_range()[values]
    return full


@cache
def _from_limited_range() -> Luma:
    """The full range, 0 to 255, of luma from 16 to 235 (ITU-R BT.709)."""
    levels: Luma = ((np.arange(256) - 16) * (255 / 219)).clip(0, 255).round().astype(np.uint8)
    return levels
