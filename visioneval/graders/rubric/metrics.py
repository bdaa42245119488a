"""A rubric's metrics. The judge's prompt and JSON Schema are both derived from them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from visioneval.suite.cases.case import Name, TestCase, Text
from visioneval.suite.cases.outputs import FrameCount
from visioneval.suite.entries.graders import YES
from visioneval.suite.entries.judge_prompt import JudgeNames, PanelOptions, ShowOptions
from visioneval.suite.filters import When
from visioneval.suite.labels import MAX_STEPS
from visioneval.types import Frozen, Metric

_SPAN = re.compile(r"(-?\d+(?:\.\d+)?)(?:\s*-\s*(\d+(?:\.\d+)?))?")


class _CaseMetric(Frozen):
    """A metric that may be only about some cases."""

    when: When | None = Field(
        default=None,
        exclude_if=lambda when: when is None,  # so that the hash of a rubric without it stays the same
        description="The cases that it applies to; default: all cases of the grader.",
    )


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


RubricMetric = Annotated[PassFail | ScaleScore, Field(discriminator="type")]


class Zoom(Frozen):
    """Lets a judge request crops of the images."""

    max_crops: Annotated[int, Field(ge=1, le=50)] = Field(
        default=6, description="The most crops that a judge may ask for."
    )


class RubricOptions(PanelOptions, ShowOptions):
    """The options of a rubric."""

    model_config = ConfigDict(serialize_by_alias=True)
    needs_request: ClassVar[bool] = False

    judge: JudgeNames = Field(default="default", description="The judge that answers, or a list of judges for a panel.")
    template: Text = Field(
        default="judge/rubric.md.j2", description="Looked up in the suite's folder, then among the built-in templates."
    )
    asked: dict[Name, RubricMetric] = Field(
        alias="metrics", min_length=1, description="What to judge; each name is a metric that rules can use."
    )
    failure_tags: tuple[Name, ...] = Field(default=(), description="The failure tags that the judge may use.")
    votes: Annotated[int, Field(ge=1, le=25)] = Field(
        default=1,
        description="Number of times to ask, best odd; the score is the median, or the majority. The first vote "
        "decides a tie.",
    )
    per_metric: bool = Field(default=False, description="Use one call per metric.")
    zoom: Zoom | None = Field(default=None, description="Let the judge zoom into the images.")
    detail: Literal["low", "high", "auto"] | None = Field(default=None, description="Image resolution for the judge.")
    frames: FrameCount = 8

    def asked_about(self, case: TestCase) -> dict[str, RubricMetric]:
        """The metrics that are about a case."""
        return {
            name: metric
            for name, metric in self.asked.items()
            if metric.when is None or metric.when.fits(case.id, case.task_type, case.tags)
        }

    @model_validator(mode="after")
    def _no_name_is_taken(self) -> Self:
        taken = {"reason", "failure_tags", "verdict"} & self.asked.keys()
        if taken:
            raise ValueError(f"metrics: the name {min(taken)!r} is reserved for the judge's answer")
        return self
