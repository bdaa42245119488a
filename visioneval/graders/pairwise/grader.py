"""Asks a judge which of two images is better. They are labeled A and B; their models are not named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from visioneval.graders.base import Choice, GradingContext, message_about
from visioneval.graders.pairwise import PairwiseGrader
from visioneval.judging.ask import Ask, ask_for_json, object_schema
from visioneval.judging.attachments import Attachment, cell_attachments, output_attachments
from visioneval.providers.base import Question
from visioneval.suite.entries.judges import REASON
from visioneval.types import Output

ANSWER = "answer"
FIRST, SECOND = "A", "B"
"""The names for the first image and the second in a reply."""
CHOICES: dict[str, Literal["first", "second", "tie"]] = {FIRST: "first", SECOND: "second", "tie": "tie"}
SCHEMA = object_schema({REASON: {"type": "string"}, ANSWER: {"type": "string", "enum": list(CHOICES)}})
"""The reason comes first, so that the judge looks before it answers."""


class Pairwise:
    """Lets a judge choose between two images."""

    def __init__(self, config: PairwiseGrader) -> None:
        self._config = config

    def question(self, context: GradingContext, first: Output, second: Output) -> Question:
        """The question about two images, in this order. Raises ``GraderError`` if one cannot be encoded."""
        config = self._config
        attachments: list[Attachment] = []
        for part in config.parts:
            if part == "output":
                for label, output in ((FIRST, first), (SECOND, second)):
                    shown = output_attachments(replace(context, output=output), context.own_judge, config.frames)
                    for item in shown:
                        about = item.description.replace("to judge", label, 1)
                        attachments.append(replace(item, id=item.id.replace("output", label, 1), description=about))
            else:
                attachments += cell_attachments(context, context.own_judge, config.frames, (part,))
        return Question(message_about(context, config, attachments), schema=SCHEMA)

    async def choose(self, ask: Ask, question: Question) -> Choice:
        """Asks. Raises ``ProviderError``, and ``OffSchemaError`` after two unusable replies."""
        answer = await ask_for_json(ask, question, reply_problems)
        return Choice(CHOICES[answer.data[ANSWER]], answer.data[REASON], answer.extra_keys, answer.how)


def reply_problems(data: Any) -> list[str]:
    """The problems with a judge's reply."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    problems = [f"the key {key!r} is missing" for key in (REASON, ANSWER) if key not in data]
    if ANSWER in data and data[ANSWER] not in tuple(CHOICES):
        problems.append(f"answer is {data[ANSWER]!r:.60}, not {FIRST}, {SECOND} or tie")
    if not isinstance(data.get(REASON, ""), str):
        problems.append("reason is not text")
    return problems
