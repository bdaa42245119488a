"""Distributions of metrics and times over the cells of a run, for small plots. Pure functions."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from statistics import median

from visioneval.analysis.scores import Estimate
from visioneval.analysis.summary.summary import Summary
from visioneval.records.model import Record
from visioneval.report.html.plots import BINS, SMALL_WIDTH, Bar, histogram
from visioneval.report.terminal.run.summary import show_estimate
from visioneval.suite.counter_examples import LeftOut
from visioneval.types import Metric


@dataclass(frozen=True, slots=True)
class Distribution:
    """One metric of one model run, as ``text`` and as bars."""

    text: str
    bars: tuple[Bar, ...] = ()
    share: float | None = None
    """For a yes/no metric, the width of the yes part."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric over all model runs, on a shared axis. ``low`` and ``high`` are ``None`` for a yes/no metric."""

    name: str
    metric: Metric
    low: float | None
    high: float | None
    distributions: tuple[Distribution | None, ...]


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Seconds per generation of a model run, or per cell of a grader."""

    name: str
    n: int
    mean: float
    median_seconds: float
    p95_seconds: float
    bars: tuple[Bar, ...]


class CellNumbers:
    """Scores and times of cells: 8 bytes for each."""

    def __init__(self, cells: Iterable[Record], without: LeftOut | None = None) -> None:
        """Reads one cell at a time. Leaves out the scores that the means leave out."""
        self.scores: defaultdict[tuple[str, str], array[float]] = defaultdict(lambda: array("d"))
        """By metric and model label."""
        self.generation: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        """Seconds by model label."""
        self.grading: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        """Seconds by grader."""
        for cell in cells:
            self.generation[cell.model_label].append(cell.seconds)
            for grader in cell.graders:
                self.grading[grader.key].append(grader.seconds)
            left_out = without.metrics_of(cell.test_id) if without else ()
            for name, score in cell.scores.items():
                if score is not None and name not in left_out:
                    self.scores[name, cell.model_label].append(float(score))


def metric_rows(summary: Summary, numbers: CellNumbers) -> list[MetricRow]:
    """One row per metric, in the order of the run."""
    labels = [model.label for model in summary.models]
    return [
        _metric_row(name, metric, summary, {label: numbers.scores[name, label] for label in labels})
        for name, metric in summary.metrics.items()
    ]


def _metric_row(name: str, metric: Metric, summary: Summary, values: Mapping[str, Sequence[float]]) -> MetricRow:
    low, high = _axis(metric, values)
    bins = _bins(low, high, values)
    distributions = tuple(
        _distribution(model.metrics.get(name), metric, values[model.label], low, high, bins) for model in summary.models
    )
    return MetricRow(name, metric, low, high, distributions)


def _axis(metric: Metric, values: Mapping[str, Sequence[float]]) -> tuple[float | None, float | None]:
    """The metric's range; an open end is replaced by the measured minimum or maximum."""
    if metric.type == "bool":
        return None, None
    measured = [value for run_values in values.values() for value in run_values]
    low, high = metric.range or (None, None)
    ends = (min(measured, default=0.0), max(measured, default=1.0))
    return ends[0] if low is None else low, ends[1] if high is None else high


def _bins(low: float | None, high: float | None, values: Mapping[str, Sequence[float]]) -> int:
    """One bar per step for a short integer scale, else a fixed number of bars."""
    if low is None or high is None or not float(high - low).is_integer() or not 2 <= high - low < BINS:
        return BINS
    whole = all((value - low).is_integer() for run_values in values.values() for value in run_values)
    return int(high - low) + 1 if whole else BINS


def _distribution(
    finding: Estimate | None,
    metric: Metric,
    values: Sequence[float],
    low: float | None,
    high: float | None,
    bins: int,
) -> Distribution | None:
    if finding is None:
        return None
    text = show_estimate(finding, metric)
    if low is None or high is None:
        return Distribution(text, share=None if finding.value is None else round(finding.value * SMALL_WIDTH, 1))
    return Distribution(text, histogram(values, low, high, bins) if values else ())


def generation_rows(summary: Summary, numbers: CellNumbers) -> list[TimeRow]:
    """Generation times by model run."""
    return _time_rows({model.label: numbers.generation[model.label] for model in summary.models})


def grading_rows(numbers: CellNumbers) -> list[TimeRow]:
    """Grading times by grader."""
    return _time_rows(numbers.grading)


def _time_rows(numbers: Mapping[str, array[float]]) -> list[TimeRow]:
    seconds_by_name = {name: sorted(seconds) for name, seconds in numbers.items()}
    top = max((ordered[-1] for ordered in seconds_by_name.values() if ordered), default=0.0)
    return [_time_row(name, ordered, top) for name, ordered in seconds_by_name.items()]


def _time_row(name: str, ordered: Sequence[float], top: float) -> TimeRow:
    return TimeRow(
        name=name,
        n=len(ordered),
        mean=fsum(ordered) / len(ordered) if ordered else 0.0,
        median_seconds=median(ordered) if ordered else 0.0,
        p95_seconds=ordered[ceil(0.95 * len(ordered)) - 1] if ordered else 0.0,
        bars=histogram(ordered, 0.0, top) if ordered else (),
    )
