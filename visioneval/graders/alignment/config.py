"""The configuration of an alignment grader, and the variables of its template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from visioneval.suite.cases.case import TestCase, Text
from visioneval.suite.cases.outputs import FrameCount
from visioneval.suite.cases.prompts import context
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.entries.judge_prompt import (
    ASKED,
    SHOWN,
    JudgeNames,
    JudgeTemplate,
    PanelOptions,
    RecordedAnswer,
    ShowOptions,
    media_of,
    template_name,
)
from visioneval.types import Metric

REQUIREMENTS, JUDGE_SCORE = "requirements", "score"
MAX_REQUIREMENTS = 60
_PERCENT = Metric(type="number", range=(0, 100), better="higher")


class AlignmentOptions(PanelOptions, ShowOptions):
    """The options of an alignment grader."""

    judge: JudgeNames = Field(default="default", description="The judge that answers, or a list of judges for a panel.")
    template: Text = Field(
        default="alignment/alignment.md.j2",
        description="Looked up in the suite's folder, then among the built-in templates.",
    )
    frames: FrameCount = 8


def alignment_schema() -> dict[str, Any]:
    """The properties of the judge's reply: it checks each requirement before it gives a score."""
    text = {"type": "string"}
    properties = {"requirement": text, "question": text, "analysis": text, "answer": {"type": "boolean"}, "gap": text}
    item = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {REQUIREMENTS: {"type": "array", "items": item}, JUDGE_SCORE: {"type": "integer"}}


def item_faults(number: int, item: Mapping[str, Any]) -> list[str]:
    """What is wrong with a requirement in a judge's reply."""
    problems = []
    if not isinstance(item.get("answer"), bool):
        problems.append(f"the answer of requirement {number} is not true or false")
    for key in ("requirement", "question", "analysis"):
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


def alignment_context(
    case: TestCase,
    prompt: str,
    options: AlignmentOptions,
    *,
    images: Sequence[Mapping[str, str]],
    variables: Mapping[str, Any],
) -> dict[str, Any]:
    """The variables of an alignment template."""
    variables_of_template = {
        **context(case, variables),
        "task_type": str(case.task_type),
        "media": media_of(case),
        "prompt": prompt,
        "criteria": case.criteria,
        "images": list(images),
        "show": list(options.parts),
        "max_requirements": MAX_REQUIREMENTS,
    }
    return options.visible(variables_of_template)


class AlignmentGrader(BaseGrader, AlignmentOptions):
    """The share of a prompt's requirements that an image meets, each checked by a judge."""

    sees_videos: ClassVar[bool] = True

    type: Literal["alignment"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {self.key: _PERCENT}

    def recorded_answers(self, case: TestCase) -> Mapping[str, RecordedAnswer]:
        schema = alignment_schema()
        expected = "a list of objects with requirement, question, analysis, answer and gap"
        score = RecordedAnswer("a number from 0 to 100", is_percent, schema[JUDGE_SCORE], is_required=False)
        return {
            REQUIREMENTS: RecordedAnswer(expected, _are_requirements, schema[REQUIREMENTS]),
            JUDGE_SCORE: score,
        }

    def judge_templates(self, case: TestCase, variables: Mapping[str, Any]) -> tuple[JudgeTemplate, ...]:
        name = template_name(self.template, case, variables)
        shown = tuple(part for part in ASKED if part in self.parts)
        asked, instead = shown[:1], shown[1:]
        return (JudgeTemplate(name, "template", asked, instead=instead, hidden=self.withheld, show=self.parts),)

    def template_contexts(
        self,
        case: TestCase,
        prompt: str,
        *,
        variables: Mapping[str, Any],
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        name = template_name(self.template, case, variables)
        yield name, alignment_context(case, prompt, self, images=SHOWN, variables=variables)
