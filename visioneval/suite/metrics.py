"""The metrics of a suite that no grader writes, computed or built in; what all metrics of a run mean; what decides.

Scores of two meanings cannot be compared, whatever their name is.

A counter-example is a case whose prompt does not match its image (``expect: {aligned: false}``). A low score of how
well image and prompt match is then the right answer. So a number over all cells leaves such scores out: a perfect
judge would get a mean of about one half. A scope that names cases, tags or tasks counts what it names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from pydantic import Field, field_validator

from visioneval.errors import did_you_mean
from visioneval.expressions import Kind, Node, for_case, kind_of, names_in, parse_expression
from visioneval.rules import can_fail, parse_gate, parse_rule
from visioneval.suite.case import TestCase
from visioneval.suite.entries.graders import options_of_type
from visioneval.suite.model import Suite
from visioneval.suite.questions import reachable
from visioneval.suite.rules import ComputedMetric, GateRule, VerdictRule
from visioneval.types import Metric

BUILT_IN: Mapping[str, Metric] = {
    "seconds": Metric(type="number", range=(0, None), better="lower"),
    "cost_usd": Metric(type="number", range=(0, None), better="lower"),
    "attempts": Metric(type="number", range=(0, None), better="lower"),
}
"""Metrics of every generated output, about its generation. A run records those that its suite reads.

- ``seconds``: The duration of all attempts, without waits for limits and retries. Images of one call share it evenly.
- ``cost_usd``: The cost, shared in the same way; ``null`` if the price is unknown.
- ``attempts``: Calls started, also failed ones.
"""


@dataclass(frozen=True, slots=True)
class Formula:
    """A computed metric for the cells of a case, whose tags are already replaced in its tree."""

    name: str
    metric: Metric
    tree: Node

    @property
    def reads(self) -> tuple[str, ...]:
        """The metrics that it reads, in order."""
        return tuple(dict.fromkeys(names_in(self.tree)))


@dataclass(frozen=True, slots=True)
class CaseMetrics:
    """What the cells of a case have in addition to their graders' metrics."""

    built_in: tuple[str, ...] = ()
    formulas: tuple[Formula, ...] = ()
    """In an order in which each reads only earlier ones."""
    key: tuple[object, ...] = ()
    """What these metrics depend on, for the grading key; empty without any."""

    @property
    def metrics(self) -> dict[str, Metric]:
        """Every such metric of the cells."""
        return {name: BUILT_IN[name] for name in self.built_in} | {each.name: each.metric for each in self.formulas}


