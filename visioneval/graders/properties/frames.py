"""What is measured in a video, frame by frame, without any limit of a grader. Pure functions of the file's bytes.

All frames are read as luma, with their times. The work is bounded before the first frame is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visioneval.bounds import check_frames
from visioneval.errors import GraderError, ImageError
from visioneval.installation import needs
from visioneval.media.animation import ANIMATION_TYPES, animation_frames
from visioneval.media.images import check_size
from visioneval.media.video import mime_of, opened, packets

Luma = NDArray[np.uint8]
"""``(height, width)``, 0 (black) to 255 (white), whatever the range and the depth in the file."""

_TRANSFERS = {16: "PQ", 18: "HLG"}
"""Transfer characteristics of HDR, by their number in ITU-T H.273."""
_FULL_RANGE = 2
_FULL_LEVELS = ((np.arange(256) - 16) * (255 / 219)).clip(0, 255).round().astype(np.uint8)
"""The full range, 0 to 255, of luma from 16 to 235 (ITU-R BT.709)."""


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


@contextmanager
def opened_luma(path: Path) -> Iterator[tuple[Iterator[LumaFrame], dict[str, Any]]]:
    """Opens a video to read its frames once, with what the file says about it: those fields of ``VideoFacts``.

    A frame that does not decode raises ``ImageError``, as does a video that is cut off, damaged or over the limits.
    """
    mime = mime_of(path)
    if mime in ANIMATION_TYPES.values():
        frames = (
            LumaFrame(frame.start, frame.duration, np.asarray(frame.image.convert("L")), rotation=0, hdr=None)
            for frame in animation_frames(path)
        )
        codec = mime.removeprefix("video/")
        yield frames, {"codec": codec, "pixel_format": "rgb24", "pixel_aspect": 1.0, "has_audio": False}
        return
    with opened(str(path), mime) as (container, stream):
        count, has_audio = 0, False
        pixels = stream.codec_context.width * stream.codec_context.height
        for packet in packets(container, stream):
            has_audio = has_audio or packet.stream.type == "audio"
            count += packet.stream_index == stream.index
            check_frames(count, count * pixels)
    with opened(str(path), mime) as (container, stream):
        context, shape = stream.codec_context, stream.sample_aspect_ratio
        stated = {"codec": context.name, "pixel_format": context.pix_fmt or "unknown", "has_audio": has_audio}
        yield _frames(container, stream), {**stated, "pixel_aspect": float(shape) if shape else 1.0}


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
        start, duration = (float(number / rate), float(1 / rate)) if rate else (None, None)
        if frame.pts is not None:
            start = float((frame.pts - first) * frame.time_base)
        if frame.duration:
            duration = float(frame.duration * frame.time_base)
        yield LumaFrame(
            start=start,
            duration=duration,
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
    full: Luma = _FULL_LEVELS[values]
    return full


TILES = (9, 16)
"""Rows and columns of tiles; fewer in a tiny video."""
FROZEN_LEVELS = 1.0
"""Mean absolute difference of a tile's luma, in levels of 255, up to which it stands still: encoders change a still
image by less, and the slowest camera moves it by more."""
SHORTEST_STILL_S = 0.2
"""Shorter times do not count for ``frozen_share``: animations at 12 frames per second show each frame twice."""
BLACK_LEVEL = 25
"""Luma, of 255, up to which a pixel is black: the 10 % of FFmpeg's ``blackdetect``."""
BLACK_PIXELS = 0.98
"""The share of black pixels from which a frame is black, as in FFmpeg's ``blackdetect``."""
VARIES = 0.1
"""The deviation of an interval from the median, as a share, from which the frame rate varies."""
_TIMESTAMP_S = 0.002
"""Rounding of timestamps: Matroska has milliseconds."""

Stretch = tuple[float, float]
"""Start and end in seconds."""


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """What a video shows. Times are in seconds from its first frame; ``None`` is what cannot be known.

    ``width`` and ``height`` are pixels as players turn the video, without their aspect ``pixel_aspect``.
    """

    width: int
    height: int
    pixel_aspect: float
    rotation: int
    codec: str
    pixel_format: str
    hdr: str | None
    frames: int
    duration_s: float | None
    frame_rate: float | None
    """Frames per second on average."""
    rates: tuple[float, float] | None
    """The lowest and the highest frame rate between two frames, if it varies."""
    has_audio: bool
    frozen: tuple[Stretch, ...] | None
    """Times in which the image does not change. A frame is compared with the first of its stretch, as in FFmpeg's
    ``freezedetect``, so that a slow change is none."""
    black: tuple[Stretch, ...] | None
    flicker: float | None
    over_time: OverTime | None


def tool_versions() -> dict[str, str]:
    """The versions of what decodes and calculates. Raises ``GraderError`` if the extra is not installed."""
    try:
        return {"av": version("av"), "numpy": np.__version__}
    except PackageNotFoundError:
        raise GraderError(needs("video")) from None


