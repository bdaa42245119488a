"""Counter-examples: how well metrics separate prompts that match an image from prompts that do not."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import fsum

from visioneval.analysis.stats.basic import auroc
from visioneval.records.model import Record, RunInfo
from visioneval.rules import parse_gate
from visioneval.types import Frozen

Sides = tuple["array[float]", "array[float]"]
"""The scores of aligned cells and of counter-examples."""


class Separation(Frozen):
    """A metric over aligned cells and counter-examples: both means, their difference and the AUROC.

    ``auroc`` is how often an aligned cell scores higher than a counter-example. A tie counts half.
    """

    aligned: float
    aligned_n: int
    counter: float
    counter_n: int
    difference: float
    auroc: float


def counter_examples(info: RunInfo) -> frozenset[str]:
    """The ids of cases whose prompt does not match their image."""
    return frozenset(case.id for case in info.selected_suite.cases if not case.expect.aligned)


class Separations:
    """Separation by metric and model run, for the main metrics of graders and for gated metrics.

    Empty if the suite has no counter-examples. Leaves out metrics without measured cells on both sides.
    """

    def __init__(self, info: RunInfo) -> None:
        """Starts without cells."""
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
                sides = by_label.setdefault(cell.model_label, (array("d"), array("d")))
                sides[cell.test_id in self._counter].append(float(score))

    def result(self, labels: Iterable[str]) -> dict[str, dict[str, Separation]]:
        """Returns separations by metric and label, with model runs in the order of ``labels``."""
        separations = {
            metric: {
                label: separation
                for label in labels
                if label in sides and (separation := _separation(sides[label])) is not None
            }
            for metric, sides in self._scores.items()
        }
        return {metric: by_label for metric, by_label in separations.items() if by_label}


def _separation(scores: Sides) -> Separation | None:
    aligned, counter = scores
    if not aligned or not counter:
        return None
    high, low = fsum(aligned) / len(aligned), fsum(counter) / len(counter)
    return Separation(
        aligned=high,
        aligned_n=len(aligned),
        counter=low,
        counter_n=len(counter),
        difference=high - low,
        auroc=auroc(aligned, counter),
    )
