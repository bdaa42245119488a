"""What is measured in a video, frame by frame, without any limit of a grader. Pure functions of the file's bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from visioneval.errors import GraderError
from visioneval.extras import needs
from visioneval.graders.video.flicker import flicker
from visioneval.graders.video.series import OverTime, over_time
from visioneval.media.video_luma import Luma, LumaFrame, opened_luma

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
    with opened_luma(path) as video:
        reader = _FrameMeasures()
        for frame in video.frames:
            reader.add(frame)
        return reader.facts(video.codec, video.pixel_format, video.pixel_aspect, has_audio=video.has_audio)


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
        self._means.append(_tile_means(luma) / 255)
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
        means = np.stack([tiles.ravel() for tiles in self._means]) if self._has_one_size() else None
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
            black=_black_stretches(times, self._is_black) if is_comparable else None,
            flicker=flicker(means, frame_rate) if is_comparable and means is not None and frame_rate else None,
            over_time=over_time(times, means, self._changes) if is_measured and means is not None else None,
        )

    def _times(self) -> list[float] | None:
        """The starts of all frames; ``None`` if one is unknown or they do not rise."""
        starts = [start for start in self._starts if start is not None]
        rises = all(a < b for a, b in pairwise(starts))
        return starts if starts and rises and len(starts) == len(self._starts) else None

    def _has_one_size(self) -> bool:
        return len({tiles.shape for tiles in self._means}) == 1


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


def _tile_means(values: NDArray[np.uint8]) -> NDArray[np.float64]:
    sums, sizes = _tiles(values)
    return sums / sizes


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


def _black_stretches(times: Sequence[Stretch], is_black: Sequence[bool]) -> tuple[Stretch, ...]:
    stretches: list[Stretch] = []
    for number, (start, end) in enumerate(times):
        if is_black[number]:
            if number and is_black[number - 1]:
                start = stretches.pop()[0]
            stretches.append((start, end))
    return tuple(stretches)
