"""What a suite decides by: rules over a cell, gates over the run, and the metrics that it computes for both."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from visioneval.expressions import Expression, parse_expression
from visioneval.rules import WEIGHTABLE, parse_gate, parse_rule
from visioneval.suite.filters import Scope
from visioneval.types import Bound, Frozen


class VerdictRule(Scope):
    """A rule over the scores of a cell. YAML also accepts a plain string."""

    rule: str = Field(
        description="`METRIC` or `not METRIC`, of a yes-or-no metric; `METRIC OP NUMBER`, with `>=`, `>`, `<=`, `<`, "
        '`==` or `!=`; `METRIC == "WORD"`, `!=`, `in ["WORD", "WORD"]` or `not in [...]`, of one word of a list.'
    )
    level: Literal["fail", "warn"] = Field(
        default="fail",
        description="`fail`: a cell that breaks it fails; `warn`: the rule is reported and never changes a verdict.",
    )

    @field_validator("rule")
    @classmethod
    def _parses(cls, text: str) -> str:
        return parse_rule(text).text


Weight = Annotated[float, Field(gt=0, le=1e6)]


class GateRule(Scope):
    """A rule over the whole run. YAML also accepts a plain string."""

    rule: str = Field(description="`FN OP NUMBER`, such as `pass_rate >= 0.9` or `mean(design) >= 3`.")
    weights: dict[str, Weight] | None = Field(
        default=None,
        description="Weights by tag, for `pass_rate`, `mean` and `rate`: the value is the weighted mean of the values "
        "of these tags, however many cases each has. Other cells do not count, and a case may have only one of the "
        "tags.",
    )
    decide: Literal["value", "bound"] = Field(
        default="value",
        description="`bound`: the gate passes only if the bound of the 95 % interval passes. If only the value passes,"
        " the gate cannot tell and the run exits 3.",
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


class ComputedMetric(Frozen):
    """A metric that is computed from the other scores of a cell. YAML also accepts the plain expression."""

    expression: str = Field(
        description="The formula, of at most 1,000 characters. A metric that is text alone is its expression."
    )
    range: tuple[Bound, Bound | None] | None = Field(
        default=None,
        description="The inclusive range of a number, such as `[0, 10]` or `[0, null]`. A value outside it is `null`, "
        "and intervals stay within it.",
    )
    better: Literal["higher", "lower", "none"] = Field(
        default="higher", description="Which values are better, for comparisons; `none`: neither."
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


def _long_form(key: str, value: Any) -> Any:
    return {key: value} if isinstance(value, str) else value


_as_rule, _as_metric = partial(_long_form, "rule"), partial(_long_form, "expression")
RuleEntry = Annotated[VerdictRule, BeforeValidator(_as_rule, json_schema_input_type=str | VerdictRule)]
GateEntry = Annotated[GateRule, BeforeValidator(_as_rule, json_schema_input_type=str | GateRule)]
MetricEntry = Annotated[ComputedMetric, BeforeValidator(_as_metric, json_schema_input_type=str | ComputedMetric)]
