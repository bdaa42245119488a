"""Which rate limit and which price apply to a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from visioneval.suite.entries.judges import BaseJudge

Kind = Literal["generate", "judge"]


class RateLimitKey(NamedTuple):
    """The limits that apply to a call. ``model`` is ``None`` for a provider without models."""

    provider: str
    model: str | None
    kind: Kind

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}" if self.model else self.provider


def generation_limit_key(provider: str, params: Mapping[str, Any]) -> RateLimitKey:
    """The rate-limit key of a generation."""
    model = params.get("model")
    return RateLimitKey(provider, model if isinstance(model, str) else None, "generate")


def judge_limit_key(config: BaseJudge) -> RateLimitKey:
    """The rate-limit key of a judgement."""
    return RateLimitKey(str(getattr(config, "provider", "")), getattr(config, "model", None), "judge")
