"""A rubric's metrics. The judge's prompt and JSON Schema are both derived from them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from visioneval.suite.case import Text
from visioneval.suite.entries.graders import YES
from visioneval.suite.filters import When
from visioneval.suite.labels import MAX_STEPS
from visioneval.types import MOST_CHOICES, Frozen, Metric, Word, repeated_word

_SPAN = re.compile(r"(-?\d+(?:\.\d+)?)(?:\s*-\s*(\d+(?:\.\d+)?))?")


class _CaseMetric(Frozen):
    """A metric that may be only about some cases."""

    when: When | None = Field(
        default=None,
        exclude_if=lambda when: when is None,  # so that the hash of a rubric without it stays the same
        description="The cases that it applies to; default: all cases of the grader.",
    )

    @property
    def described(self) -> dict[str, Any]:
        """What the judge's template knows of it."""
        return self.model_dump(exclude={"when"})


class PassFail(_CaseMetric):
    """A yes or no."""

    type: Literal["pass_fail"]
    description: Text = Field(description="What the judge answers with yes or no.")
    pass_if: tuple[Text, ...] = Field(default=(), description="What must be true for a yes.")
    fail_if: tuple[Text, ...] = Field(default=(), description="What makes it a no.")

    @property
    def metric(self) -> Metric:
        """The type and range of the score."""
        return YES

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON Schema of the judge's answer."""
        return {"type": "boolean"}

    @property
    def expected(self) -> str:
        """The answer in words."""
        return "yes or no"

    def fits(self, value: Any) -> bool:
        """Whether a judge's answer is on the scale."""
        return isinstance(value, bool)


class ScaleScore(_CaseMetric):
    """A number on a scale; anchors describe its steps. Only whole numbers unless ``step`` says otherwise."""

    type: Literal["score"]
    scale: tuple[float, float] = Field(description="The lowest and the highest score.")
    step: Annotated[float, Field(gt=0)] = Field(
        default=1.0, description="Scores are multiples of this above the lowest one."
    )
    description: Text = Field(description="What the judge scores.")
    anchors: dict[str, Text] = Field(
        default_factory=dict, description='A step or a range of steps: {5: ..., "0-2": ...}'
    )

    @field_validator("anchors", mode="before")
    @classmethod
    def _numbers_are_keys(cls, value: Any) -> Any:
        return {str(key): text for key, text in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _anchors_are_on_the_scale(self) -> Self:
        low, high = self.scale
        if low >= high:
            raise ValueError(f"scale: {low:g} is not below {high:g}")
        if (high - low) / self.step > MAX_STEPS:
            raise ValueError(f"a scale of over {MAX_STEPS} steps: choose a larger step")
        for anchor in self.anchors:
            ends = _span(anchor)
            if not ends or not all(self.fits(end) for end in ends):
                raise ValueError(f"anchors: {anchor!r} is not on the scale from {low:g} to {high:g} by {self.step:g}")
        return self

    def anchor_at(self, score: float) -> str | None:
        """What a score means, if an anchor says so."""
        return next((text for key, text in self.anchors.items() if min(_span(key)) <= score <= max(_span(key))), None)

    @property
    def metric(self) -> Metric:
        """The type and range of the score."""
        return _number_on(self.scale)

    @property
    def described(self) -> dict[str, Any]:
        low, high = self.scale
        return {**super().described, "low": f"{low:g}", "high": f"{high:g}", "step": f"{self.step:g}"}

    @property
    def whole(self) -> bool:
        """Whether every step is a whole number."""
        return self.step.is_integer() and self.scale[0].is_integer()

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON Schema of the judge's answer: an enum if there are few steps."""
        low, high = self.scale
        count = round((high - low) / self.step) + 1
        if self.whole and count <= 21:
            return {"type": "integer", "enum": [int(low + index * self.step) for index in range(count)]}
        kind = "integer" if self.whole else "number"
        return {"type": kind, "minimum": low, "maximum": high}

    @property
    def expected(self) -> str:
        """The answer in words."""
        low, high = self.scale
        step = "" if self.whole and self.step == 1 else f" in steps of {self.step:g}"
        return f"a {'whole ' if self.whole else ''}number from {low:g} to {high:g}{step}"

    def fits(self, value: Any) -> bool:
        """Whether a judge's answer is on the scale, and on one of its steps."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        low, high = self.scale
        if not low <= value <= high or (self.whole and value != int(value)):
            return False
        steps = (value - low) / self.step
        return abs(steps - round(steps)) < 1e-6


def _span(anchor: str) -> list[float]:
    """The score, or the first and the last score, that an anchor is about; empty if it is not a number."""
    match = _SPAN.fullmatch(anchor.strip())
    return [float(end) for end in match.groups() if end is not None] if match else []


@lru_cache(maxsize=256)
def _number_on(scale: tuple[float, float]) -> Metric:
    return Metric(type="number", range=scale, better="higher")


class OneOf(_CaseMetric):
    """One word of a list."""

    type: Literal["one_of"]
    choices: tuple[Word, ...] = Field(
        max_length=MOST_CHOICES, description="The words that the judge chooses from, 2 to 100."
    )
    description: Text = Field(description="What the judge answers with one of the choices.")

    @model_validator(mode="after")
    def _choices_differ(self) -> Self:
        if len(self.choices) < 2:
            raise ValueError("a metric of type one_of needs 'choices', two or more words")
        if (duplicate := repeated_word(self.choices)) is not None:
            raise ValueError(f"choices: {duplicate!r} is listed twice: answers are read in any case")
        return self

    @property
    def metric(self) -> Metric:
        """The type and the choices of the score."""
        return Metric(type="one_of", choices=self.choices)

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON Schema of the judge's answer."""
        return {"type": "string", "enum": list(self.choices)}

    @property
    def expected(self) -> str:
        """The answer in words."""
        return f"one of {', '.join(self.choices)}"

    def fits(self, value: Any) -> bool:
        """Whether a judge's answer is one of the choices."""
        return isinstance(value, str) and value in self.choices


RubricMetric = Annotated[PassFail | ScaleScore | OneOf, Field(discriminator="type")]
