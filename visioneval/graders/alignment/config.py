"""What an alignment autorater asks: requirements of the prompt, a question for each, and an answer to each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from visioneval.suite.case import Name, TestCase, Text
from visioneval.suite.graders import BaseGrader
from visioneval.suite.judge_prompt import SHOWN, media_of
from visioneval.suite.outputs import FrameCount
from visioneval.suite.prompts import context
from visioneval.types import Frozen, Metric

REQUIREMENTS, OWN_SCORE = "requirements", "score"
MAX_REQUIREMENTS = 60


class AlignmentOptions(Frozen):
    """What an alignment grader asks of a judge."""

    judge: Name = "default"
    template: Text = Field(
        default="alignment/alignment.md.j2", description="Looked for beside the suite, then built in."
    )
    frames: FrameCount = 8


def alignment_schema() -> dict[str, Any]:
    """The properties of the judge's reply: it looks and answers requirement by requirement before it gives a score."""
    text = {"type": "string"}
    one = {"requirement": text, "question": text, "analysis": text, "answer": {"type": "boolean"}, "gap": text}
    item = {"type": "object", "properties": one, "required": list(one), "additionalProperties": False}
    return {REQUIREMENTS: {"type": "array", "items": item}, OWN_SCORE: {"type": "integer"}}


def alignment_context(
    case: TestCase, prompt: str, *, images: Sequence[Mapping[str, str]], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that an alignment template may use."""
    return {
        **context(case, variables),
        "task_type": str(case.task_type),
        "media": media_of(case),
        "prompt": prompt,
        "images": list(images),
        "max_requirements": MAX_REQUIREMENTS,
    }


class AlignmentGrader(BaseGrader, AlignmentOptions):
    """The share of a prompt's requirements that an image meets, as a judge answers them one by one."""

    sees_videos: ClassVar[bool] = True

    type: Literal["alignment"]

    def metrics(self, case: TestCase) -> dict[str, Metric]:
        return {self.key: Metric(type="number", range=(0, 100), better="higher")}

    @property
    def judge_name(self) -> str | None:
        return self.judge

    @property
    def templates(self) -> tuple[str, ...]:
        return (self.template,)

    def template_contexts(
        self,
        case: TestCase,
        prompt: str,
        *,
        rules: Sequence[str],
        variables: Mapping[str, Any],
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        yield self.template, alignment_context(case, prompt, images=SHOWN, variables=variables)
