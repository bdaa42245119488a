"""Counter-examples: how well metrics separate prompts that match an image from prompts that do not."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum

from visioneval.analysis.scores import CaseNumbers, Scores
from visioneval.analysis.stats.basic import auroc
from visioneval.analysis.stats.clusters import (
    auroc_interval,
    case_sums,
    rate_separation_interval,
    separation_interval,
)
from visioneval.records.model import Record, RunInfo
from visioneval.rules import parse_gate
from visioneval.types import Frozen, Metric

Sides = tuple[Scores, Scores]
"""The scores of aligned cells and of counter-examples."""


class Separation(Frozen):
    """A metric over aligned cells and counter-examples: both means, their difference and the AUROC.

    ``auroc`` is how often an aligned cell scores higher than a counter-example. A tie counts half. Both have a 95 %
    interval over cases, ``null`` for a single case on a side; that of the difference also if no score differs.
    """

    aligned: float
    aligned_n: int
    counter: float
    counter_n: int
    difference: float
    difference_low: float | None
    difference_high: float | None
    auroc: float
    auroc_low: float | None
    auroc_high: float | None


def counter_examples(info: RunInfo) -> frozenset[str]:
    """The ids of cases whose prompt does not match their image."""
    return frozenset(case.id for case in info.selected_suite.cases if not case.expect.aligned)


class Separations:
    """Separation by metric and model run, for the main metrics of graders and for gated metrics.

    Empty if the suite has no counter-examples. Leaves out metrics without measured cells on both sides.
    """

    def __init__(self, info: RunInfo, numbers: CaseNumbers) -> None:
        """Starts without cells."""
        self._numbers = numbers
        self._metrics = info.metrics
        self._counter = counter_examples(info)
        gated = {gate.metric for entry in info.suite.gates if (gate := parse_gate(entry.rule)).fn == "separation"}
        prefixes = tuple(f"{grader.key}." for grader in info.suite.graders)
        names = (name for name in info.metrics if name in gated or not name.startswith(prefixes))
        self._scores: dict[str, dict[str, Sides]] = {name: {} for name in names} if self._counter else {}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for metric, by_label in self._scores.items():
            score = cell.scores.get(metric)
            if score is not None:
                sides = by_label.setdefault(cell.model_label, (Scores(), Scores()))
                sides[cell.test_id in self._counter].add(score, self._numbers[cell.test_id])

    def result(self, labels: Iterable[str]) -> dict[str, dict[str, Separation]]:
        """Returns separations by metric and label, with model runs in the order of ``labels``."""
        separations = {
            metric: {
                label: separation
                for label in labels
                if label in sides and (separation := separation_of(sides[label], self._metrics[metric])) is not None
            }
            for metric, sides in self._scores.items()
        }
        return {metric: by_label for metric, by_label in separations.items() if by_label}


def separation_of(sides: Sides, metric: Metric) -> Separation | None:
    """Both means, their difference and the AUROC; ``None`` if a side has no score."""
    aligned, counter = sides
    if not aligned.n or not counter.n:
        return None
    high, low = (fsum(side.values()) / side.n for side in sides)
    above, below = (side.by_case() for side in sides)
    if metric.type == "bool":
        difference = rate_separation_interval(case_sums(above), case_sums(below))
    else:
        lowest, highest = metric.range or (None, None)
        widest = None if lowest is None or highest is None else highest - lowest
        bounds = (None, None) if widest is None else (-widest, widest)
        difference = separation_interval(case_sums(above), case_sums(below), bounds)
    area = auroc_interval(list(above.values()), list(below.values()))
    return Separation(
        aligned=high,
        aligned_n=aligned.n,
        counter=low,
        counter_n=counter.n,
        difference=high - low,
        difference_low=difference and difference.low,
        difference_high=difference and difference.high,
        auroc=auroc(list(aligned.values()), list(counter.values())),
        auroc_low=area and area.low,
        auroc_high=area and area.high,
    )
