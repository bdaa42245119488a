"""Free-form values of records in the fixed types of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from visioneval.types import Score

_QUESTION_TEXTS = ("id", "question", "type", "source", "expected", "answer", "choice", "reason")
_MAX_INTEGER = 2**63 - 1


def as_text(value: Any) -> str | None:
    """A text as it is, another value as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json_text(value)


def json_text(value: Any) -> str:
    """Plain data as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_items(values: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """The items of a map of texts; other values are JSON."""
    return [(key, as_text(value)) for key, value in values.items()]


def score_items(scores: Mapping[str, Score]) -> list[tuple[str, float | None]]:
    """The items of a map of scores as numbers: true is 1, false 0."""
    return [(metric, as_number(score)) for metric, score in scores.items()]


def integer_items(values: Mapping[str, int] | None) -> list[tuple[str, int]] | None:
    """The items of a map of integers, in the range of 64 bits."""
    return None if values is None else [(key, min(value, _MAX_INTEGER)) for key, value in values.items()]


def as_number(value: Any) -> float | None:
    """A number or a truth value as a number; ``None`` for anything else."""
    return float(value) if isinstance(value, (bool, int, float)) else None


def as_flag(value: Any) -> bool | None:
    """A truth value, also as 0 or 1; ``None`` for anything else."""
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def detail_columns(details: Mapping[str, Any]) -> dict[str, Any]:
    """The documented details of graders in fixed types, and all details as JSON."""
    return {
        "gaps": _texts(details.get("gaps")),
        "questions": [_question(entry) for entry in _entries(details.get("questions")) if isinstance(entry, dict)],
        "votes": _votes(details.get("votes")),
        "json": json_text(details),
    }


def _question(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A question of a gecko grader with its answer."""
    return {
        **{name: as_text(entry.get(name)) for name in _QUESTION_TEXTS},
        "choices": _texts(entry.get("choices")),
        "depends_on": _texts(entry.get("depends_on")),
        "right": as_flag(entry.get("right")),
        "score": as_number(entry.get("score")),
    }


def _votes(votes: Any) -> list[tuple[str, list[float | None]]]:
    by_metric = votes.items() if isinstance(votes, dict) else ()
    return [(metric, [as_number(vote) for vote in _entries(listed)]) for metric, listed in by_metric]


def _texts(value: Any) -> list[str | None]:
    return [as_text(item) for item in _entries(value)]


def _entries(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else () if value is None else (value,)
