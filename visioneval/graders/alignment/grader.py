"""An alignment autorater: a judge splits a prompt into requirements and answers each; the arithmetic is ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from visioneval.graders.alignment.config import (
    MAX_REQUIREMENTS,
    OWN_SCORE,
    REQUIREMENTS,
    AlignmentGrader,
    alignment_context,
    alignment_schema,
)
from visioneval.graders.base import Grade, GradingContext
from visioneval.judging.ask import (
    OffSchemaError,
    ask_for_json,
    object_schema,
    told,
    total_cost,
    total_usage,
    words,
)
from visioneval.judging.attachments import Exhibit, as_parts, laid_out
from visioneval.plan import digest
from visioneval.providers.base import Question, Reply
from visioneval.templates.render import render_file, template_digest

Requirements = Sequence[Mapping[str, Any]]
_ITEM_KEYS = tuple(alignment_schema()[REQUIREMENTS]["items"]["properties"])


class Alignment:
    """One call a cell. The score is the share of the requirements that are met, from 0 to 100."""

    def __init__(self, config: AlignmentGrader) -> None:
        self._config = config

    async def grade(self, subject: GradingContext) -> Grade:
        """Raises ``GraderError`` for an image that cannot be shown, ``ProviderError`` where no judge can be asked."""
        question = self._question(subject, await laid_out(subject, self._config.judge, self._config.frames))

        async def ask(question: Question) -> Reply:
            return await subject.ask_judge(self._config.judge, question)

        try:
            answer = await ask_for_json(ask, question, faults, {OWN_SCORE: 0})
        except OffSchemaError as error:
            return self._grade(subject, error.replies, {"replies": words(error.replies)}, error=str(error))
        found: Requirements = answer.data[REQUIREMENTS]
        gaps = gaps_of(found)
        details = {
            **told(answer),
            "requirements": [{key: each[key] for key in _ITEM_KEYS if key in each} for each in found],
            "gaps": gaps,
            "judge_score": answer.data.get(OWN_SCORE),
        }
        return self._grade(subject, answer.replies, details, score=score_of(found), reason=" ".join(gaps))

    def _question(self, subject: GradingContext, shown: Sequence[Exhibit]) -> Question:
        images = [{"id": each.id, "description": each.description} for each in shown]
        seen = alignment_context(subject.case, subject.prompt, images=images, variables=subject.variables)
        asked = render_file(self._config.template, subject.template_folders, seen)
        return Question(parts=(asked, *as_parts(shown)), schema=object_schema(alignment_schema()))

    def _grade(
        self,
        subject: GradingContext,
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
            usage=total_usage(replies),
            cost_usd=total_cost(replies),
            judge_model=next((reply.model for reply in replies), None),
            template_sha256=template_digest((self._config.template,), subject.template_folders),
            schema_sha256=digest(alignment_schema()),
        )


def score_of(requirements: Requirements) -> float:
    """The share of requirements that are met, in percent; each counts the same."""
    return 100 * sum(bool(each["answer"]) for each in requirements) / len(requirements)


def gaps_of(requirements: Requirements) -> list[str]:
    """One sentence for each requirement that is not met: the judge's, or the requirement itself."""
    return [each.get("gap") or f"Not shown: {each['requirement']}." for each in requirements if not each["answer"]]


def faults(data: Any) -> list[str]:
    """What is wrong with a judge's reply."""
    if not isinstance(data, dict):
        return ["the answer is not a JSON object"]
    wrong = [f"the key {key!r} is missing" for key in (REQUIREMENTS, OWN_SCORE) if key not in data]
    score = data.get(OWN_SCORE, 0)
    if isinstance(score, bool) or not isinstance(score, (int, float)) or not 0 <= score <= 100:
        wrong.append(f"score is {score!r:.60}, not a number from 0 to 100")
    found = data.get(REQUIREMENTS, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return [*wrong, "requirements is not a list of objects"]
    if not 1 <= len(found) <= MAX_REQUIREMENTS and REQUIREMENTS in data:
        wrong.append(f"there are {len(found)} requirements, not 1 to {MAX_REQUIREMENTS}")
    return wrong + [fault for number, each in enumerate(found, 1) for fault in _item_faults(number, each)]


def _item_faults(number: int, item: Mapping[str, Any]) -> list[str]:
    wrong = []
    if not isinstance(item.get("answer"), bool):
        wrong.append(f"the answer of requirement {number} is not true or false")
    for key in ("requirement", "question", "analysis"):
        text = item.get(key)
        wrong += [] if isinstance(text, str) and text.strip() else [f"requirement {number} has no {key}"]
    if not isinstance(item.get("gap", ""), str):
        wrong.append(f"the gap of requirement {number} is not text")
    return wrong
