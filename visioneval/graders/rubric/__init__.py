"""The rubric grader, scores that a judge gives against declared metrics: the metrics, the options and the checks.

The judge's prompt and JSON Schema are both derived from the metrics, so that they always agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from visioneval.suite.case import Name, TestCase, Text
from visioneval.suite.entries.graders import YES, ShowingGrader, is_video
from visioneval.suite.entries.judges import LOOKED_UP, REASON, SHOWN, RecordedAnswer, is_text, is_texts
from visioneval.suite.filters import When
from visioneval.suite.labels import MAX_STEPS, LabelQuestion
from visioneval.types import MOST_CHOICES, Frozen, Metric, Word, repeated_word

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems, SuiteContext
    from visioneval.suite.model import Suite


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
        default_factory=dict, description='What a step or a range of steps means: {5: ..., "0-2": ...}.'
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
        max_length=MOST_CHOICES,
        description="The words that the judge chooses from, 2 to 100. They may not differ only in case, and have at "
        "most one kind of quotes. Answers of judges and raters are read in any case and Unicode form.",
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


VERDICT, TAGS = "verdict", "failure_tags"
VERDICTS = ("PASS", "FAIL")
Metrics = Mapping[str, RubricMetric]
_HOW = re.compile(r"[Hh]ow (?!many\b|much\b)(\w+) ([^.?!]+) (is|are)\.?")
"""One sentence about a quality. ``how many hands there are`` has another order of words as a question."""


class Zoom(Frozen):
    """Lets a judge request crops of the images."""

    max_crops: Annotated[int, Field(ge=1, le=50)] = Field(
        default=6, description="The most crops that a judge may ask for. Each has at most 1,024 pixels on a side."
    )


class RubricGrader(ShowingGrader):
    """A judge's scores, by metrics that you describe."""

    model_config = ConfigDict(serialize_by_alias=True)
    grades_records: ClassVar[bool] = True
    needs_request: ClassVar[bool] = False
    votes_in_own_words: ClassVar[bool] = True

    type: Literal["rubric"]
    template: Text = Field(default="judge/rubric.md.j2", description=LOOKED_UP)
    asked: dict[Name, RubricMetric] = Field(
        alias="metrics",
        min_length=1,
        description="The metrics that the judge answers, each under its own name.",
    )
    failure_tags: tuple[Name, ...] = Field(
        default=(),
        description="The failure tags that the judge may use; others are recorded in `details.undeclared_tags`.",
    )
    votes: Annotated[int, Field(ge=1, le=25)] = Field(
        default=1,
        description="Number of times to ask, best odd; the score is the majority, the most frequent word or the "
        "median.",
    )
    per_metric: bool = Field(
        default=False,
        description="`true`: one call, and one reason, for each metric and vote. Use it if scores that should differ "
        "move together, or if a metric agrees less with raters than alone: an unreadable reply then loses one metric.",
    )
    zoom: Zoom | None = Field(
        default=None, description="Let the judge ask for crops of any image, which are stored next to it."
    )
    detail: Literal["low", "high", "auto"] | None = Field(
        default=None, description="The resolution at which the judge sees images; for judges that have such a setting."
    )

    @model_validator(mode="after")
    def _no_name_is_taken(self) -> Self:
        if taken := {REASON, TAGS, VERDICT} & self.asked.keys():
            raise ValueError(f"metrics: the name {min(taken)!r} is reserved for the judge's answer")
        return self

    @property
    def needs_no_bytes(self) -> bool:
        return self.zoom is None

    def asked_about(self, case: TestCase) -> dict[str, RubricMetric]:
        """The metrics that are about a case."""
        return {
            name: metric
            for name, metric in self.asked.items()
            if metric.when is None or metric.when.fits(case.id, case.task_type, case.tags)
        }

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {name: metric.metric for name, metric in self.asked_about(case).items()}

    def groups(self, case: TestCase) -> list[Metrics]:
        """The metrics of a case, grouped by call."""
        asked = self.asked_about(case)
        return [{name: metric} for name, metric in asked.items()] if self.per_metric else [asked]

    def reply_schema(self, metrics: Metrics) -> dict[str, Any]:
        """The properties of a judge's reply about some metrics, in the order of ``reply_keys``."""
        meaning = "Your own judgement of the whole: PASS if it is usable as it is, otherwise FAIL."
        properties: dict[str, Any] = {
            REASON: {"type": "string"},
            TAGS: {"type": "array", "items": {"type": "string", "enum": list(self.failure_tags)}},
            VERDICT: {"type": "string", "enum": list(VERDICTS), "description": meaning},
            **{name: metric.answer for name, metric in metrics.items()},
        }
        return {key: properties[key] for key in reply_keys(metrics, self.failure_tags)}

    @property
    def version(self) -> str | None:
        """``"2"`` is how ties between votes are decided; without votes, nothing changed."""
        return "2" if self.votes > 1 else None

    @property
    def key_options(self) -> dict[str, Any]:
        shown = ("prompt", "criteria", "output") if self.show is None else {"parts": self.show}
        return {**super().key_options, "show": shown}

    def prompt_variables(
        self, case: TestCase, prompt: str, *, metrics: Metrics | None = None, **about: Any
    ) -> dict[str, Any]:
        metrics = self.asked_about(case) if metrics is None else metrics
        return super().prompt_variables(
            case,
            prompt,
            region=case.region,
            metrics={name: metric.described for name, metric in metrics.items()},
            failure_tags=list(self.failure_tags),
            zoom=self.zoom.model_dump() if self.zoom else None,
            keys=reply_keys(metrics, self.failure_tags),
            **about,
        )

    def template_contexts(
        self, case: TestCase, prompt: str, *, variables: Mapping[str, Any]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        name = self.template_of(case, variables)
        for metrics in self.groups(case):
            yield name, self.prompt_variables(case, prompt, metrics=metrics, images=SHOWN, variables=variables)

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int:
        groups = [len(self.groups(case)) for case in cases]
        return ceil(times * sum(groups) / max(1, len(groups))) * self.votes

    def recorded_answers(self, case: TestCase) -> Mapping[str, RecordedAnswer]:
        if not (asked := self.asked_about(case)):
            return {}
        schemas = self.reply_schema(asked)
        answers = {name: RecordedAnswer(metric.expected, metric.fits, schemas[name]) for name, metric in asked.items()}
        others = (
            (REASON, "text", is_text),
            (TAGS, "a list of tags", is_texts),
            (VERDICT, "PASS or FAIL", VERDICTS.__contains__),
        )
        return answers | {
            name: RecordedAnswer(expected, fits, schemas[name], is_required=False)
            for name, expected, fits in others
            if name in schemas
        }

    @property
    def rounds_per_call(self) -> int:
        return 1 + (self.zoom.max_crops if self.zoom else 0)

    @property
    def label_questions(self) -> Mapping[str, LabelQuestion]:
        return {name: _label_question(name, metric) for name, metric in self.asked.items()}


def reply_keys(metrics: Metrics, failure_tags: Sequence[str]) -> list[str]:
    """The keys of a judge's reply about some metrics: the reason first, so that it looks before it scores."""
    return [REASON, *metrics, *([TAGS] if failure_tags else []), VERDICT]


def _label_question(name: str, metric: RubricMetric) -> LabelQuestion:
    """What people are asked about a metric. A scale has names for its ends: the judge's anchors, or worst and best."""
    about: dict[str, Any] = {"key": name, "ask": _ask(name, metric), "metric": name}
    about["tasks"] = metric.when.tasks if metric.when else ()
    if isinstance(metric, OneOf):
        return LabelQuestion(type="one_of", choices=metric.choices, **about)
    if not isinstance(metric, ScaleScore):
        return LabelQuestion(type="yes_no", **about)
    low, high = metric.scale
    ends = metric.anchor_at(low) or "worst", metric.anchor_at(high) or "best"
    return LabelQuestion(type="scale", scale=metric.scale, step=metric.step, ends=ends, **about)


def _ask(name: str, metric: RubricMetric) -> str:
    """The description of a metric as a question: ``how clear it is`` as ``How clear is it?``."""
    text = metric.description.strip()
    if text.endswith("?"):
        return text
    if match := _HOW.fullmatch(text):
        return f"How {match[1]} {match[3]} {match[2]}?"
    if isinstance(metric, ScaleScore):
        return f"How would you rate {name.replace('_', ' ')}? {text}"
    if isinstance(metric, OneOf):
        return f"Which {name.replace('_', ' ')}? {text}"
    first, _, rest = text.removesuffix(".").partition(". ")
    statement = first.removeprefix("Whether ").removeprefix("whether ")
    if not statement[1:2].isupper():  # not an abbreviation
        statement = statement[0].lower() + statement[1:]
    return f"Is this true: {statement}?" + (f" {rest}." if rest else "")


def problems(suite: Suite, graders: Sequence[tuple[int, RubricGrader]]) -> Problems:
    """Yields a problem for each grader with ``zoom`` and a case with a video."""
    for index, grader in graders:
        videos = (case.id for case in suite.cases if is_video(case) and grader.zoom and grader.is_for(case))
        if name := next(videos, None):
            yield ("graders", index, "zoom"), f"zoom works on images only, but the case {name!r} is about a video"


def run_problems(view: SuiteContext, graders: Sequence[tuple[int, RubricGrader]]) -> Problems:
    """Yields a problem for each metric with a scope that matches no case."""
    from visioneval.suite.checks.rules import empty_scope  # which imports the model of a suite, and so these options

    for index, grader in graders:
        for name, metric in grader.asked.items():
            loc = ("graders", index, "metrics", name, "when")
            messages = list(empty_scope(view, metric.when)) if metric.when else []
            yield from ((loc, message) for message in messages)
            cases = (case for case in view.suite.cases if grader.is_for(case))
            if metric.when and not messages and not any(name in grader.metrics(case) for case in cases):
                yield loc, f"no case of the grader {grader.key!r} has the metric {name!r}: check its scope"


def warnings(_: Suite, graders: Sequence[tuple[int, RubricGrader]]) -> Problems:
    """Yields a warning for each even number of votes."""
    for index, grader in graders:
        if grader.votes % 2 == 0:
            has_words = any(isinstance(metric, OneOf) for metric in grader.asked.values())
            message = (
                f"{grader.votes} votes can be tied: the first vote then decides, or the mean of the two middle scores;"
                f" {grader.votes + 1} votes {'are tied more rarely' if has_words else 'cannot'}"
            )
            yield ("graders", index, "votes"), message
