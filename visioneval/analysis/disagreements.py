"""Where a judge's own verdict and the rules over its scores part: a sign that the thresholds or the prompt are off."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from visioneval.records import Record
from visioneval.rules import parse_rule
from visioneval.suite.graders import RubricGrader
from visioneval.suite.model import Suite
from visioneval.types import Frozen


class Disagreement(Frozen):
    """In ``judged`` cells a judge gave all its scores and a verdict; in ``disagreed`` of them the rules say else."""

    judged: int
    disagreed: int


def disagreements(suite: Suite, cells: Sequence[Record]) -> dict[str, Disagreement]:
    """For each rubric by its key, only the rules over its own metrics being looked at."""
    found: dict[str, Disagreement] = {}
    for grader in suite.graders:
        if isinstance(grader, RubricGrader):
            parted = [one for cell in cells if (one := _parted(cell, grader.key, grader.asked.keys())) is not None]
            found[grader.key] = Disagreement(judged=len(parted), disagreed=sum(parted))
    return found


def _parted(cell: Record, key: str, metrics: Collection[str]) -> bool | None:
    """Whether judge and rules disagree; ``None`` where either has no verdict."""
    own = next((grader.details.get("judge_verdict") for grader in cell.graders if grader.key == key), None)
    if own is None or any(cell.scores.get(name) is None for name in metrics):
        return None
    failed = any(parse_rule(rule).metric in metrics for rule in cell.failed_rules)
    return (own == "FAIL") is not failed
