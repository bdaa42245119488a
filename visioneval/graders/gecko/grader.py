"""The share of a prompt's claims that an image or a video shows: each is a question with choices and one right answer.

The approach is that of TIFA (Hu et al., ICCV 2023), the Davidsonian Scene Graph (Cho et al., ICLR 2024) and Gecko
(Wiles et al., 2024). The rule for dependencies is that of the Davidsonian Scene Graph: a question scores 0 if the
answer to a direct parent is wrong, and still counts in the denominator. The parent's answer counts, not its score, so a
wrong grandparent has no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from visioneval.graders.base import Grade, GradingContext
from visioneval.graders.gecko import GeckoGrader
from visioneval.graders.gecko.answers import (
    AnswerSet,
    Instructions,
    ParsedAnswer,
    answers_schema,
    ask_all,
    ask_past_cache,
    chosen_text,
)
from visioneval.graders.gecko.questions import (
    generate_questions,
    generation_key,
    options_digest,
    pinned_questions,
    with_added_questions,
)
from visioneval.judging.ask import MAX_REPLY_CHARS, Ask
from visioneval.judging.attachments import as_parts, output_attachments
from visioneval.providers.base import Part
from visioneval.records.model import digest
from visioneval.records.questions import PromptQuestions, prompt_sha256
from visioneval.suite.case import TestCase
from visioneval.suite.questions import GeckoQuestion
from visioneval.templates.render import Templates
from visioneval.types import Score

MAX_WRONG_LISTED = 5
OnUnanswered = Literal["error", "wrong", "skip"]
Points = Mapping[str, int | None]
"""By question id: 1, 0, or ``None`` if the question has no score."""


class Gecko:
    """Gets a prompt's questions, asks the judge about the image, and scores the answers."""

    def __init__(self, config: GeckoGrader) -> None:
        self._config = config

    async def grade(self, context: GradingContext) -> Grade:
        """Raises ``GraderError`` and ``ProviderError`` if there are no questions."""
        config = self._config
        prompt_questions = await questions_about(context, config)
        context.keep_questions(prompt_questions)
        entry = with_added_questions(prompt_questions, context.case, config)
        instructions = Instructions(context.templates, config.template_for_answers)
        ask, is_single = context.ask_own_judge, config.mode == "single"
        parts: list[Part] = []
        if context.output is not None:  # else its answers are recorded
            attachments = await asyncio.to_thread(output_attachments, context, context.own_judge, config.frames)
            parts = as_parts(attachments) if context.output.is_video else [item.part for item in attachments]
        answered = await ask_all(ask, entry.questions, instructions, parts, single=is_single)
        if _policy(config, answered) == "error":
            answered = await ask_past_cache(ask, entry.questions, instructions, parts, answered, single=is_single)
        return _graded(config, context, entry, answered)

    async def make_questions(self, case: TestCase, prompt: str, ask: Ask, templates: Templates) -> PromptQuestions:
        """Returns the pinned questions of the case, or asks the judge. Raises ``GraderError``, ``ProviderError``."""
        return pinned_questions(case, prompt) or await generate_questions(ask, prompt, self._config, templates)


async def questions_about(context: GradingContext, config: GeckoGrader) -> PromptQuestions:
    """The questions about a prompt, without those that a case adds."""
    entry = pinned_questions(context.case, context.prompt)
    if entry is not None:
        return entry
    digest_of_templates = context.templates.digest(*config.making_templates)
    known = context.known_questions(prompt_sha256(context.prompt), digest_of_templates, options_digest(config))
    if known is not None:
        return known
    ask = partial(context.ask_judge, config.question_writer)
    return await context.once(
        generation_key(config, context.prompt, digest_of_templates),
        lambda: generate_questions(ask, context.prompt, config, context.templates),
    )


def _policy(config: GeckoGrader, answered: AnswerSet) -> OnUnanswered:
    """What an unanswered question counts as. An unreadable reply says nothing about the image, so it is an error."""
    return "error" if answered.off_shape() else config.on_unanswered


def _graded(config: GeckoGrader, context: GradingContext, entry: PromptQuestions, answered: AnswerSet) -> Grade:
    questions, policy = entry.questions, _policy(config, answered)
    answers = {question.id: answered.answers.get(question.id, ParsedAnswer()) for question in questions}
    right = {question.id: _is_right(question, answers[question.id]) for question in questions}
    scored = points(questions, right, policy, ignore_dependencies=config.dependencies == "ignore")
    total, by_type = shares(questions, scored, policy)
    scores: dict[str, Score] = {config.key: total}
    scores |= {f"{config.key}.{question_type}": share for question_type, share in by_type.items()}
    if answered.fault:
        scores = dict.fromkeys(scores)
    judge, shape = (answered.replies[-1].model, answered.replies[-1].shape) if answered.replies else (None, None)
    unreadable = [reply.text for reply in answered.replies if reply.text] if answered.off_shape() else []
    return Grade(
        scores=scores,
        reasons=_reasons(config, questions, answers, scored),
        details={
            "judge": judge,
            "reply_shape": shape,
            "source": entry.source,
            "prompt_sha256": entry.prompt_sha256,
            "coverage": entry.coverage,
            "dropped": len(entry.dropped),
            "read": sorted(answered.read - {"json"}),
            "questions": [_question_details(context, entry, question, answered, scored) for question in questions],
            **({"unasked": list(answered.unasked)} if answered.unasked else {}),
            **({"extra_keys": dict(answered.extra_keys)} if answered.extra_keys else {}),
            **({"replies": [text[:MAX_REPLY_CHARS] for text in unreadable]} if unreadable else {}),
        },
        error=answered.fault or _missing_score_error(config, questions, answers, scores),
        judge_model=judge,
        template_sha256=context.templates.digest(*config.templates(context.case, context.variables)),
        schema_sha256=digest(answers_schema()),
    )


