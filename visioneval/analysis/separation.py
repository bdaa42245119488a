"""Counter-examples: how far metrics tell prompts that a picture shows from prompts that it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from visioneval.analysis.stats import auroc
from visioneval.records import Record, RunInfo
from visioneval.rules import parse_gate
from visioneval.types import Frozen


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
    """The cases whose prompts their pictures do not show."""
    return frozenset(case.id for case in info.suite.cases if not case.expect.aligned)


def separations(info: RunInfo, by_label: Mapping[str, Sequence[Record]]) -> dict[str, dict[str, Separation]]:
    """By metric and model run, for the main metrics of graders and for those that a gate is about.

    Empty where the suite has no counter-examples; a pair without a measured cell on both sides is left out.
    """
    counter = counter_examples(info)
    if not counter:
        return {}
    gated = {gate.metric for entry in info.suite.gates if (gate := parse_gate(entry.rule)).fn == "separation"}
    parts = tuple(f"{grader.key}." for grader in info.suite.graders)
    found: dict[str, dict[str, Separation]] = {}
    for metric in info.metrics:
        if metric in gated or not metric.startswith(parts):
            each = {label: _separation(metric, cells, counter) for label, cells in by_label.items()}
            if known := {label: one for label, one in each.items() if one is not None}:
                found[metric] = known
    return found


def _separation(metric: str, cells: Sequence[Record], counter: frozenset[str]) -> Separation | None:
    sides: tuple[list[float], list[float]] = ([], [])
    for cell in cells:
        score = cell.scores.get(metric)
        if score is not None:
            sides[cell.test_id in counter].append(float(score))
    above, below = sides
    if not above or not below:
        return None
    high, low = fsum(above) / len(above), fsum(below) / len(below)
    return Separation(
        aligned=high,
        aligned_n=len(above),
        counter=low,
        counter_n=len(below),
        difference=high - low,
        auroc=auroc(above, below),
    )
