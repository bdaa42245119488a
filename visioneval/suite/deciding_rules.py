"""Which rules of a suite can fail a cell. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from visioneval.rules import Rule, can_fail, parse_rule
from visioneval.suite.cases.case import TestCase
from visioneval.suite.filters import VerdictRule
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Metric

RulesOf = Callable[[str, str], tuple[str, ...] | None]
"""The rules that can fail the cells of a case on a model run; ``None`` if they are unknown."""


def unknown_rules(case: str, label: str) -> None:
    """The rules of records without a suite."""


class DecidingRules:
    """The rules of a suite that can fail a cell: of the level ``fail``, in scope, over a metric of the cell, and
    not met by every score in its range."""

    def __init__(self, suite: Suite, selected: Suite) -> None:
        """Takes a whole suite, and what a selection left of it."""
        self._suite, self._metrics = suite, SuiteMetrics(suite, selected)
        self._cases = {case.id: case for case in suite.cases}
        self._rules: dict[str, tuple[VerdictRule, ...]] = {}

    def of_cell(self, case: str, label: str) -> tuple[str, ...] | None:
        """Their texts, in order."""
        if case not in self._cases:
            return None
        test_case = self._cases[case]
        if case not in self._rules:
            self._rules[case] = tuple(self._of_case(test_case))
        tags, task = test_case.tags, test_case.task_type
        return tuple(rule.rule for rule in self._rules[case] if rule.covers(case, task, tags, label))

    def _of_case(self, case: TestCase) -> Iterable[VerdictRule]:
        metrics = self._metrics.of_case(case)
        rules = self._suite.verdict if case.verdict is None else case.verdict
        return (rule for rule in rules if rule.level == "fail" and _can_fail(parse_rule(rule.rule), metrics))


def _can_fail(rule: Rule, metrics: Mapping[str, Metric]) -> bool:
    metric = metrics.get(rule.metric)
    return metric is not None and can_fail(rule, metric)
