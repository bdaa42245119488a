"""How each metric and each time is spread over a run's cells, ready for small plots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from statistics import median

from visioneval.analysis.findings import MetricFinding, Summary
from visioneval.records.model import Record
from visioneval.report.html.plots import BINS, SMALL_WIDTH, Bar, histogram
from visioneval.report.terminal.summary import show_finding
from visioneval.types import Metric


@dataclass(frozen=True, slots=True)
class Spread:
    """One metric over one model run: ``told`` in words, and its bars."""

    told: str
    bars: tuple[Bar, ...] = ()
    share: float | None = None
    """For a yes or no the width of the part that says yes."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric over all model runs, on one axis. ``low`` and ``high`` are ``None`` for a yes or no."""

    name: str
    metric: Metric
    low: float | None
    high: float | None
    spreads: tuple[Spread | None, ...]


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Seconds of the generations of a model run, or of the work of a grader."""

    name: str
    n: int
    mean: float
    middle: float
    slow: float
    bars: tuple[Bar, ...]


def metric_rows(summary: Summary, cells: Sequence[Record]) -> list[MetricRow]:
    """Every metric of the run in its order."""
    labels = [model.label for model in summary.models]
    values: dict[str, dict[str, list[float]]] = {name: {label: [] for label in labels} for name in summary.metrics}
    for cell in cells:
        for name, score in cell.scores.items():
            if score is not None and name in values:
                values[name].setdefault(cell.model_label, []).append(float(score))
    return [_metric_row(name, metric, summary, values[name]) for name, metric in summary.metrics.items()]


def _metric_row(name: str, metric: Metric, summary: Summary, values: Mapping[str, Sequence[float]]) -> MetricRow:
    low, high = _axis(metric, values)
    bins = _bins(low, high, values)
    spreads = tuple(
        _spread(model.metrics.get(name), metric, values[model.label], low, high, bins) for model in summary.models
    )
    return MetricRow(name, metric, low, high, spreads)


def _axis(metric: Metric, values: Mapping[str, Sequence[float]]) -> tuple[float | None, float | None]:
    """The metric's range, and where that is open what was measured."""
    if metric.type == "bool":
        return None, None
    measured = [value for own in values.values() for value in own]
    low, high = metric.range or (None, None)
    ends = (min(measured, default=0.0), max(measured, default=1.0))
    return ends[0] if low is None else low, ends[1] if high is None else high


def _bins(low: float | None, high: float | None, values: Mapping[str, Sequence[float]]) -> int:
    """A bar for every step of a short scale of whole numbers; else a fixed number of bars."""
    if low is None or high is None or not float(high - low).is_integer() or not 2 <= high - low < BINS:
        return BINS
    whole = all((value - low).is_integer() for own in values.values() for value in own)
    return int(high - low) + 1 if whole else BINS


def _spread(
    finding: MetricFinding | None,
    metric: Metric,
    values: Sequence[float],
    low: float | None,
    high: float | None,
    bins: int,
) -> Spread | None:
    if finding is None:
        return None
    told = show_finding(finding, metric)
    if low is None or high is None:
        return Spread(told, share=None if finding.value is None else round(finding.value * SMALL_WIDTH, 1))
    return Spread(told, histogram(values, low, high, bins) if values else ())


def generation_rows(summary: Summary, cells: Iterable[Record]) -> list[TimeRow]:
    """How long the generations of each model run took."""
    return _time_rows({model.label: [] for model in summary.models}, ((c.model_label, c.seconds) for c in cells))


def grading_rows(cells: Iterable[Record]) -> list[TimeRow]:
    """How long the work of each grader took."""
    return _time_rows({}, ((grader.key, grader.seconds) for cell in cells for grader in cell.graders))


def _time_rows(found: dict[str, list[float]], times: Iterable[tuple[str, float]]) -> list[TimeRow]:
    for name, seconds in times:
        found.setdefault(name, []).append(seconds)
    top = max((max(own, default=0.0) for own in found.values()), default=0.0)
    return [_time_row(name, sorted(own), top) for name, own in found.items()]


def _time_row(name: str, ordered: Sequence[float], top: float) -> TimeRow:
    return TimeRow(
        name=name,
        n=len(ordered),
        mean=fsum(ordered) / len(ordered) if ordered else 0.0,
        middle=median(ordered) if ordered else 0.0,
        slow=ordered[ceil(0.95 * len(ordered)) - 1] if ordered else 0.0,
        bars=histogram(ordered, 0.0, top) if ordered else (),
    )
