"""An alignment autorater: a judge splits a prompt into requirements and checks each; the score is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visioneval.graders.alignment.config import (
    JUDGE_SCORE,
    MAX_REQUIREMENTS,
    REQUIREMENTS,
    AlignmentGrader,
    alignment_context,
    alignment_schema,
    is_percent,
    item_faults,
)
from visioneval.graders.base import Grade, GradingContext
from visioneval.judging.ask import (
    OffSchemaError,
    answer_details,
    ask_for_json,
    object_schema,
    reply_texts,
)
from visioneval.judging.attachments import Attachment, load_attachments, message_parts
from visioneval.providers.base import Question, Reply
from visioneval.records.model import digest
from visioneval.suite.entries.judge_prompt import template_name

Requirements = Sequence[Mapping[str, Any]]
_ITEM_KEYS = tuple(alignment_schema()[REQUIREMENTS]["items"]["properties"])


class Alignment:
    """One call per cell. The score is the share of met requirements, from 0 to 100."""

    def __init__(self, config: AlignmentGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if an image cannot be encoded, and ``ProviderError`` if the judge cannot be asked."""
        config = self._config
        attachments = await load_attachments(context, context.own_judge, config.frames, config.parts)
        question = self._question(context, attachments)
        try:
            answer = await ask_for_json(context.ask_own_judge, question, reply_problems, {JUDGE_SCORE: 0})
        except OffSchemaError as error:
            return self._grade(context, error.replies, {"replies": reply_texts(error.replies)}, error=str(error))
        requirements: Requirements = answer.data[REQUIREMENTS]
        gaps = gaps_of(requirements)
        details = {
            **answer_details(answer),
            "requirements": [
                {key: requirement[key] for key in _ITEM_KEYS if key in requirement} for requirement in requirements
            ],
            "gaps": gaps,
            "judge_score": score if is_percent(score := answer.data.get(JUDGE_SCORE)) else None,
        }
        return self._grade(context, answer.replies, details, score=score_of(requirements), reason=" ".join(gaps))

    def _template(self, context: GradingContext) -> str:
        return template_name(self._config.template, context.case, context.variables)

    def _question(self, context: GradingContext, attachments: Sequence[Attachment]) -> Question:
        images = [{"id": attachment.id, "description": attachment.description} for attachment in attachments]
        config = self._config
        template_context = alignment_context(
            context.case, context.prompt, config, images=images, variables=context.variables
        )
        instructions = context.templates.render(self._template(context), template_context)
        parts = message_parts(instructions, attachments, config.parts)
        return Question(parts=parts, schema=object_schema(alignment_schema()))

    def _grade(
        self,
        context: GradingContext,
        replies: tuple[Reply, ...],
        details: Mapping[str, Any],
        *,
        score: float | None = None,
        reason: str = "",
        error: str | None = None,
    ) -> Grade:
        return Grade(
            scores={self._config.key: score},
            reasons={self._config.key: reason} if reason else {},
            details=details,
            error=error,
            judge_model=next((reply.model for reply in replies), None),
            template_sha256=context.templates.digest(self._template(context)),
            schema_sha256=digest(alignment_schema()),
        )


def score_of(requirements: Requirements) -> float:
    """The share of met requirements in percent, unweighted."""
    return 100 * sum(bool(requirement["answer"]) for requirement in requirements) / len(requirements)


def gaps_of(requirements: Requirements) -> list[str]:
    """One sentence per unmet requirement: the judge's, or the requirement itself."""
    return [
        requirement.get("gap") or f"Not shown: {requirement['requirement']}."
        for requirement in requirements
        if not requirement["answer"]
    ]


def reply_problems(data: Any) -> list[str]:
    """The problems with a judge's reply. Its own score is recorded only, so it is none of them."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    if REQUIREMENTS not in data:
        return [f"the key {REQUIREMENTS!r} is missing"]
    items = data[REQUIREMENTS]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return ["requirements is not a list of objects"]
    problems = []
    if not 1 <= len(items) <= MAX_REQUIREMENTS:
        problems.append(f"there are {len(items)} requirements, not 1 to {MAX_REQUIREMENTS}")
    return problems + [problem for number, item in enumerate(items, 1) for problem in item_faults(number, item)]
