"""Cells in which a judge's own verdict, usable as it is or not, contradicts the rules over its scores.

The thresholds or the rubric may then be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence, Set

from visioneval.records.model import Record
from visioneval.rules import parse_rule
from visioneval.suite.filters import VerdictRule
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Frozen


class Disagreement(Frozen):
    """``judged`` cells have all scores and a verdict of the judge; in ``disagreed`` of them the rules contradict it."""

    judged: int
    disagreed: int


class Disagreements:
    """Counts disagreements by rubric key. Only rules over the metrics of the rubric count."""

    def __init__(self, suite: Suite) -> None:
        """Starts without cells."""
        self._disagreements_of = disagreement_finder(suite)
        self._counts: dict[str, Counter[bool]] = {key: Counter() for key in _rubrics(suite)}

    def add(self, cell: Record) -> None:
        """Counts a cell."""
        for key, disagreed in self._disagreements_of(cell).items():
            self._counts[key][disagreed] += 1

    def result(self) -> dict[str, Disagreement]:
        """Returns the counts by rubric key."""
        return {
            key: Disagreement(judged=counts.total(), disagreed=counts[True]) for key, counts in self._counts.items()
        }


def disagreement_finder(suite: Suite) -> Callable[[Record], dict[str, bool]]:
    """Returns a function that maps the rubric keys of a cell to whether judge and rules disagree.

    A rubric is left out if the judge or the rules have no verdict.
    """
    rubrics = _rubrics(suite)
    rules = {case.id: case.verdict for case in suite.cases if case.verdict is not None}

    def disagreements_of(cell: Record) -> dict[str, bool]:
        cell_rules = rules.get(cell.test_id, suite.verdict)
        answers = ((key, _is_disagreement(cell_rules, cell, key, metrics)) for key, metrics in rubrics.items())
        return {key: answer for key, answer in answers if answer is not None}

    return disagreements_of


def _rubrics(suite: Suite) -> dict[str, Set[str]]:
    """By rubric: its metrics, and those that are computed from them alone."""
    computed = SuiteMetrics(suite).grader_sources()
    rubrics: dict[str, Set[str]] = {}
    for grader in suite.graders:
        if asked := grader.rubric.keys():
            rubrics[grader.key] = {*asked, *(name for name, read in computed.items() if read and asked >= set(read))}
    return rubrics


def _is_disagreement(rules: Sequence[VerdictRule], cell: Record, key: str, metrics: Set[str]) -> bool | None:
    """Whether judge and rules disagree, or ``None`` if either has no verdict, or the judge was not asked for what the
    rules are about.
    """
    verdict = next((grader.details.get("judge_verdict") for grader in cell.graders if grader.key == key), None)
    asked = metrics & cell.scores.keys()
    if verdict is None or any(cell.scores[name] is None for name in asked):
        return None
    failed = any(parse_rule(rule).metric in asked for rule in cell.failed_rules)
    if not failed and not _has_rule_about(rules, cell, asked):
        return None
    return (verdict == "FAIL") is not failed


def _has_rule_about(rules: Sequence[VerdictRule], cell: Record, metrics: Collection[str]) -> bool:
    """Whether a rule that can fail this cell uses one of the metrics."""
    return any(
        rule.level == "fail"
        and parse_rule(rule.rule).metric in metrics
        and rule.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
        for rule in rules
    )
