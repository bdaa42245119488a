"""Metrics of judges and local measures that answer the same question (``same_question``): which scores of either pass.

Scores of two metrics can only be compared by whether they pass. The rules of the suite over a metric say which values
do, of the level ``warn`` too. A yes or no without a rule passes with its better answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from visioneval.rules import Rule, parse_rule
from visioneval.suite.case import TestCase
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.suite.rules import VerdictRule
from visioneval.types import Metric, Score, TaskType


class _Cell(Protocol):
    @property
    def test_id(self) -> str: ...
    @property
    def task_type(self) -> TaskType: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def model_label(self) -> str: ...
    @property
    def scores(self) -> Mapping[str, Score]: ...


class Passes:
    """Whether the scores of a cell pass, by the rules of a suite."""

    def __init__(self, suite: Suite, metrics: Mapping[str, Metric]) -> None:
        """``metrics`` are those of the run."""
        self._metrics = metrics
        self._of_suite = suite.verdict
        self._of_cases = {case.id: case.verdict for case in suite.cases if case.verdict is not None}

    def of_cell(self, cell: _Cell, name: str) -> bool | None:
        """Whether a score passes. ``None`` if it was not measured, or nothing says which values pass."""
        score, metric = cell.scores.get(name), self._metrics.get(name)
        if score is None or metric is None:
            return None
        rules = [
            rule
            for entry in self._of_cases.get(cell.test_id, self._of_suite)
            if (rule := _over(name, entry)) and entry.covers(cell.test_id, cell.task_type, cell.tags, cell.model_label)
        ]
        if rules:
            outcomes = {rule.outcome({name: score}) for rule in rules}
            return None if "unmeasured" in outcomes else outcomes == {"passed"}
        return bool(score) is (metric.better == "higher") if _has_better_answer(metric) else None


def says_which_pass(suite: Suite, case: TestCase, name: str, metric: Metric) -> bool:
    """Whether anything says which values of a metric pass in a case, on some model run."""
    rules = suite.verdict if case.verdict is None else case.verdict
    has_rule = any(_over(name, entry) and entry.fits(case.id, case.task_type, case.tags) for entry in rules)
    return has_rule or _has_better_answer(metric)


def judged_metrics(suite: Suite, metrics: SuiteMetrics, names: Collection[str]) -> frozenset[str]:
    """Those of some metrics for which a judge is asked: it answers them, or something that they are computed from."""
    judges = (grader for grader in suite.graders if grader.judge_names)
    answered = {
        name for grader in judges for case in suite.cases if grader.is_for(case) for name in grader.metrics(case)
    }
    return frozenset(name for name in names if not answered.isdisjoint(metrics.sources(name)))


def _over(name: str, entry: VerdictRule) -> Rule | None:
    """The rule of an entry, if it is over this metric."""
    rule = parse_rule(entry.rule)
    return rule if rule.metric == name else None


def _has_better_answer(metric: Metric) -> bool:
    return metric.type == "bool" and metric.better != "none"
