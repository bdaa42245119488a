"""Checks what providers and judges return, because custom classes may return anything."""

from __future__ import annotations

from typing import Any

from visioneval.engine.calls.user_code import BrokenCodeError
from visioneval.engine.sanitize import usd
from visioneval.providers.base import Generation, Reply


def check_generation(generation: Generation) -> None:
    """Raises ``BrokenCodeError`` for a generation that contradicts itself."""
    if not isinstance(generation.outputs, (tuple, list)):
        raise BrokenCodeError(f"it returned outputs={type(generation.outputs).__name__}: it must be a tuple of bytes")
    if generation.refused is not None and generation.outputs:
        raise BrokenCodeError("it returned both outputs and a refusal: return one of them")
    if (problem := _cost_problem(generation.cost_usd)) is not None:
        raise BrokenCodeError(f"it returned {problem}")


def check_reply(reply: Reply) -> None:
    """Raises ``BrokenCodeError`` for a reply without a text or with an impossible cost."""
    if not isinstance(reply.text, str):
        raise BrokenCodeError(f"ask() returned a Reply whose text is {type(reply.text).__name__}, not str")
    if (problem := _cost_problem(reply.cost_usd)) is not None:
        raise BrokenCodeError(f"ask() returned {problem}")


def _cost_problem(cost: Any) -> str | None:
    """Why a cost is impossible; ``None`` if it is possible or unknown."""
    if cost is None or usd(cost) is not None:
        return None
    return f"cost_usd={cost!r:.60}: it must be a number from 0, or None if it is unknown"
