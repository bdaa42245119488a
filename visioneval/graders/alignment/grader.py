"""An alignment autorater: a judge splits a prompt into requirements and checks each; the score is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from visioneval.graders.alignment import (
    ITEM_TEXTS,
    JUDGE_SCORE,
    MAX_REQUIREMENTS,
    REQUIREMENTS,
    AlignmentGrader,
    alignment_schema,
    is_percent,
    item_faults,
)
from visioneval.graders.base import Grade, GradingContext, message_about
from visioneval.judging.ask import OffSchemaError, answer_details, ask_for_json, object_schema, reply_texts
from visioneval.judging.attachments import load_attachments
from visioneval.providers.base import Question
from visioneval.records.model import digest

Requirements = Sequence[Mapping[str, Any]]


class Alignment:
    """One call per cell. The score is the share of met requirements, from 0 to 100."""

    def __init__(self, config: AlignmentGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` if an image cannot be encoded, and ``ProviderError`` if the judge cannot be asked."""
        config = self._config
        attachments = await load_attachments(context, context.own_judge, config.frames, config.parts)
        question = Question(message_about(context, config, attachments), schema=object_schema(alignment_schema()))
        graded = partial(
            Grade,
            template_sha256=context.templates.digest(config.template_of(context.case, context.variables)),
            schema_sha256=digest(alignment_schema()),
        )
        try:
            answer = await ask_for_json(context.ask_own_judge, question, reply_problems, {JUDGE_SCORE: 0})
        except OffSchemaError as error:
            replies, model = {"replies": reply_texts(error.replies)}, error.replies[0].model
            return graded({config.key: None}, details=replies, error=str(error), judge_model=model)
        requirements: Requirements = answer.data[REQUIREMENTS]
        gaps, score = gaps_of(requirements), answer.data.get(JUDGE_SCORE)
        keys = (*ITEM_TEXTS, "answer", "gap")
        details = {
            **answer_details(answer),
            "requirements": [{key: item[key] for key in keys if key in item} for item in requirements],
            "gaps": gaps,
            "judge_score": score if is_percent(score) else None,
        }
        return graded(
            {config.key: score_of(requirements)},
            reasons={config.key: " ".join(gaps)} if gaps else {},
            details=details,
            judge_model=answer.replies[0].model,
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