def measure_video(path: Path) -> VideoFacts:
    """Decodes all frames. Raises ``ImageError`` if the video is damaged, cut off or over the limits."""
    with opened_luma(path) as (frames, stated):
        reader = _FrameMeasures()
        for frame in frames:
            reader.add(frame)
        return reader.facts(**stated)


class _FrameMeasures:
    """Looks at one frame after the other, and keeps numbers of each."""

    def __init__(self) -> None:
        self._starts: list[float | None] = []
        self._last_duration: float | None = None
        self._size, self._rotation = (0, 0), 0
        self._hdr: str | None = None
        self._means: list[NDArray[np.float64]] = []
        self._changes: list[float] = []
        self._is_black: list[bool] = []
        self._is_still: list[bool] = []
        self._previous: Luma | None = None
        self._still: Luma | None = None
        """The first frame of the stretch in which nothing changed."""

    def add(self, frame: LumaFrame) -> None:
        """Takes the next frame."""
        luma = frame.luma
        if self._still is None:
            self._size, self._rotation = (luma.shape[1], luma.shape[0]), frame.rotation % 360
        self._hdr = self._hdr or frame.hdr
        self._starts.append(frame.start)
        self._last_duration = frame.duration
        sums, sizes = _tiles(luma)
        self._means.append(sums / sizes / 255)
        self._is_black.append(bool((luma <= BLACK_LEVEL).mean() >= BLACK_PIXELS))
        self._changes.append(_difference(self._previous, luma)[0])
        is_still = _difference(self._still, luma)[1] <= FROZEN_LEVELS
        self._is_still.append(is_still)
        self._still = self._still if is_still else luma
        self._previous = luma

    def facts(self, codec: str, pixel_format: str, pixel_aspect: float, *, has_audio: bool) -> VideoFacts:
        """Everything that was measured."""
        starts = self._times()
        width, height = self._size if self._rotation % 180 == 0 else self._size[::-1]
        intervals = [] if starts is None else [b - a for a, b in pairwise(starts)]
        tail = self._last_duration if self._last_duration is not None else median(intervals) if intervals else None
        ends = None if starts is None or tail is None else [*starts[1:], starts[-1] + tail]
        is_measured = starts is not None and ends is not None and len(starts) > 1
        frame_rate = len(intervals) / sum(intervals) if intervals else None
        times = list(zip(starts, ends, strict=True)) if starts is not None and ends is not None else []
        by_black = groupby(zip(self._is_black, times, strict=True) if times else (), itemgetter(0))
        black = [list(row) for is_black, row in by_black if is_black]
        has_one_size = len({tiles.shape for tiles in self._means}) == 1
        means = np.stack([tiles.ravel() for tiles in self._means]) if has_one_size else None
        is_comparable = is_measured and means is not None and self._hdr is None
        return VideoFacts(
            width=width,
            height=height,
            pixel_aspect=pixel_aspect if self._rotation % 180 == 0 else 1 / pixel_aspect,
            rotation=self._rotation,
            codec=codec,
            pixel_format=pixel_format,
            hdr=self._hdr,
            frames=len(self._starts),
            duration_s=ends[-1] if ends else None,
            frame_rate=frame_rate,
            rates=_varying_rates(intervals),
            has_audio=has_audio,
            frozen=_stretches(times, self._is_still, at_least=2) if is_measured else None,
            black=tuple((row[0][1][0], row[-1][1][1]) for row in black) if is_comparable else None,
            flicker=flicker(means, frame_rate) if is_comparable and means is not None and frame_rate else None,
            over_time=over_time(times, means, self._changes) if is_measured and means is not None else None,
        )

    def _times(self) -> list[float] | None:
        """The starts of all frames; ``None`` if one is unknown or they do not rise."""
        starts = [start for start in self._starts if start is not None]
        rises = all(a < b for a, b in pairwise(starts))
        return starts if starts and rises and len(starts) == len(self._starts) else None


def _varying_rates(intervals: Sequence[float]) -> tuple[float, float] | None:
    """The lowest and the highest frame rate; ``None`` if the rate is constant."""
    if not intervals:
        return None
    tolerance = max(VARIES * median(intervals), _TIMESTAMP_S)
    if max(abs(interval - median(intervals)) for interval in intervals) <= tolerance:
        return None
    return 1 / max(intervals), 1 / min(intervals)


