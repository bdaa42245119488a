"""Generates videos with motion, without a flaw and with planted ones."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

Frames = list[NDArray[np.uint8]]
"""Gray frames, ``(height, width)``."""
WIDTH, HEIGHT, FPS, SECONDS = 320, 180, 24, 2
COUNT = FPS * SECONDS


@cache
def scene(seed: int) -> NDArray[np.float64]:
    """A picture with detail of all sizes, like a photo's, three times as wide as a frame; levels of 255."""
    dice = np.random.default_rng(seed)
    picture = np.zeros((HEIGHT * 2, WIDTH * 3))
    for octave in range(2, 9):
        coarse = dice.normal(size=(max(2, HEIGHT * 2 >> (8 - octave)), max(2, WIDTH * 3 >> (8 - octave))))
        picture += cv2.resize(coarse, (WIDTH * 3, HEIGHT * 2), interpolation=cv2.INTER_CUBIC) / 1.7 ** (octave - 2)
    return 128 + 45 * (picture - picture.mean()) / picture.std()


def _view(picture: NDArray[np.float64], x: float, y: float = 40, gain: float = 1, zoom: float = 1) -> NDArray[np.uint8]:
    matrix = np.array([[zoom, 0, -x * zoom], [0, zoom, -y * zoom]], float)
    view = cv2.warpAffine(picture, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
    return (view * gain).clip(0, 255).round().astype(np.uint8)


def pan(seed: int, speed: float = 2) -> Frames:
    """The camera moves by ``speed`` pixels per frame."""
    picture = scene(seed)
    return [_view(picture, 20 + speed * number) for number in range(COUNT)]


def grain(seed: int, sigma: float) -> Frames:
    """A camera that does not move, with video grain of ``sigma`` levels."""
    dice, still = np.random.default_rng(seed), _view(scene(seed), 100).astype(float)
    return [(still + dice.normal(0, sigma, still.shape)).clip(0, 255).round().astype(np.uint8) for _ in range(COUNT)]


def fade(seed: int) -> Frames:
    """A still that gets dark slowly, and ends at a third of its brightness."""
    picture = scene(seed)
    return [_view(picture, 100, gain=1 - 0.67 * number / COUNT) for number in range(COUNT)]


def cuts(seed: int) -> Frames:
    """Hard cuts between four scenes of half a second, each with a slow pan."""
    pictures = [scene(seed * 10 + part) * gain for part, gain in enumerate((1.2, 0.5, 1.0, 0.7))]
    return [_view(pictures[number * 4 // COUNT], 50 + number) for number in range(COUNT)]


def handheld(seed: int) -> Frames:
    """A camera that shakes."""
    dice, picture = np.random.default_rng(seed), scene(seed)
    steps = dice.normal(0, 1.5, (COUNT, 2)).cumsum(axis=0) * 0.5
    return [_view(picture, 100 + x, 40 + y) for x, y in steps]


def zoom(seed: int) -> Frames:
    """A slow zoom."""
    picture = scene(seed)
    return [_view(picture, 100, zoom=1 + 0.004 * number) for number in range(COUNT)]


def walker(seed: int) -> Frames:
    """A bright block crosses a still scene, behind which grain moves a little."""
    frames = grain(seed, 1)
    for number, frame in enumerate(frames):
        frame[60:140, (left := 5 * number) : left + 60] = 240
    return frames


CLEAN: Mapping[str, Callable[[int], Frames]] = {
    "camera pan": pan,
    "slow pan": lambda seed: pan(seed, 0.25),
    "fast pan": lambda seed: pan(seed, 8),
    "grain, sigma 2": lambda seed: grain(seed, 2),
    "grain, sigma 10": lambda seed: grain(seed, 10),
    "slow fade": fade,
    "hard cuts": cuts,
    "handheld camera": handheld,
    "slow zoom": zoom,
    "crossing object": walker,
}


def frozen(frames: Frames, seconds: float) -> Frames:
    """The picture stands still in the middle for about this time, and the motion goes on behind it."""
    count = round(seconds * FPS)
    first = (len(frames) - count) // 2
    return [*frames[:first], *[frames[first]] * count, *frames[first + count :]]


def black(frames: Frames, seconds: float) -> Frames:
    """The picture is black in the middle for about this time."""
    count = max(1, round(seconds * FPS))
    first = (len(frames) - count) // 2
    return [*frames[:first], *[np.zeros_like(frames[0])] * count, *frames[first + count :]]


def flickering(frames: Frames, share: float, period: int = 2) -> Frames:
    """The second half of every ``period`` frames is darker by this share."""
    is_dark = [number % period >= period // 2 for number in range(len(frames))]
    return [(f * (1 - share * d)).round().astype(np.uint8) for f, d in zip(frames, is_dark, strict=True)]


def shortened(frames: Frames, share: float) -> Frames:
    """The video without this share of its end."""
    return frames[: round(len(frames) * (1 - share))]


def encoded(
    frames: Sequence[NDArray[np.uint8]], *, crf: int = 23, times: Sequence[int] = (), **stream_options: Any
) -> bytes:
    """An H.264 MP4 of gray frames. ``times`` are those of the frames in thousandths of a second."""
    target = io.BytesIO()
    with av.open(target, "w", format="mp4") as container:
        stream: Any = container.add_stream("libx264", rate=Fraction(FPS))
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape, "yuv420p"
        stream.codec_context.thread_count = 1
        stream.options = {"preset": "veryfast", "crf": str(crf)}
        if times:
            stream.codec_context.time_base = Fraction(1, 1000)
        for name, value in stream_options.items():
            setattr(stream.codec_context, name, value)
        for number, pixels in enumerate(frames):
            frame = av.VideoFrame.from_ndarray(np.repeat(pixels[:, :, None], 3, axis=2), format="rgb24")
            if times:
                frame.pts, frame.time_base = times[number], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return target.getvalue()


def stored(path: Path, frames: Sequence[NDArray[np.uint8]], **options: Any) -> Path:
    """``encoded`` as a file."""
    path.write_bytes(encoded(frames, **options))
    return path
