"""The share of a prompt's claims that an image or a video shows: each is a question with choices and one right answer.

The approach is that of TIFA (Hu et al., ICCV 2023), the Davidsonian Scene Graph (Cho et al., ICLR 2024) and Gecko
(Wiles et al., 2024).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.gecko.answers import Said, answers_schema, chosen
from visioneval.graders.gecko.asking import Answered, ask_all, ask_past_cache
from visioneval.graders.gecko.config import GeckoGrader, asking_context
from visioneval.graders.gecko.making import make, making_key, pinned, way_of, with_added
from visioneval.graders.gecko.score import OnUnanswered, Points, points, shares
from visioneval.judging.ask import MAX_KEPT, Ask, total_cost, total_usage
from visioneval.judging.attachments import as_parts, output
from visioneval.plan import digest
from visioneval.providers.base import Part, Reply
from visioneval.records.questions import PromptQuestions, prompt_sha256
from visioneval.suite.case import TestCase
from visioneval.suite.questions import GeckoQuestion
from visioneval.templates.render import render_file, template_digest
from visioneval.types import Score

SHOWN_WRONG = 5


class Gecko:
    """Gets a prompt's questions, asks them of the image, and counts."""

    def __init__(self, config: GeckoGrader) -> None:
        self._config = config

    async def grade(self, subject: GradingContext) -> Grade:
        """Raises ``GraderError`` and ``ProviderError`` where there are no questions."""
        config, bill = self._config, list[Reply]()
        kept = await questions_about(subject, config, bill)
        subject.keep_questions(kept)
        entry = with_added(kept, subject.case, config)
        folders = subject.template_folders

        def words(asked: Sequence[GeckoQuestion]) -> str:
            return render_file(config.template_for_answers, folders, asking_context(asked))

        ask, single = partial(subject.ask_judge, config.judge), config.mode == "single"
        shown = await _shown(subject, config)
        answered = await ask_all(ask, entry.questions, words, shown, single=single)
        if _policy(config, answered) == "error":
            answered = await ask_past_cache(ask, entry.questions, words, shown, answered, single=single)
        return _graded(config, subject, entry, answered, bill)

    async def make_questions(self, case: TestCase, prompt: str, ask: Ask, folders: tuple[Path, ...]) -> PromptQuestions:
        """What the suite pins for the case, or else what the judge makes. Raises ``GraderError``, ``ProviderError``."""
        return pinned(case, prompt) or await make(ask, prompt, self._config, folders, [])


async def questions_about(subject: GradingContext, config: GeckoGrader, bill: list[Reply]) -> PromptQuestions:
    """The questions about a prompt, less those that a case adds.

    Where a judge made them just now, its replies go on the ``bill``.
    """
    entry = pinned(subject.case, subject.prompt)
    if entry is not None:
        return entry
    folders = subject.template_folders
    templates = template_digest(config.making_templates, folders)
    known = subject.known_questions(prompt_sha256(subject.prompt), templates, way_of(config))
    if known is not None:
        return known
    ask = partial(subject.ask_judge, config.judge)
    return await subject.once(
        making_key(config, subject.prompt, templates), lambda: make(ask, subject.prompt, config, folders, bill)
    )


async def _shown(subject: GradingContext, config: GeckoGrader) -> list[Part]:
    """What the judge looks at; nothing where answers were recorded without an image."""
    if subject.output is None:
        return []
    shown = await asyncio.to_thread(output, subject, config.judge, config.frames)
    return as_parts(shown) if subject.output.is_video else [each.part for each in shown]


def _policy(config: GeckoGrader, answered: Answered) -> OnUnanswered:
    """What a question without an answer counts as. A reply that could not be read says nothing about the image."""
    return "error" if answered.off_shape() else config.on_unanswered


