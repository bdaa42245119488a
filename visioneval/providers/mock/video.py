"""The mock's videos: a page whose landscape passes by, while its copy stays."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visioneval.errors import ProviderError
from visioneval.installation import needs
from visioneval.providers.mock.config import MockParams
from visioneval.providers.mock.page import Box, other_size
from visioneval.suite.case import pixel_size

Pixels = NDArray[np.uint8]

_PAN = 0.25
"""The share of the landscape's width that passes by each second."""
_DIMMED = 0.8
"""The brightness of every second frame of a video that flickers."""
_FLAWED_FROM = 0.4
"""The share of a video after which it freezes or turns black."""
_SHORT = 0.25
"""The share of the requested duration that a short video has."""
_SAMPLE_RATE = 16_000
_AUDIO_FRAME = 1024
_TONE_HZ = 440
_VOLUME = 0.05


def video_size(params: MockParams) -> tuple[int, int]:
    """The size of a video in pixels. Raises ``ProviderError`` if it is odd, which its encoding does not support."""
    size = pixel_size(params.size)
    if params.flaw == "wrong_size":
        width, height = other_size(size)
        size = (width + width % 2, height + height % 2)
    if size[0] % 2 or size[1] % 2:
        raise ProviderError(f"mock: a video needs an even width and height, not {params.size}", kind="invalid")
    return size


def render(page: Image.Image, art: Box, params: MockParams, software: str) -> bytes:
    """An MP4 of a page whose landscape, in the box ``art``, moves. Raises ``ProviderError``."""
    try:
        import av
    except ImportError:
        raise ProviderError(f"mock: {needs('video')}", kind="invalid") from None
    target = io.BytesIO()
    try:
        with av.open(target, "w", format="mp4", container_options={"fflags": "+bitexact"}) as container:
            container.metadata["comment"] = software
            stream: Any = container.add_stream("libx264", rate=Fraction(params.frame_rate))
            stream.width, stream.height, stream.pix_fmt = *page.size, "yuv420p"
            # one thread and a fixed quantizer: else the same request would not always give the same bytes
            stream.codec_context.thread_count = 1
            stream.options = {"preset": "ultrafast", "qp": "18"}
            audio: Any = container.add_stream("aac", rate=_SAMPLE_RATE, layout="mono") if params.audio else None
            for pixels in _frames(np.asarray(page.convert("RGB")), art, params):
                container.mux(stream.encode(_video_frame(pixels)))
            container.mux(stream.encode())
            if audio is not None:
                _add_tone(container, audio, _frame_count(params) / params.frame_rate)
    except (av.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ProviderError(f"mock: the video cannot be encoded: {reason}", kind="invalid") from None
    return target.getvalue()


def _video_frame(pixels: Pixels) -> Any:
    """RGB pixels as a frame, converted by OpenCV: FFmpeg's conversion does not always give the same bytes."""
    import av

    height, width, _ = pixels.shape
    frame = av.VideoFrame(width, height, "yuv420p")
    planes = cv2.cvtColor(pixels, cv2.COLOR_RGB2YUV_I420).ravel()
    sizes = [height * width, height * width // 4, height * width // 4]
    for plane, values in zip(frame.planes, np.split(planes, np.cumsum(sizes)[:-1]), strict=True):
        rows = np.zeros((plane.height, plane.line_size), np.uint8)
        rows[:, : plane.width] = values.reshape(plane.height, plane.width)
        plane.update(rows.tobytes())
    return frame


def _frame_count(params: MockParams) -> int:
    share = _SHORT if params.flaw == "short" else 1
    return max(2, round(params.seconds * params.frame_rate * share))


def _frames(page: Pixels, art: Box, params: MockParams) -> Iterator[Pixels]:
    """The frames, each ``(height, width, 3)``."""
    count = _frame_count(params)
    flawed_from = round(count * _FLAWED_FROM)
    for number in range(count):
        is_flawed = number >= flawed_from
        if params.flaw == "black" and is_flawed:
            yield np.zeros_like(page)
            continue
        moment = flawed_from if params.flaw == "frozen" and is_flawed else number
        frame = _panned(page, art, moment / params.frame_rate)
        if params.flaw == "flicker" and number % 2:
            frame = (frame * _DIMMED).astype(np.uint8)
        yield frame


def _panned(page: Pixels, art: Box, seconds: float) -> Pixels:
    left, top, right, bottom = art
    frame = page.copy()
    landscape = page[top:bottom, left:right]
    frame[top:bottom, left:right] = np.roll(landscape, round((right - left) * _PAN * seconds), axis=1)
    return frame


def _add_tone(container: Any, stream: Any, seconds: float) -> None:
    """Adds a tone, in whole frames of the encoder: what it reads past the end of its input would differ each time."""
    import av

    count = math.ceil(seconds * _SAMPLE_RATE / _AUDIO_FRAME)
    times = np.arange(count * _AUDIO_FRAME) / _SAMPLE_RATE
    samples = (np.sin(2 * np.pi * _TONE_HZ * times) * _VOLUME).astype(np.float32)
    for number, part in enumerate(samples.reshape(count, 1, _AUDIO_FRAME)):
        frame = av.AudioFrame.from_ndarray(part, format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = _SAMPLE_RATE, number * _AUDIO_FRAME, Fraction(1, _SAMPLE_RATE)
        container.mux(stream.encode(frame))
    container.mux(stream.encode())
