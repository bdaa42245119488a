"""From answers to scores: dependencies, the share of right answers, and that share by question type. Pure.

The rule for dependencies is that of the Davidsonian Scene Graph (Cho et al., ICLR 2024): a question scores 0 when the
own answer of a direct parent is wrong, and stays in the denominator. A parent's own answer counts, not its score, so
nothing is handed on from a grandparent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from visioneval.suite.questions import GeckoQuestion

OnUnanswered = Literal["error", "wrong", "skip"]
Points = Mapping[str, int | None]
"""By question id: 1, 0, or ``None`` for a question that has no score."""


def points(
    questions: Iterable[GeckoQuestion], right: Mapping[str, bool | None], on_unanswered: OnUnanswered
) -> dict[str, int | None]:
    """The score of every question. ``right`` is its own answer before dependencies, ``None`` where it has none."""
    asked = list(questions)
    own = {q.id: False if right[q.id] is None and on_unanswered == "wrong" else right[q.id] for q in asked}
    return {q.id: _points(own[q.id], [own[parent] for parent in q.depends_on], on_unanswered) for q in asked}


def _points(own: bool | None, parents: Sequence[bool | None], on_unanswered: OnUnanswered) -> int | None:
    if own is None:
        return None
    if not own or False in parents:
        return 0
    return None if None in parents and on_unanswered == "error" else 1


def shares(
    questions: Sequence[GeckoQuestion], scored: Points, on_unanswered: OnUnanswered
) -> tuple[float | None, dict[str, float | None]]:
    """The share of right questions, 0 to 1, and that of each type; ``None`` where it cannot be told."""
    by_type: dict[str, list[int | None]] = {}
    for question in questions:
        by_type.setdefault(question.type, []).append(scored[question.id])
    skips = on_unanswered == "skip"
    return _share(list(scored.values()), skips), {kind: _share(own, skips) for kind, own in by_type.items()}


def _share(own: Sequence[int | None], skips: bool) -> float | None:
    counted = [each for each in own if each is not None]
    if not counted or (len(counted) < len(own) and not skips):
        return None
    return sum(counted) / len(counted)
