"""Geometry of small plots: turns numbers into coordinates for inline SVG. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visioneval.analysis.summary.counts import Counts
from visioneval.report.sections import Interval

BINS = 16
WIDTH, HEIGHT = 200.0, 18.0
PAD = 6.0


def coordinates(plot: Interval) -> dict[str, Any]:
    """The positions of the ends, the value and the marks of an interval, and the size of its plot."""
    first, last = plot.ends
    low, value, high, *marks = (
        None if number is None else _x((number - first) / (last - first))
        for number in (plot.low, plot.value, plot.high, *plot.marks)
    )
    return {"low": low, "value": value, "high": high, "marks": marks, "width": WIDTH, "height": HEIGHT}


def _x(share: float) -> float:
    return round(PAD + share * (WIDTH - 2 * PAD), 1)


def histogram(values: Sequence[float], low: float, high: float, bins: int = BINS) -> tuple[float, ...]:
    """The heights of ``bins`` equal bins over ``low``..``high``, the tallest is 1: compare shapes, not heights."""
    counts = [0] * bins
    span = (high - low) or 1.0
    for value in values:
        counts[min(bins - 1, max(0, int((value - low) / span * bins)))] += 1
    return tuple(round(number / max(counts), 3) for number in counts)


def verdict_bar(counts: Counts, cells: int) -> list[tuple[str, float, float]]:
    """The parts of a bar, each with its verdict, start and width, of 600. Of ``cells``, a run may lack some."""
    bar: list[tuple[str, float, float]] = []
    start = 0.0
    for name, number in (("pass", counts.passed), ("fail", counts.failed), ("error", counts.errors)):
        width = 600 * number / cells if cells else 0.0
        if number:
            bar.append((name, round(start, 2), round(width, 2)))
        start += width
    return bar
