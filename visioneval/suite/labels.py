"""What people are asked about the cells of a run, and what is an answer to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from visioneval.suite.case import Name, Text
from visioneval.suite.outputs import FilePath
from visioneval.types import Frozen, Metric, TaskType

QuestionType = Literal["yes_no", "one_of", "scale", "tags", "text"]
LabelPreset = Literal["ui", "marketing", "try_on", "logo"]
VERDICT = "verdict"
"""As the ``metric`` of a question: the cell's verdict, PASS being yes."""
WHY = ".why"
"""The free-text reason for the answer to a pair is kept as an answer to ``<key>.why``."""
LONGEST_TEXT = 10_000
MOST_STEPS = 100


class LabelQuestion(Frozen):
    """A question about one image."""

    key: Name
    ask: Text = Field(description="What the rater reads.")
    type: QuestionType
    choices: tuple[Annotated[Text, Field(max_length=200)], ...] = Field(default=(), description="Of one_of and tags.")
    scale: tuple[float, float] | None = Field(
        default=None, description="Both ends; whole numbers unless step says else."
    )
    step: Annotated[float, Field(gt=0)] = Field(default=1.0, description="Of a scale.")
    metric: Text | None = Field(
        default=None, description="The metric that measures the same, or 'verdict': 'agree' holds the two together."
    )

    tasks: tuple[TaskType, ...] = Field(default=(), description="Asked of cells of these tasks; of all where absent.")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        wants = self.type in ("one_of", "tags")
        if wants and len(self.choices) < (2 if self.type == "one_of" else 1):
            raise ValueError(f"a question of the type {self.type} needs 'choices'")
        if self.choices and not wants:
            raise ValueError(f"'choices' are for one_of and tags: the type is {self.type}")
        if len(set(self.choices)) < len(self.choices):
            twice = next(choice for choice in self.choices if self.choices.count(choice) > 1)
            raise ValueError(f"choices: {twice!r} stands here twice")
        return self

    @model_validator(mode="after")
    def _scale_has_steps(self) -> Self:
        if self.type != "scale":
            if self.scale is not None:
                raise ValueError(f"'scale' is for the type scale: the type is {self.type}")
            return self
        if self.scale is None:
            raise ValueError("a question of the type scale needs 'scale', such as [1, 5]")
        low, high = self.scale
        if low >= high:
            raise ValueError(f"scale: {low:g} is not below {high:g}")
        if (high - low) / self.step > MOST_STEPS:
            raise ValueError(f"a scale of over {MOST_STEPS} steps: choose a larger step")
        return self

    @model_validator(mode="after")
    def _can_be_measured(self) -> Self:
        if self.metric is not None and self.type not in ("yes_no", "scale"):
            raise ValueError(
                f"a grader's answer is a yes or a number: a question of the type {self.type} has no 'metric'"
            )
        return self

    @property
    def steps(self) -> tuple[int | float, ...]:
        """The steps of a scale, from its lower end; empty for other types."""
        if self.scale is None:
            return ()
        low, high = self.scale
        count = int((high - low) / self.step + 1e-9) + 1
        return tuple(_plain_number(low + at * self.step) for at in range(count))

    def misfit(self, answer: Any) -> str | None:
        """Why a value is no answer to this question; ``None`` where it is one. No answer at all always fits."""
        if answer is None:
            return None
        if self.type == "tags":
            return _unknown_tag(answer, self.choices)
        told = self._told(answer)
        return f"{answer!r:.60} is {told}" if told else None

    def _told(self, answer: Any) -> str | None:
        if self.type == "yes_no":
            return None if isinstance(answer, bool) else "neither yes nor no"
        if self.type == "scale":
            return None if _is_number(answer) and _near(answer, self.steps) else f"not on the scale {self._span}"
        if self.type == "one_of":
            return None if answer in self.choices else f"not one of {', '.join(self.choices)}"
        if not isinstance(answer, str) or not answer.strip():
            return "not a text"
        return None if len(answer) <= LONGEST_TEXT else f"longer than {LONGEST_TEXT:,} characters"

    @property
    def _span(self) -> str:
        low, high = self.steps[0], self.steps[-1]
        return f"from {low} to {high}" + ("" if self.step == 1 else f" by {self.step:g}")


class LabelPair(Frozen):
    """A question about two images of one case: the one, the other, or a tie, and why."""

    key: Name
    ask: Text = Field(description="What the rater reads.")


class Labels(Frozen):
    """What people are asked."""

    preset: LabelPreset | None = Field(
        default=None, description="A ready set of questions, to which own ones are added; one of the same key replaces."
    )
    questions: tuple[LabelQuestion, ...] = ()
    pairs: tuple[LabelPair, ...] = ()
    anchors: FilePath | None = Field(
        default=None, description="A file of agreed answers, in the form of labels.jsonl: they open each session."
    )

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if not self.questions and not self.pairs and self.preset is None:
            raise ValueError("labels: nothing is asked: give questions, pairs or a ready set")
        return self

    def question(self, key: str) -> LabelQuestion | None:
        """A question by its key."""
        return next((each for each in self.questions if each.key == key), None)


def metric_misfit(question: LabelQuestion, metric: Metric, rubric: tuple[float, float] | None) -> str | None:
    """Why a question and the metric that it names cannot be held together; ``None`` where they can.

    ``rubric`` is the metric's scale where it is a rubric's score.
    """
    if question.type == "yes_no":
        return None if metric.type == "bool" else f"{question.metric!r} is a number: ask with the type scale"
    if metric.type == "bool":
        return f"{question.metric!r} is a yes or no: ask with the type yes_no"
    if rubric is not None and question.scale is not None:
        (low, high), (least, most) = question.scale, rubric
        if low < least or high > most:
            return f"the scale from {low:g} to {high:g} leaves the rubric's, from {least:g} to {most:g}"
    return None


def _plain_number(value: float) -> int | float:
    rounded = round(value, 9)
    return int(rounded) if rounded.is_integer() else rounded


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _near(value: float, steps: Sequence[float]) -> bool:
    return any(abs(value - step) < 1e-6 for step in steps)


def _unknown_tag(answer: Any, choices: Sequence[str]) -> str | None:
    if isinstance(answer, str) or not isinstance(answer, Sequence):
        return f"{answer!r:.60} is not a list of tags"
    unknown = [tag for tag in answer if tag not in choices]
    if unknown:
        return f"{unknown[0]!r:.60} is not one of {', '.join(choices)}"
    return "a tag stands here twice" if len(set(answer)) < len(answer) else None
