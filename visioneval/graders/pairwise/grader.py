"""One question about two images: both are shown, labeled A and B, and nothing says which model drew them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from visioneval.graders.base import Choice, GradingContext
from visioneval.graders.pairwise.config import (
    ANSWER,
    FIRST,
    SECOND,
    TIE,
    PairwiseGrader,
    pairwise_context,
    pairwise_schema,
)
from visioneval.judging.ask import Ask, ask_for_json, object_schema
from visioneval.judging.attachments import Exhibit, as_parts, exhibits, output
from visioneval.providers.base import Question
from visioneval.suite.judge_prompt import REASON
from visioneval.templates.render import render_file
from visioneval.types import Output


class Pairwise:
    """Has a judge choose between two images."""

    def __init__(self, config: PairwiseGrader) -> None:
        self._config = config

    def question(self, subject: GradingContext, first: Output, second: Output) -> Question:
        """The question about two images, in this order. Raises ``GraderError`` for one that cannot be shown."""
        return pair_question(self._config, subject, first, second)

    async def choose(self, ask: Ask, question: Question) -> Choice:
        """Asks. Raises ``ProviderError``, and ``OffSchemaError`` where two answers were of no use."""
        return await choose(ask, question)


def pair_question(config: PairwiseGrader, subject: GradingContext, first: Output, second: Output) -> Question:
    """The question about two images of a cell, in this order. Raises ``GraderError`` for one that cannot be shown."""
    shown = [
        *exhibits(replace(subject, output=None), config.judge, config.frames),
        *_labeled(FIRST, config, replace(subject, output=first)),
        *_labeled(SECOND, config, replace(subject, output=second)),
    ]
    images = [{"id": each.id, "description": each.description} for each in shown]
    seen = pairwise_context(subject.case, subject.prompt, images=images, variables=subject.variables)
    asked = render_file(config.template, subject.template_folders, seen)
    return Question(parts=(asked, *as_parts(shown)), schema=object_schema(pairwise_schema()))


def _labeled(label: str, config: PairwiseGrader, subject: GradingContext) -> list[Exhibit]:
    return [
        replace(
            each, id=each.id.replace("output", label, 1), description=each.description.replace("to judge", label, 1)
        )
        for each in output(subject, config.judge, config.frames)
    ]


async def choose(ask: Ask, question: Question) -> Choice:
    """Asks. Raises ``ProviderError``, and ``OffSchemaError`` where two answers were of no use."""
    answer = await ask_for_json(ask, question, faults)
    said: dict[str, Literal["first", "second", "tie"]] = {FIRST: "first", SECOND: "second", TIE: "tie"}
    return Choice(said[answer.data[ANSWER]], answer.data[REASON], answer.extra_keys)


def faults(data: Any) -> list[str]:
    """What is wrong with a judge's reply."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    wrong = [f"the key {key!r} is missing" for key in (REASON, ANSWER) if key not in data]
    if ANSWER in data and data[ANSWER] not in (FIRST, SECOND, TIE):
        wrong.append(f"answer is {data[ANSWER]!r:.60}, not {FIRST}, {SECOND} or {TIE}")
    if not isinstance(data.get(REASON, ""), str):
        wrong.append("reason is not text")
    return wrong
