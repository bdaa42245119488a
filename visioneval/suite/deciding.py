"""Which rules can fail a cell, and which scores numbers over all cells leave out: those of counter-examples.

A counter-example is a case whose prompt does not match its image (``expect: {aligned: false}``). A low score of how
well image and prompt match is then the right answer. So a number over all cells leaves such scores out: a perfect
judge would get a mean of about one half. A scope that names cases, tags or tasks counts what it names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from visioneval.rules import Rule, can_fail, parse_gate, parse_rule
from visioneval.suite.cases.case import TestCase
from visioneval.suite.filters import GateRule, VerdictRule
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Metric

MATCH_TYPES = ("gecko", "alignment")
"""The types of the graders whose scores say how well an image matches its prompt. A text, a rubric or pixels are
measured against what the case expects, which is right for a counter-example too."""


class _CellGrader(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def type(self) -> str: ...


def counter_examples(suite: Suite) -> frozenset[str]:
    """The ids of cases whose prompt does not match their image."""
    return frozenset(case.id for case in suite.cases if not case.expect.aligned)


def image_cases(suite: Suite) -> dict[str, str]:
    """The case that generates the images, by the id of each case that uses those of another."""
    return {case.id: case.output_of for case in suite.cases if case.output_of is not None}


def match_keys(graders: Iterable[_CellGrader]) -> frozenset[str]:
    """The keys of the graders of a cell whose scores say how well image and prompt match."""
    return frozenset(grader.key for grader in graders if grader.type in MATCH_TYPES)


def is_metric_of(name: str, keys: Collection[str]) -> bool:
    """Whether a metric is that of one of these graders, or of one of its types, such as ``gecko.counting``."""
    return name in keys or name.partition(".")[0] in keys


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The scores that numbers over all cells of a suite leave out: these metrics in these cases."""

    cases: frozenset[str]
    metrics: frozenset[str]

    def metrics_of(self, case_id: str) -> frozenset[str]:
        """The metrics that are left out for a case."""
        return self.metrics if case_id in self.cases else frozenset()

    def cases_of(self, metric: str | None, entry: GateRule) -> frozenset[str]:
        """The cases that a gate over a metric leaves out: none if its scope or its weights name cases, nor for a
        separation."""
        if metric not in self.metrics or parse_gate(entry.rule).fn == "separation":
            return frozenset()
        if entry.cases or entry.tags or entry.tasks or entry.weights:
            return frozenset()
        return self.cases


def left_out(suite: Suite, metrics: Iterable[str]) -> LeftOut:
    """What numbers over all cells leave out of these metrics of a suite."""
    keys = frozenset(grader.key for grader in suite.graders if grader.type_name in MATCH_TYPES)
    return LeftOut(counter_examples(suite), frozenset(name for name in metrics if is_metric_of(name, keys)))


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
