"""Counter-examples: how far metrics tell prompts that an image shows from prompts that it does not."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import fsum

from visioneval.analysis.stats.basic import auroc
from visioneval.records.model import Record, RunInfo
from visioneval.rules import parse_gate
from visioneval.types import Frozen

Sides = tuple["array[float]", "array[float]"]
"""The scores of aligned cells, and of counter-examples."""


class Separation(Frozen):
    """A metric over aligned cells and over counter-examples: both means, their difference, and the AUROC.

    ``auroc`` is how often an aligned cell scores higher than a counter-example, ties counting half.
    """

    aligned: float
    aligned_n: int
    counter: float
    counter_n: int
    difference: float
    auroc: float


def counter_examples(info: RunInfo) -> frozenset[str]:
    """The cases whose prompts their images do not show."""
    return frozenset(case.id for case in info.suite.cases if not case.expect.aligned)


class Separations:
    """By metric and model run, for the main metrics of graders and for those that a gate is about.

    Empty where the suite has no counter-examples; a pair without a measured cell on both sides is left out.
    """

    def __init__(self, info: RunInfo) -> None:
        """Begins with no cell."""
        self._counter = counter_examples(info)
        gated = {gate.metric for entry in info.suite.gates if (gate := parse_gate(entry.rule)).fn == "separation"}
        prefixes = tuple(f"{grader.key}." for grader in info.suite.graders)
        names = (name for name in info.metrics if name in gated or not name.startswith(prefixes))
        self._sides: dict[str, dict[str, Sides]] = {name: {} for name in names} if self._counter else {}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for metric, by_label in self._sides.items():
            score = cell.scores.get(metric)
            if score is not None:
                sides = by_label.setdefault(cell.model_label, (array("d"), array("d")))
                sides[cell.test_id in self._counter].append(float(score))

    def result(self, labels: Iterable[str]) -> dict[str, dict[str, Separation]]:
        """What was counted, for model runs in this order."""
        separations = {
            metric: {
                label: separation
                for label in labels
                if label in sides and (separation := _separation(sides[label])) is not None
            }
            for metric, sides in self._sides.items()
        }
        return {metric: by_label for metric, by_label in separations.items() if by_label}


def _separation(sides: Sides) -> Separation | None:
    aligned, counter = sides
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