def _tiles(values: NDArray[np.uint8]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The sums of the tiles of a frame, and their pixels."""
    rows, columns = (
        np.unique(np.linspace(0, size, min(count, size), endpoint=False, dtype=np.intp))
        for size, count in zip(values.shape, TILES, strict=True)
    )
    sums = np.add.reduceat(np.add.reduceat(values, columns, axis=1, dtype=np.uint32), rows, axis=0, dtype=np.uint64)
    heights, widths = np.diff([*rows, values.shape[0]]), np.diff([*columns, values.shape[1]])
    return sums.astype(np.float64), np.outer(heights, widths).astype(np.float64)


def _difference(before: Luma | None, luma: Luma) -> tuple[float, float]:
    """The mean absolute difference of two frames, and that of the tile with the largest, in levels of 255.

    It is 0 and infinite for the first frame, and 255 after a change of the size.
    """
    if before is None:
        return 0.0, float("inf")
    if before.shape != luma.shape:
        return 255.0, 255.0
    sums, sizes = _tiles(np.maximum(before, luma) - np.minimum(before, luma))
    return float(sums.sum() / sizes.sum()), float((sums / sizes).max())


def _stretches(times: Sequence[Stretch], continues: Iterable[bool], *, at_least: int) -> tuple[Stretch, ...]:
    """Stretches of ``at_least`` frames, each but the first of which continues the one before."""
    groups: list[list[Stretch]] = []
    for time, is_next in zip(times, continues, strict=True):
        if is_next:
            groups[-1].append(time)
        else:
            groups.append([time])
    return tuple((group[0][0], group[-1][1]) for group in groups if len(group) >= at_least)


REVERTS_WITHIN_S = 0.1
"""A change that comes back later is motion or light of the scene."""
WINDOW_S = 0.5
FLICKERING_AREA = 0.25
"""The share of the image that must change together, as for flashes in Rec. ITU-R BT.1702-3 and WCAG 2.2."""


def flicker(means: NDArray[np.float64], frame_rate: float) -> float | None:
    """How much the luminance jumps and jumps back, from 0 (not at all) to 1 (black and white in turns).

    ``means`` is the luminance of each frame's tiles, ``(frames, tiles)``, 0 to 1. A frame's tile stands out by the
    smaller of its differences to the frames before and after it, at most 0.1 s away, if it is brighter or darker
    than both; so neither a cut nor a fade stands out. A frame stands out by as much as a quarter of its area does at
    least, in the same direction: in an image that moves, parts get brighter while others get darker. The flicker is
    the mean over the half second in which that is largest. ``None`` for fewer than three frames.

    Source: pairs of opposing changes in luminance over a quarter of the image are the flashes of Rec. ITU-R BT.1702-3
    (2023) and of WCAG 2.2 (general flash). Those count flashes from 10 % on; this measures smaller ones too.
    """
    if len(means) < 3:
        return None
    brighter, darker = np.zeros(means.shape), np.zeros(means.shape)
    for step in range(1, max(1, int(REVERTS_WITHIN_S * frame_rate + 1e-9)) + 1):
        if 2 * step >= len(means):
            break
        middle = means[step:-step]
        to_before, to_after = middle - means[: -2 * step], middle - means[2 * step :]
        for standing_out, reverted in (
            (brighter, np.minimum(to_before, to_after)),
            (darker, np.minimum(-to_before, -to_after)),
        ):
            np.maximum(standing_out[step:-step], reverted, out=standing_out[step:-step])
    by_frame = np.maximum(
        *(np.quantile(part, 1 - FLICKERING_AREA, axis=1, method="lower") for part in (brighter, darker))
    )
    by_frame = by_frame[1:-1]
    window = min(len(by_frame), max(1, round(WINDOW_S * frame_rate)))
    sums = np.cumsum([0.0, *by_frame])
    return float((sums[window:] - sums[:-window]).max() / window)


MAX_POINTS = 240
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class OverTime:
    """Series of at most ``MAX_POINTS`` points; each stands for the frames from its second until the next.

    ``luminance`` is the mean, 0 (black) to 1 (white). ``change`` is the largest mean absolute difference of luma to the
    frame before, 0 to 1.
    """

    seconds: tuple[float, ...]
    luminance: tuple[float, ...]
    change: tuple[float, ...]


def over_time(times: Sequence[tuple[float, float]], means: NDArray[np.float64], changes: Sequence[float]) -> OverTime:
    """The series of frames with ``times`` (start and end), tile ``means`` (0 to 1) and ``changes`` (levels of 255)."""
    bounds = np.unique(np.linspace(0, len(times), min(len(times), MAX_POINTS), endpoint=False, dtype=int))
    parts = list(zip(bounds, [*bounds[1:], len(times)], strict=True))

    def points(values: Sequence[float], combine: Callable[[Sequence[float]], float]) -> tuple[float, ...]:
        return tuple(round(float(combine(values[first:last])), _DIGITS) for first, last in parts)

    luminance = [float(tiles.mean()) for tiles in means]
    shares = [change / 255 for change in changes]
    return OverTime(
        seconds=tuple(round(times[first][0], 3) for first, _ in parts),
        luminance=points(luminance, lambda values: sum(values) / len(values)),
        change=points(shares, max),
    )
