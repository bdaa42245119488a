"""Asks a judge which of two images is better. They are labeled A and B; their models are not named."""

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
from visioneval.judging.attachments import Attachment, cell_attachments, message_parts, output_attachments
from visioneval.providers.base import Question
from visioneval.suite.entries.judge_prompt import REASON, template_name
from visioneval.types import Output


class Pairwise:
    """Lets a judge choose between two images."""

    def __init__(self, config: PairwiseGrader) -> None:
        self._config = config

    def question(self, context: GradingContext, first: Output, second: Output) -> Question:
        """The question about two images, in this order. Raises ``GraderError`` if one cannot be encoded."""
        return pair_question(self._config, context, first, second)

    async def choose(self, ask: Ask, question: Question) -> Choice:
        """Asks. Raises ``ProviderError``, and ``OffSchemaError`` after two unusable replies."""
        return await choose(ask, question)


def pair_question(config: PairwiseGrader, context: GradingContext, first: Output, second: Output) -> Question:
    """The question about two images of a cell, in this order. Raises ``GraderError`` if one cannot be encoded."""
    attachments: list[Attachment] = []
    for part in config.parts:
        if part == "output":
            attachments += _labeled(FIRST, config, replace(context, output=first))
            attachments += _labeled(SECOND, config, replace(context, output=second))
        else:
            attachments += cell_attachments(context, context.own_judge, config.frames, (part,))
    images = [{"id": attachment.id, "description": attachment.description} for attachment in attachments]
    template_context = pairwise_context(
        context.case, context.prompt, config, images=images, variables=context.variables
    )
    name = template_name(config.template, context.case, context.variables)
    instructions = context.templates.render(name, template_context)
    parts = message_parts(instructions, attachments, config.parts)
    return Question(parts=parts, schema=object_schema(pairwise_schema()))


def _labeled(label: str, config: PairwiseGrader, context: GradingContext) -> list[Attachment]:
    return [
        replace(
            attachment,
            id=attachment.id.replace("output", label, 1),
            description=attachment.description.replace("to judge", label, 1),
        )
        for attachment in output_attachments(context, context.own_judge, config.frames)
    ]


async def choose(ask: Ask, question: Question) -> Choice:
    """Asks. Raises ``ProviderError``, and ``OffSchemaError`` after two unusable replies."""
    answer = await ask_for_json(ask, question, reply_problems)
    choices: dict[str, Literal["first", "second", "tie"]] = {FIRST: "first", SECOND: "second", TIE: "tie"}
    return Choice(choices[answer.data[ANSWER]], answer.data[REASON], answer.extra_keys, answer.how)


def reply_problems(data: Any) -> list[str]:
    """The problems with a judge's reply."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    problems = [f"the key {key!r} is missing" for key in (REASON, ANSWER) if key not in data]
    if ANSWER in data and data[ANSWER] not in (FIRST, SECOND, TIE):
        problems.append(f"answer is {data[ANSWER]!r:.60}, not {FIRST}, {SECOND} or {TIE}")
    if not isinstance(data.get(REASON, ""), str):
        problems.append("reason is not text")
    return problems
