"""What a pairwise judge is asked: which of two pictures does better what was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from visioneval.suite.case import Name, TestCase, Text
from visioneval.suite.judge_prompt import REASON, media_of
from visioneval.suite.outputs import FrameCount
from visioneval.suite.prompts import context
from visioneval.types import Frozen

ANSWER = "answer"
FIRST, SECOND, TIE = "A", "B", "tie"
"""What a judge calls the picture that it is shown first, the other one, and neither."""


class PairwiseOptions(Frozen):
    """What is compared, and who is asked."""

    judge: Name = "default"
    template: Text = Field(default="pairwise/pairwise.md.j2", description="Looked for beside the suite, then built in.")
    models: tuple[Text, ...] = Field(
        default=(), description="Only these model runs, by label, * and ? allowed; each is compared with each."
    )
    frames: FrameCount = 8


def pairwise_schema() -> dict[str, Any]:
    """The properties of the judge's reply: it looks before it answers."""
    return {REASON: {"type": "string"}, ANSWER: {"type": "string", "enum": [FIRST, SECOND, TIE]}}


def pairwise_context(
    case: TestCase, prompt: str, *, pictures: Sequence[Mapping[str, str]], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything that a pairwise template may use."""
    return {
        **context(case, variables),
        "task_type": str(case.task_type),
        "media": media_of(case),
        "prompt": prompt,
        "criteria": case.criteria,
        "region": case.region,
        "pictures": list(pictures),
    }
