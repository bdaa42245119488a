"""Scores from answers: dependencies, the share of right answers, and that share per question type. Pure.

The rule for dependencies is that of the Davidsonian Scene Graph (Cho et al., ICLR 2024): a question scores 0 if the
answer to a direct parent is wrong, and still counts in the denominator. The parent's answer counts, not its score, so a
wrong grandparent has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from visioneval.suite.cases.questions import GeckoQuestion

OnUnanswered = Literal["error", "wrong", "skip"]
Points = Mapping[str, int | None]
"""By question id: 1, 0, or ``None`` if the question has no score."""


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
    parents = {question.id: () if ignore_dependencies else question.depends_on for question in asked}
    return {
        question.id: _points(answers[question.id], [answers[parent] for parent in parents[question.id]], on_unanswered)
        for question in asked
    }


def _points(answer: bool | None, parents: Sequence[bool | None], on_unanswered: OnUnanswered) -> int | None:
    if answer is None:
        return None
    if not answer or False in parents:
        return 0
    return None if None in parents and on_unanswered == "error" else 1


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
