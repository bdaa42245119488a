"""Geometry of small plots: turns numbers into coordinates for inline SVG. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.counts import Counts

BINS = 16
WIDTH, HEIGHT = 200.0, 18.0
SMALL_WIDTH, SMALL_HEIGHT = 96.0, 22.0
PAD = 6.0


@dataclass(frozen=True, slots=True)
class PlotInterval:
    """A rate with its interval on an axis from 0 to 1, as x coordinates; all ``None`` if nothing was counted."""

    low: float | None
    value: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a plot, in SVG coordinates."""

    x: float
    width: float
    y: float
    height: float
    name: str = ""


def interval(rate: Estimate) -> PlotInterval:
    """The positions of the dot and the whisker ends of a rate."""
    return PlotInterval(*(None if share is None else _x(share) for share in (rate.low, rate.value, rate.high)))


def _x(share: float) -> float:
    return round(PAD + share * (WIDTH - 2 * PAD), 1)


def histogram(values: Sequence[float], low: float, high: float, bins: int = BINS) -> tuple[Bar, ...]:
    """A histogram of ``values`` over ``low``..``high`` with ``bins`` equal bins. Empty bins have no bar.

    The tallest bar fills the plot, so compare shapes and positions, not heights.
    """
    counts = [0] * bins
    span = (high - low) or 1.0
    for value in values:
        counts[min(bins - 1, max(0, int((value - low) / span * bins)))] += 1
    top, step = max(counts), SMALL_WIDTH / bins
    return tuple(
        Bar(round(at * step, 2), round(step - 1, 2), round(SMALL_HEIGHT - height, 2), round(height, 2))
        for at, number in enumerate(counts)
        if number
        for height in [max(1.5, number / top * SMALL_HEIGHT)]
    )


def verdict_bar(counts: Counts, width: float = WIDTH) -> tuple[Bar, ...]:
    """A stacked bar of verdicts."""
    parts = (("pass", counts.passed), ("fail", counts.failed), ("error", counts.errors))
    bars: list[Bar] = []
    start = 0.0
    for name, number in parts:
        share = number / counts.cells * width if counts.cells else 0.0
        if number:
            bars.append(Bar(round(start, 2), round(share, 2), 0.0, HEIGHT, name))
        start += share
    return tuple(bars)


def interval_ends() -> tuple[float, float, float]:
    """The positions of 0, 0.5 and 1 on the axis of an interval."""
    return _x(0.0), _x(0.5), _x(1.0)
