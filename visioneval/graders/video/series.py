"""Measures over time, in few enough points for a record and a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