def _is_right(question: GeckoQuestion, answer: ParsedAnswer) -> bool | None:
    """Whether the answer to a question is right, ignoring dependencies; ``None`` if it is unanswered."""
    return None if answer.choice is None else answer.choice == question.expected


def _reasons(
    config: GeckoGrader, questions: Sequence[GeckoQuestion], answers: Mapping[str, ParsedAnswer], scored: Points
) -> dict[str, str]:
    wrong = [question for question in questions if scored[question.id] == 0]
    if not wrong:
        return {}
    lines = []
    for question in wrong[:MAX_WRONG_LISTED]:
        answer = answers[question.id]
        why = f"not {question.answer}"
        if _is_right(question, answer):
            why = "but a question that it depends on has a wrong answer"
        lines.append(f"{question.question} {chosen_text(question, answer) or answer.answer or answer.fault}, {why}")
    more = f"; and {len(wrong) - MAX_WRONG_LISTED} more" if len(wrong) > MAX_WRONG_LISTED else ""
    return {config.key: f"{len(wrong)} of {len(questions)} wrong: {'; '.join(lines)}{more}"}


def _missing_score_error(
    config: GeckoGrader,
    questions: Sequence[GeckoQuestion],
    answers: Mapping[str, ParsedAnswer],
    scores: Mapping[str, Score],
) -> str | None:
    """The error for a missing score; ``None`` if no score is missing."""
    if None not in scores.values():
        return None
    unanswered = [question for question in questions if answers[question.id].choice is None]
    answer = answers[unanswered[0].id]
    cause = f"{answer.fault}: {answer.answer!r:.80}" if answer.answer else str(answer.fault)
    return (
        f"{len(unanswered)} of {len(questions)} questions of {config.key!r} have no usable answer, "
        f"such as {unanswered[0].id} ({cause})"
    )


def _question_details(
    context: GradingContext,
    entry: PromptQuestions,
    question: GeckoQuestion,
    answered: AnswerSet,
    scored: Points,
) -> dict[str, Any]:
    """One question, for the record."""
    answer = answered.answers.get(question.id, ParsedAnswer())
    is_added = question.id in {added.id for added in context.case.add_questions}
    return {
        "id": question.id,
        "question": question.question,
        "type": question.type,
        "choices": list(question.choices),
        "source": "pinned" if is_added else entry.source,
        **({"justification": question.justification} if question.justification else {}),
        "depends_on": list(question.depends_on),
        "expected": question.answer,
        "answer": answer.answer,
        "choice": chosen_text(question, answer),
        "right": _is_right(question, answer),
        "score": None if answered.fault else scored[question.id],
        "reason": answer.reason,
        **({"unanswered": answer.fault} if answer.fault else {}),
        **({"asked_again": True} if question.id in answered.again else {}),
    }


def points(
    questions: Iterable[GeckoQuestion],
    right: Mapping[str, bool | None],
    on_unanswered: OnUnanswered,
    *,
    ignore_dependencies: bool = False,
) -> dict[str, int | None]:
    """The score of each question. ``right`` says whether its answer is right; ``None`` if it is unanswered."""
    asked = list(questions)
    answers = {
        question.id: False if right[question.id] is None and on_unanswered == "wrong" else right[question.id]
        for question in asked
    }
    scored: dict[str, int | None] = {}
    for question in asked:
        answer = answers[question.id]
        score: int | None = 1
        parents = [] if ignore_dependencies else [answers[parent] for parent in question.depends_on]
        if answer is None:
            score = None
        elif not answer or False in parents:
            score = 0
        elif None in parents and on_unanswered == "error":
            score = None
        scored[question.id] = score
    return scored


def shares(
    questions: Sequence[GeckoQuestion], scored: Points, on_unanswered: OnUnanswered
) -> tuple[float | None, dict[str, float | None]]:
    """The share of right questions (0 to 1), in total and per type; ``None`` if it cannot be computed."""
    by_type: dict[str, list[int | None]] = {}
    for question in questions:
        by_type.setdefault(question.type, []).append(scored[question.id])
    skips = on_unanswered == "skip"
    return _share(list(scored.values()), skips), {
        question_type: _share(values, skips) for question_type, values in by_type.items()
    }


def _share(values: Sequence[int | None], skips: bool) -> float | None:
    counted = [value for value in values if value is not None]
    if not counted or (len(counted) < len(values) and not skips):
        return None
    return sum(counted) / len(counted)