class SuiteMetrics:
    """The built-in and computed metrics of a suite. Leaves out computed metrics with problems."""

    def __init__(self, suite: Suite, selected: Suite | None = None) -> None:
        """Takes a whole suite, and what a selection left of it.

        The whole suite defines the metrics, so that those of a cell do not depend on what else is selected.
        """
        self._suite = suite
        self._selected = suite if selected is None else selected
        self._entries = suite.metrics

    @cached_property
    def grader_metrics(self) -> dict[str, Metric]:
        """Every metric that a grader writes for some case, in the graders' order."""
        return _written_metrics(self._suite)

    @cached_property
    def _suite_reads(self) -> frozenset[str]:
        """The metrics that the rules of the suite, its gates, computed metrics and label questions read."""
        suite = self._suite
        return frozenset(
            {
                *(parse_rule(rule.rule).metric for rule in suite.verdict),
                *(parse_gate(gate.rule).metric or "" for gate in suite.gates),
                *(name for entry in self._entries.values() for name in entry.parsed.names),
                *(name for question in (suite.labels.questions if suite.labels else ()) for name in question.metrics),
            }
        )

    def _built_in(self, cases: Iterable[TestCase]) -> tuple[str, ...]:
        """The built-in metrics that the suite or a rule of these cases reads."""
        read = {parse_rule(rule.rule).metric for case in cases for rule in case.verdict or ()} | self._suite_reads
        return tuple(name for name in BUILT_IN if name in read)

    @cached_property
    def all(self) -> dict[str, Metric]:
        """Every metric of any selected case: the graders', the built-in ones that are read, and the computed ones."""
        built_in = {name: BUILT_IN[name] for name in self._built_in(self._selected.cases)}
        computed = {name: metric for name, metric in self._resolved[0].items() if name in self._applying}
        return _written_metrics(self._selected) | built_in | computed

    @cached_property
    def _applying(self) -> set[str]:
        """The computed metrics that apply to any case."""
        applying: set[str] = set()
        for case in self._selected.cases if self._entries else ():
            if applying.issuperset(self._resolved[0]):
                break
            applying.update(formula.name for formula in self.for_case(case).formulas)
        return applying

    def of_case(self, case: TestCase) -> dict[str, Metric]:
        """Every metric of the cells of a case, in the order of ``all``."""
        return self._written(case) | self.for_case(case).metrics

    def _written(self, case: TestCase) -> dict[str, Metric]:
        graders = (grader for grader in self._selected.graders if grader.is_for(case))
        return {name: metric for grader in graders for name, metric in grader.metrics(case).items()}

    @property
    def problems(self) -> list[tuple[str, str]]:
        """What is wrong with computed metrics: the name of each, and a message."""
        return self._resolved[1]

    @cached_property
    def _resolved(self) -> tuple[dict[str, Metric], list[tuple[str, str]]]:
        """The valid computed metrics, in the suite's order, and the problems of the others."""
        resolved: dict[str, Metric] = {}
        problems: list[tuple[str, str]] = []
        metrics = {**BUILT_IN, **self.grader_metrics}
        kinds: dict[str, Kind] = {name: metric.type for name, metric in metrics.items()}
        waiting = dict(self._entries)
        while ready := [name for name, entry in waiting.items() if set(entry.parsed.names) <= kinds.keys()]:
            for name in ready:
                entry = waiting.pop(name)
                try:
                    kinds[name] = _kind(entry, kinds)
                except ValueError as error:
                    problems.append((name, str(error)))
                    kinds[name] = "number"
                else:
                    resolved[name] = Metric(type=kinds[name], range=entry.range, better=entry.better)
        for name, entry in waiting.items():
            word = next((source for source in entry.parsed.names if kinds.get(source) == "one_of"), None)
            if word is not None:
                problems.append((name, f"{word!r} is one word of a list, which only verdict rules can read"))
                continue
            unknown = [source for source in entry.parsed.names if source not in {*kinds, *waiting}]
            problems += [(name, f"there is no metric {source!r}{self._hint(source)}") for source in unknown]
            reads = {other: self._entries[other].parsed.names for other in waiting}
            if name in reachable(name, reads):
                problems.append((name, _cycle(name, reads)))
        return {name: resolved[name] for name in self._entries if name in resolved}, problems

    def _hint(self, unknown: str) -> str:
        """What an unknown metric may be: a part of a name with dashes, or a misspelled name."""
        names = {*self.grader_metrics, *self._entries, *BUILT_IN}
        quoted = next((name for name in sorted(names) if name.startswith(f"{unknown}-")), None)
        return f": put {quoted!r} in quotes, as '-' subtracts" if quoted else did_you_mean(unknown, names)

    def sources(self, name: str) -> frozenset[str]:
        """A metric and everything that it reads, directly or not."""
        return frozenset({name, *reachable(name, {key: entry.parsed.names for key, entry in self._entries.items()})})

    def grader_sources(self) -> dict[str, tuple[str, ...]]:
        """By computed metric: the graders' metrics that it reads, directly or not."""
        written = self.grader_metrics
        return {name: tuple(source for source in written if source in self.sources(name)) for name in self._entries}

    def for_case(self, case: TestCase) -> CaseMetrics:
        """The built-in and computed metrics of a case's cells. One is computed if the case has all that it reads."""
        built_in = self._built_in([case])
        if not self._entries and not built_in:
            return CaseMetrics()
        available = {*self._written(case), *built_in}
        formulas: list[Formula] = []
        waiting = [name for name in self._entries if name in self._resolved[0]]
        trees = {name: for_case(self._entries[name].parsed.tree, case.tags) for name in waiting}
        while ready := [name for name in waiting if available.issuperset(names_in(trees[name]))]:
            formulas += [Formula(name, self._resolved[0][name], trees[name]) for name in ready]
            available.update(ready)
            waiting = [name for name in waiting if name not in available]
        key = (
            *built_in,
            *([each.name, self._entries[each.name].expression, each.metric.range] for each in formulas),
        )
        return CaseMetrics(built_in, tuple(formulas), key)


def _written_metrics(suite: Suite) -> dict[str, Metric]:
    graders = ((grader, case) for grader in suite.graders for case in suite.cases if grader.is_for(case))
    return {name: metric for grader, case in graders for name, metric in grader.metrics(case).items()}


def _kind(entry: ComputedMetric, kinds: Mapping[str, Kind]) -> Kind:
    kind = kind_of(entry.parsed.tree, kinds)
    if kind == "bool" and entry.range is not None:
        raise ValueError("the expression gives yes or no, which has no range: remove 'range'")
    return kind


def _cycle(name: str, reads: Mapping[str, Iterable[str]]) -> str:
    """Describes the cycle that a computed metric is in."""
    path = [name]
    while True:
        path.append(next(n for n in reads[path[-1]] if name in {n, *reachable(n, reads)}))
        if path[-1] == name or len(path) > len(reads):
            return f"the metric reads itself: {' -> '.join(path)}"


_BETTER = {"higher": "higher is better", "lower": "lower is better", "none": "neither is better"}


class Definition(Metric):
    """A metric, and how its values come about."""

    step: float | None = Field(default=None, exclude_if=lambda step: step is None)
    """The step of a judge's scale, if it is not 1."""
    expression: str | None = Field(default=None, exclude_if=lambda text: text is None)
    """What a computed metric is computed from."""

    @field_validator("expression")
    @classmethod
    def _parses(cls, text: str | None) -> str | None:
        return None if text is None else parse_expression(text).text


