"""Counts judge calls, their usage and their cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from visioneval.providers.base import Reply


@dataclass(slots=True)
class Meter:
    """The usage and cost of one grader's judge calls for one cell."""

    calls: int = 0
    cached: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = 0.0
    refused: int = 0
    """Questions that a judge refused."""
    judge_model: str | None = None
    """The model of the last reply."""

    def __str__(self) -> str:
        cost = "unknown" if self.cost_usd is None else f"{self.cost_usd:.4f} USD"
        return f"asked {self.calls} questions, {self.cached} of them answered from the cache; cost: {cost}"

    def add(self, reply: Reply, *, cached: bool) -> None:
        """Adds one call. An unknown cost makes the total unknown."""
        self.calls += 1
        self.cached += cached
        self.judge_model = reply.model
        for kind, tokens in (reply.usage or {}).items():
            self.usage[kind] = self.usage.get(kind, 0) + tokens
        self.cost_usd = None if self.cost_usd is None or reply.cost_usd is None else self.cost_usd + reply.cost_usd
