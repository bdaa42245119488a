"""What the metrics of a run mean. Scores of two meanings cannot be compared, whatever their name is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from visioneval.expressions.parser import parse_expression
from visioneval.suite.metrics import SuiteMetrics
from visioneval.suite.model import Suite
from visioneval.types import Metric

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
