"""A computed metric of a suite, and the built-in metrics of every generated output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from visioneval.expressions.parser import Expression, parse_expression
from visioneval.types import Bound, Frozen, Metric

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


def _long_form(value: object) -> object:
    return {"expression": value} if isinstance(value, str) else value


MetricEntry = Annotated[ComputedMetric, BeforeValidator(_long_form, json_schema_input_type=str | ComputedMetric)]