class Meaning(Definition):
    """All that the values of a metric mean."""

    reads: dict[str, Definition] = Field(default_factory=dict, exclude_if=lambda reads: not reads)
    """The metrics that its expression reads, directly or not."""


@dataclass(frozen=True, slots=True)
class ChangedMeaning:
    """A metric that means something else in B than in A, with both meanings in words."""

    metric: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.metric} means another thing in B: A: {self.a}; B: {self.b}"


def meanings_of(metrics: Mapping[str, Metric], suite: Suite) -> dict[str, Meaning]:
    """The meanings of the metrics of a run of a suite, in their order."""
    steps = {
        name: question.step
        for grader in suite.graders
        for name, question in grader.label_questions.items()
        if question.type == "scale" and question.step != 1
    }
    definitions: dict[str, dict[str, Any]] = {}
    for name, metric in metrics.items():
        entry = suite.metrics.get(name)
        how = {"step": steps.get(name)} if entry is None else {"expression": entry.expression}
        definitions[name] = {**dict(metric), **how}
    sources = SuiteMetrics(suite).sources if suite.metrics else frozenset
    return {
        name: Meaning(
            **definition,
            reads={source: Definition(**definitions[source]) for source in metrics if source in sources(name) - {name}},
        )
        for name, definition in definitions.items()
    }


def same_meaning(a: Metric, b: Metric) -> bool:
    """Whether values of two metrics can be compared. Spaces in an expression mean nothing."""
    return _values(a) == _values(b) and not _changed_inputs(a, b)


def _values(metric: Metric) -> dict[str, Any]:
    """Its own fields, without those that are not set, so that metrics of two classes can be compared."""
    values = {name: value for name, value in metric if value is not None and name != "reads"}
    values["choices"] = frozenset(metric.choices)  # in any order
    if "expression" in values:
        values["expression"] = parse_expression(values["expression"]).tree
    return values


def _changed_inputs(a: Metric, b: Metric) -> list[str]:
    """The metrics that both read and that mean two things. Narrowed runs may lack some that no case of them has."""
    first, second = (metric.reads if isinstance(metric, Meaning) else {} for metric in (a, b))
    return [name for name in first if name in second and _values(first[name]) != _values(second[name])]


def tags_read(metric: Metric) -> frozenset[str]:
    """The tags of a case that the values of a metric depend on."""
    definitions = (metric, *metric.reads.values()) if isinstance(metric, Meaning) else ()
    expressions = (item.expression for item in definitions if isinstance(item, Definition) and item.expression)
    return frozenset(tag for text in expressions for tag in parse_expression(text).tags)


def describe_meaning(metric: Metric, other: Metric | None = None) -> str:
    """A metric in words, such as ``number from 0 to 5, higher is better``.

    Of the metrics that its expression reads, those are described that mean something else in ``other``.
    """
    reads = metric.reads if isinstance(metric, Meaning) else {}
    inputs = reads if other is None else _changed_inputs(metric, other)
    return "; ".join((", ".join(_words(metric)), *(f"{name} is {', '.join(_words(reads[name]))}" for name in inputs)))


def _words(metric: Metric) -> Iterator[str]:
    if metric.type == "bool":
        yield "yes or no"
    elif metric.type == "one_of":
        yield f"one of {', '.join(metric.choices)}"
        return
    else:
        low, high = metric.range or (None, None)
        span = "" if low is None else f" of {low:g} or more" if high is None else f" from {low:g} to {high:g}"
        unit = f" in {metric.unit}" if metric.unit else ""
        step = f" in steps of {metric.step:g}" if isinstance(metric, Definition) and metric.step else ""
        yield f"number{span}{unit}{step}"
    yield _BETTER[metric.better]
    if isinstance(metric, Definition) and metric.expression is not None:
        yield f"computed as {metric.expression}"


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
    return frozenset(grader.key for grader in graders if options_of_type(grader.type).scores_match)


def is_metric_of(name: str, keys: Collection[str]) -> bool:
    """Whether a metric is that of one of these graders, or of one of its types, such as ``gecko.counting``."""
    return name in keys or name.partition(".")[0] in keys


@dataclass(frozen=True, slots=True)
class LeftOutScores:
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


def left_out(suite: Suite, metrics: Iterable[str]) -> LeftOutScores:
    """What numbers over all cells leave out of these metrics of a suite."""
    keys = frozenset(grader.key for grader in suite.graders if grader.scores_match)
    return LeftOutScores(counter_examples(suite), frozenset(name for name in metrics if is_metric_of(name, keys)))


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
        for entry in self._suite.verdict if case.verdict is None else case.verdict:
            rule = parse_rule(entry.rule)
            if entry.level == "fail" and rule.metric in metrics and can_fail(rule, metrics[rule.metric]):
                yield entry
