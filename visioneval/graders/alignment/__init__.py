"""The alignment grader, the share of a prompt that an output meets: its options, and what a judge's reply must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import TestCase, Text
from visioneval.suite.entries.graders import ShowingGrader
from visioneval.suite.entries.judges import LOOKED_UP, JudgeTemplate, RecordedAnswer
from visioneval.types import Metric

REQUIREMENTS, JUDGE_SCORE = "requirements", "score"
MAX_REQUIREMENTS = 60
ITEM_TEXTS = ("requirement", "question", "analysis")
_PERCENT = Metric(type="number", range=(0, 100), better="higher")


def alignment_schema() -> dict[str, Any]:
    """The properties of the judge's reply: it checks each requirement before it gives a score."""
    text = {"type": "string"}
    properties = {**dict.fromkeys(ITEM_TEXTS, text), "answer": {"type": "boolean"}, "gap": text}
    item = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {REQUIREMENTS: {"type": "array", "items": item}, JUDGE_SCORE: {"type": "integer"}}


def item_faults(number: int, item: Mapping[str, Any]) -> list[str]:
    """What is wrong with a requirement in a judge's reply."""
    problems = []
    if not isinstance(item.get("answer"), bool):
        problems.append(f"the answer of requirement {number} is not true or false")
    for key in ITEM_TEXTS:
        text = item.get(key)
        problems += [] if isinstance(text, str) and text.strip() else [f"requirement {number} has no {key}"]
    if not isinstance(item.get("gap", ""), str):
        problems.append(f"the gap of requirement {number} is not text")
    return problems


def _are_requirements(value: Any) -> bool:
    """Whether a recorded answer is a list of requirements that a judge could have checked."""
    return (
        isinstance(value, list)
        and 1 <= len(value) <= MAX_REQUIREMENTS
        and all(isinstance(item, Mapping) and not item_faults(number, item) for number, item in enumerate(value, 1))
    )


def is_percent(value: Any) -> bool:
    """Whether a judge's own score can be one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 100


class AlignmentGrader(ShowingGrader):
    """The share of a prompt's requirements that an image meets, each checked by a judge."""

    scores_match: ClassVar[bool] = True

    type: Literal["alignment"]
    template: Text = Field(default="alignment/alignment.md.j2", description=LOOKED_UP)

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {self.key: _PERCENT}

    def recorded_answers(self, case: TestCase) -> Mapping[str, RecordedAnswer]:
        schema, expected = alignment_schema(), f"a list of objects with {', '.join(ITEM_TEXTS)}, answer and gap"
        return {
            REQUIREMENTS: RecordedAnswer(expected, _are_requirements, schema[REQUIREMENTS]),
            JUDGE_SCORE: RecordedAnswer("a number from 0 to 100", is_percent, schema[JUDGE_SCORE], is_required=False),
        }

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        (template,) = super().judge_templates(case, variables)
        return (replace(template, must_show=template.must_show[:1], instead=template.must_show[1:]),)

    def prompt_variables(self, case: TestCase, prompt: str, **about: Any) -> dict[str, Any]:
        return super().prompt_variables(case, prompt, max_requirements=MAX_REQUIREMENTS, **about)
