"""Which cases and model runs a grader, rule or gate applies to. Also rules, gates, computed metrics and ids of turns.

A case with ``turns`` becomes a chain of cases, ``CASE/1``, ``CASE/2`` and so on. Each turn after the first edits the
output of the turn before, of the same model run and sample. No other id has a slash, so an id tells whether its case is
a turn, and of which chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from visioneval.errors import UsageError, did_you_mean
from visioneval.expressions import Expression, parse_expression
from visioneval.rules import WEIGHTABLE, parse_gate, parse_rule
from visioneval.types import Bound, Frozen, Metric, TaskType

MAX_TURNS = 99
CASE_ID = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""The pattern of an id that a suite may write."""
TURN = r"/[1-9][0-9]?"
"""The pattern of what follows it in the id of a turn."""


def turn_id(chain: str, number: int) -> str:
    """The id of a turn, counted from 1."""
    return f"{chain}/{number}"


def chain_of(case_id: str) -> str:
    """The id of the case with these turns; that of a case which is no turn is its own."""
    return case_id.partition("/")[0]


def previous_turn(case_id: str) -> str | None:
    """The id of the turn before; ``None`` for a first turn, and for a case that is no turn."""
    chain, _, number = case_id.partition("/")
    return turn_id(chain, int(number) - 1) if number and number != "1" else None


def first_turn(case_id: str) -> str:
    """The id of the first turn of a chain; that of a case which is no turn is its own."""
    chain, slash, _ = case_id.partition("/")
    return turn_id(chain, 1) if slash else case_id


def any_glob(patterns: Iterable[str], text: str) -> bool:
    """Whether ``text`` equals or matches one of the patterns. Brackets are literal, since labels contain them."""
    plain, globs = _split_patterns(tuple(patterns))
    return text in plain or any(fnmatchcase(text, glob) for glob in globs)


def any_case(patterns: Iterable[str], case_id: str) -> bool:
    """Whether one of the patterns is for a case: for its id or, if it is a turn, that of its whole case."""
    patterns = tuple(patterns)
    return any_glob(patterns, case_id) or ("/" in case_id and any_glob(patterns, chain_of(case_id)))


def check_matches(where: str, *filters: tuple[str, Iterable[str], Iterable[str]]) -> None:
    """Raises ``UsageError`` for a pattern that matches nothing. ``filters`` are flags, their patterns, and names."""
    for flag, patterns, names in filters:
        for pattern in patterns:
            if not any(any_glob((pattern,), name) for name in names):
                raise UsageError(f"{flag} {pattern!r}: no match in {where}{did_you_mean(pattern, names)}")


