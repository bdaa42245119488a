"""The configuration of a rubric grader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, ClassVar, Literal

from visioneval.graders.rubric.metrics import PassFail, RubricOptions, ScaleScore
from visioneval.graders.rubric.prompt import TAGS, VERDICT, VERDICTS, rubric_context, rubric_groups, rubric_schema
from visioneval.suite.cases.case import TestCase
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judge_prompt import (
    ASKED,
    REASON,
    SHOWN,
    JudgeTemplate,
    RecordedAnswer,
    is_text,
    is_texts,
    template_name,
)
from visioneval.suite.labels import LabelQuestion
from visioneval.types import Metric

_HOW = re.compile(r"[Hh]ow (?!many\b|much\b)(\w+) ([^.?!]+) (is|are)\.?")
"""One sentence about a quality. ``how many hands there are`` has another order of words as a question."""


class RubricGrader(BaseGrader, RubricOptions):
    """A judge's scores against a rubric."""

    sees_videos: ClassVar[bool] = True
    grades_records: ClassVar[bool] = True

    type: Literal["rubric"]

    @property
    def needs_no_bytes(self) -> bool:
        return self.zoom is None

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {name: metric.metric for name, metric in self.asked_about(case).items()}

    @property
    def version(self) -> str | None:
        """``"2"`` is how ties between votes are decided; without votes, nothing changed."""
        return "2" if self.votes > 1 else None

    @property
    def key_options(self) -> dict[str, Any]:
        shown = ("prompt", "criteria", "output") if self.show is None else {"parts": self.show}
        return {**super().key_options, "show": shown}

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        name = template_name(self.template, case, variables)
        shown = tuple(part for part in ASKED if part in self.parts)
        hidden = self.withheld
        return (JudgeTemplate(name, "template", shown, hidden=hidden, show=self.parts, can_hide_all=True),)

    def template_contexts(
        self, case: TestCase, prompt: str, *, variables: Mapping[str, Any]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        name = template_name(self.template, case, variables)
        for metrics in rubric_groups(self.asked_about(case), per_metric=self.per_metric):
            yield name, rubric_context(case, prompt, self, metrics, images=SHOWN, variables=variables)

    def judge_calls(self, times: int, cases: Sequence[TestCase], variables: Mapping[str, Any]) -> int:
        groups = [len(rubric_groups(self.asked_about(case), per_metric=self.per_metric)) for case in cases]
        return ceil(times * sum(groups) / max(1, len(groups))) * self.votes

    def recorded_answers(self, case: TestCase) -> Mapping[str, RecordedAnswer]:
        asked = self.asked_about(case)
        schemas = rubric_schema(asked, self.failure_tags)
        answers = {name: RecordedAnswer(metric.expected, metric.fits, schemas[name]) for name, metric in asked.items()}
        others = {
            REASON: RecordedAnswer("text", is_text, schemas[REASON], is_required=False),
            TAGS: RecordedAnswer("a list of tags", is_texts, schemas.get(TAGS), is_required=False),
            VERDICT: RecordedAnswer("PASS or FAIL", VERDICTS.__contains__, schemas[VERDICT], is_required=False),
        }
        return {**answers, **{name: answer for name, answer in others.items() if name in schemas}} if asked else {}

    @property
    def rounds_per_call(self) -> int:
        return 1 + (self.zoom.max_crops if self.zoom else 0)

    @property
    def rubric(self) -> Mapping[str, tuple[float, float] | None]:
        return {name: None if isinstance(metric, PassFail) else metric.scale for name, metric in self.asked.items()}

    @property
    def label_questions(self) -> Mapping[str, LabelQuestion]:
        return {name: _label_question(name, metric) for name, metric in self.asked.items()}


def _label_question(name: str, metric: PassFail | ScaleScore) -> LabelQuestion:
    """What people are asked about a metric. A scale has names for its ends: the judge's anchors, or worst and best."""
    ask, tasks = _ask(name, metric), metric.when.tasks if metric.when else ()
    if isinstance(metric, PassFail):
        return LabelQuestion(key=name, ask=ask, type="yes_no", metric=name, tasks=tasks)
    low, high = metric.scale
    ends = metric.anchor_at(low) or "worst", metric.anchor_at(high) or "best"
    return LabelQuestion(
        key=name, ask=ask, type="scale", scale=metric.scale, step=metric.step, ends=ends, metric=name, tasks=tasks
    )


def _ask(name: str, metric: PassFail | ScaleScore) -> str:
    """The description of a metric as a question: ``how clear it is`` as ``How clear is it?``."""
    text = metric.description.strip()
    if text.endswith("?"):
        return text
    if match := _HOW.fullmatch(text):
        return f"How {match[1]} {match[3]} {match[2]}?"
    if isinstance(metric, ScaleScore):
        return f"How would you rate {name.replace('_', ' ')}? {text}"
    first, _, rest = text.removesuffix(".").partition(". ")
    statement = first.removeprefix("Whether ").removeprefix("whether ")
    if not statement[1:2].isupper():  # not an abbreviation
        statement = statement[0].lower() + statement[1:]
    return f"Is this true: {statement}?" + (f" {rest}." if rest else "")