def _graded(
    config: GeckoGrader, subject: GradingContext, entry: PromptQuestions, answered: Answered, bill: Sequence[Reply]
) -> Grade:
    questions, said = entry.questions, answered.said
    right = {q.id: _right(q, said.get(q.id, Said())) for q in questions}
    policy = _policy(config, answered)
    scored = points(questions, right, policy)
    total, by_type = shares(questions, scored, policy)
    scores: dict[str, Score] = {config.key: total, **{f"{config.key}.{kind}": own for kind, own in by_type.items()}}
    if answered.fault:
        scores = dict.fromkeys(scores)
    replies = (*bill, *answered.replies)
    last = answered.replies[-1] if answered.replies else None
    off = [reply.text for reply in answered.replies if reply.text] if answered.off_shape() else []
    return Grade(
        scores=scores,
        reasons=_reasons(config, questions, said, scored),
        details={
            "judge": last.model if last else None,
            "reply_shape": last.shape if last else None,
            "source": entry.source,
            "prompt_sha256": entry.prompt_sha256,
            "coverage": entry.coverage,
            "dropped": len(entry.dropped),
            "questions": [_detail(subject, entry, q, answered, scored) for q in questions],
            **({"unasked": list(answered.unasked)} if answered.unasked else {}),
            **({"extra_keys": dict(answered.extra_keys)} if answered.extra_keys else {}),
            **({"replies": [text[:MAX_KEPT] for text in off]} if off else {}),
        },
        error=answered.fault or _unmeasured(config, questions, said, scores),
        usage=total_usage(replies),
        cost_usd=total_cost(replies),
        judge_model=last.model if last else None,
        template_sha256=template_digest(config.all_templates, subject.template_folders),
        schema_sha256=digest(answers_schema()),
    )


def _right(question: GeckoQuestion, said: Said) -> bool | None:
    """Whether a question's own answer is the right one, before dependencies; ``None`` where it has none."""
    return None if said.choice is None else said.choice == question.expected


def _reasons(
    config: GeckoGrader, questions: Sequence[GeckoQuestion], said: Mapping[str, Said], scored: Points
) -> dict[str, str]:
    wrong = [q for q in questions if scored[q.id] == 0]
    if not wrong:
        return {}
    lines = [f"{q.question} {_told(q, said.get(q.id, Said()))}" for q in wrong[:SHOWN_WRONG]]
    more = f"; and {len(wrong) - SHOWN_WRONG} more" if len(wrong) > SHOWN_WRONG else ""
    return {config.key: f"{len(wrong)} of {len(questions)} wrong: {'; '.join(lines)}{more}"}


def _told(question: GeckoQuestion, said: Said) -> str:
    told = chosen(question, said) or said.answer or said.fault
    return f"{told}, but what it depends on is wrong" if _right(question, said) else f"{told}, not {question.answer}"


def _unmeasured(
    config: GeckoGrader, questions: Sequence[GeckoQuestion], said: Mapping[str, Said], scores: Mapping[str, Score]
) -> str | None:
    """What to say where a score is missing."""
    if None not in scores.values():
        return None
    gone = [q for q in questions if said.get(q.id, Said()).choice is None]
    first = said.get(gone[0].id, Said())
    told = f"{first.fault}: {first.answer!r:.80}" if first.answer else str(first.fault)
    return f"{len(gone)} of {len(questions)} questions of {config.key!r} unanswered, such as {gone[0].id} ({told})"


def _detail(
    subject: GradingContext,
    entry: PromptQuestions,
    question: GeckoQuestion,
    answered: Answered,
    scored: Points,
) -> dict[str, Any]:
    """One question in the record."""
    said = answered.said.get(question.id, Said())
    added = question.id in {each.id for each in subject.case.add_questions}
    return {
        "id": question.id,
        "question": question.question,
        "type": question.type,
        "choices": list(question.choices),
        "source": "pinned" if added else entry.source,
        "depends_on": list(question.depends_on),
        "expected": question.answer,
        "answer": said.answer,
        "choice": chosen(question, said),
        "right": _right(question, said),
        "score": None if answered.fault else scored[question.id],
        "reason": said.reason,
        **({"unanswered": said.fault} if said.fault else {}),
        **({"asked_again": True} if question.id in answered.again else {}),
    }