@lru_cache(maxsize=256)
def _split_patterns(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """The patterns as a set, and those that are globs. Cached, since a scope may list thousands of ids."""
    globs = tuple(p.replace("[", "[[]") for p in patterns if "*" in p or "?" in p)
    return frozenset(patterns), globs


class When(Frozen):
    """The cases that something applies to. Every list that is set must match."""

    tasks: tuple[TaskType, ...] = Field(default=(), description="Only cases with one of these tasks.")
    tags: tuple[str, ...] = Field(default=(), description="Cases with any of these tags.")
    cases: tuple[str, ...] = Field(default=(), description="Case IDs or globs.")

    def fits(self, case_id: str, task: TaskType, tags: Iterable[str]) -> bool:
        """Whether a case is in the scope."""
        return (
            (not self.tasks or task in self.tasks)
            and (not self.tags or not set(self.tags).isdisjoint(tags))
            and (not self.cases or any_case(self.cases, case_id))
        )


class Scope(When):
    """The cells that something applies to."""

    models: tuple[str, ...] = Field(default=(), description="Labels of model runs or globs.")

    def covers(self, case_id: str, task: TaskType, tags: Iterable[str], label: str) -> bool:
        """Whether a cell is in the scope."""
        return self.fits(case_id, task, tags) and (not self.models or any_glob(self.models, label))

    @property
    def is_unrestricted(self) -> bool:
        """Whether it includes every cell."""
        return not (self.tasks or self.tags or self.cases or self.models)

    def has_scope_of(self, other: Scope) -> bool:
        """Whether it applies to the same cells as another scope, by the same names."""
        return all(set(getattr(self, name)) == set(getattr(other, name)) for name in Scope.model_fields)


class VerdictRule(Scope):
    """A rule over the scores of a cell. YAML also accepts a plain string."""

    rule: str = Field(description="metric, not metric, or metric OP number.")
    level: Literal["fail", "warn"] = Field(
        default="fail", description="fail: a cell that breaks it fails; warn: it is only counted."
    )

    @field_validator("rule")
    @classmethod
    def _parses(cls, text: str) -> str:
        return parse_rule(text).text


Weight = Annotated[float, Field(gt=0, le=1e6)]


class GateRule(Scope):
    """A rule over the whole run. YAML also accepts a plain string."""

    rule: str = Field(description="FN OP number, such as pass_rate >= 0.9 or mean(metric) >= 3.")
    weights: dict[str, Weight] | None = Field(
        default=None,
        description="Weights by tag: the value is the weighted mean of the tags' values, however many cases each has.",
    )
    decide: Literal["value", "bound"] = Field(
        default="value",
        description="bound: the gate passes only if the bound of the value's 95 % interval does; the run exits 3 if"
        " only the value does.",
    )

    @field_validator("rule")
    @classmethod
    def _parses(cls, text: str) -> str:
        return parse_gate(text).text

    @model_validator(mode="after")
    def _has_bound(self) -> GateRule:
        if self.decide == "bound" and not parse_gate(self.rule).has_side:
            raise ValueError(f"{self.rule!r} has no bound to decide by: write >=, >, <= or <, or leave out 'decide'")
        return self

    @model_validator(mode="after")
    def _can_be_weighted(self) -> GateRule:
        if self.weights is not None and parse_gate(self.rule).fn not in WEIGHTABLE:
            raise ValueError(f"{self.rule!r} takes no 'weights': only {', '.join(WEIGHTABLE)} do")
        if self.weights is not None and len(self.weights) < 2:
            raise ValueError("weights: name at least two tags")
        return self


def _long_form(key: str, value: Any) -> Any:
    return {key: value} if isinstance(value, str) else value


_as_rule, _as_metric = partial(_long_form, "rule"), partial(_long_form, "expression")
RuleEntry = Annotated[VerdictRule, BeforeValidator(_as_rule, json_schema_input_type=str | VerdictRule)]
GateEntry = Annotated[GateRule, BeforeValidator(_as_rule, json_schema_input_type=str | GateRule)]


BUILT_IN: Mapping[str, Metric] = {
    "seconds": Metric(type="number", range=(0, None), better="lower"),
    "cost_usd": Metric(type="number", range=(0, None), better="lower"),
    "attempts": Metric(type="number", range=(0, None), better="lower"),
}
"""Metrics of every generated output, about its generation. A run records those that its suite reads."""
RESERVED_NAMES = ("verdict", "pass_rate")
"""Names with a meaning of their own where a metric is named."""


class ComputedMetric(Frozen):
    """A metric that is computed from the other scores of a cell. YAML also accepts the plain expression."""

    expression: str = Field(description="A formula over metrics, such as `sqrt(quality * min(text, likeness))`.")
    range: tuple[Bound, Bound | None] | None = Field(
        default=None, description="The inclusive range of a number; `null` as the second value is no upper limit."
    )
    better: Literal["higher", "lower", "none"] = Field(
        default="higher", description="Which values are better; none for a value that is neither."
    )

    @field_validator("expression")
    @classmethod
    def _parses(cls, text: str) -> str:
        return parse_expression(text).text

    @model_validator(mode="after")
    def _range_is_not_empty(self) -> ComputedMetric:
        low, high = self.range or (None, None)
        if low is not None and high is not None and low >= high:
            raise ValueError(f"range: {low:g} is not below {high:g}")
        return self

    @property
    def parsed(self) -> Expression:
        """The parsed expression."""
        return parse_expression(self.expression)


MetricEntry = Annotated[ComputedMetric, BeforeValidator(_as_metric, json_schema_input_type=str | ComputedMetric)]
