"""Where a judge's own verdict and the rules over its scores part: a sign that the thresholds or the prompt are off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from visioneval.records.model import Record
from visioneval.rules import parse_rule
from visioneval.suite.filters import VerdictRule
from visioneval.suite.model import Suite
from visioneval.types import Frozen


class Disagreement(Frozen):
    """In ``judged`` cells a judge gave all its scores and a verdict; in ``disagreed`` of them the rules say else."""

    judged: int
    disagreed: int


class Disagreements:
    """How often that is so, for each rubric by its key, only the rules over its own metrics being looked at."""

    def __init__(self, suite: Suite) -> None:
        """Begins with no cell."""
        self._disagreements_of = disagreement_finder(suite)
        self._counts: dict[str, Counter[bool]] = {key: Counter() for key in _rubrics(suite)}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for key, disagreed in self._disagreements_of(cell).items():
            self._counts[key][disagreed] += 1

    def result(self) -> dict[str, Disagreement]:
        """What was counted."""
        return {
            key: Disagreement(judged=disagreements_of.total(), disagreed=disagreements_of[True])
            for key, disagreements_of in self._counts.items()
        }


def disagreement_finder(suite: Suite) -> Callable[[Record], dict[str, bool]]:
    """Says of a cell, by the key of a rubric, whether judge and rules disagree; no key where either is silent."""
    rubrics = _rubrics(suite)
    rules = {case.id: case.verdict for case in suite.cases if case.verdict is not None}

    def disagreements_of(cell: Record) -> dict[str, bool]:
        cell_rules = rules.get(cell.test_id, suite.verdict)
        answers = ((key, _is_disagreement(cell_rules, cell, key, metrics)) for key, metrics in rubrics.items())
        return {key: answer for key, answer in answers if answer is not None}

    return disagreements_of


def _rubrics(suite: Suite) -> dict[str, Collection[str]]:
    return {grader.key: grader.rubric.keys() for grader in suite.graders if grader.rubric}


def _is_disagreement(rules: Sequence[VerdictRule], cell: Record, key: str, metrics: Collection[str]) -> bool | None:
    """Whether judge and rules disagree; ``None`` where either has no verdict."""
    verdict = next((grader.details.get("judge_verdict") for grader in cell.graders if grader.key == key), None)
    if verdict is None or any(cell.scores.get(name) is None for name in metrics):
        return None
    failed = any(parse_rule(rule).metric in metrics for rule in cell.failed_rules)
    if not failed and not _has_rule_about(rules, cell, metrics):
        return None
    return (verdict == "FAIL") is not failed


def _has_rule_about(rules: Sequence[VerdictRule], cell: Record, metrics: Collection[str]) -> bool:
    """Whether some rule that can fail this cell is about one of the metrics."""
    return any(
        rule.level == "fail"
        and parse_rule(rule.rule).metric in metrics
        and rule.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
        for rule in rules
    )
