"""What the answers of a recorded judge must be, so that they are checked before a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What a recorded answer to one question of a grader must be."""

    expected: str
    """In words, for a message."""
    fits: Callable[[Any], bool]
    """Whether an answer can be used, after it was read by ``schema``."""
    schema: Mapping[str, Any] | None = None
    """How the text of a cell is read; ``None`` for a question in words, whose answer is used as it is."""
    text: str | None = None
    """The question in words, under which its answer may be recorded too."""
    is_required: bool = True
    """Whether the grader has no score without it."""


def is_text(value: Any) -> bool:
    """Whether an answer is text."""
    return isinstance(value, str)


def is_texts(value: Any) -> bool:
    """Whether an answer is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
