"""The options of a rubric, what its judge is asked, and its checks. Prompt and JSON Schema are both derived from the
metrics, so that they always agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from visioneval.graders.rubric.metrics import OneOf, RubricMetric, ScaleScore
from visioneval.suite.case import Name, TestCase, Text
from visioneval.suite.entries.graders import ShowingGrader, is_video
from visioneval.suite.entries.judges import LOOKED_UP, REASON, SHOWN, RecordedAnswer, is_text, is_texts
from visioneval.suite.labels import LabelQuestion
from visioneval.types import Frozen, Metric

if TYPE_CHECKING:
    from visioneval.suite.checks.rules import Problems, SuiteContext
    from visioneval.suite.model import Suite

VERDICT, TAGS = "verdict", "failure_tags"
VERDICTS = ("PASS", "FAIL")
Metrics = Mapping[str, RubricMetric]
_HOW = re.compile(r"[Hh]ow (?!many\b|much\b)(\w+) ([^.?!]+) (is|are)\.?")
"""One sentence about a quality. ``how many hands there are`` has another order of words as a question."""


class Zoom(Frozen):
    """Lets a judge request crops of the images."""

    max_crops: Annotated[int, Field(ge=1, le=50)] = Field(
        default=6, description="The most crops that a judge may ask for."
    )


class RubricGrader(ShowingGrader):
    """A judge's scores against a rubric."""

    model_config = ConfigDict(serialize_by_alias=True)
    grades_records: ClassVar[bool] = True
    needs_request: ClassVar[bool] = False

    type: Literal["rubric"]
    template: Text = Field(default="judge/rubric.md.j2", description=LOOKED_UP)
    asked: dict[Name, RubricMetric] = Field(
        alias="metrics", min_length=1, description="What to judge; each name is a metric that rules can use."
    )
    failure_tags: tuple[Name, ...] = Field(default=(), description="The failure tags that the judge may use.")
    votes: Annotated[int, Field(ge=1, le=25)] = Field(
        default=1,
        description="Number of times to ask, best odd; the score is the median, or the most frequent answer. The first "
        "vote decides a tie.",
    )
    per_metric: bool = Field(default=False, description="Use one call per metric.")
    zoom: Zoom | None = Field(default=None, description="Let the judge zoom into the images.")
    detail: Literal["low", "high", "auto"] | None = Field(default=None, description="Image resolution for the judge.")

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
