"""Counts judge calls, their usage and their cost, and local measurements."""

from __future__ import annotations

from dataclasses import dataclass, field

from visioneval.providers.base import Reply


@dataclass(slots=True)
class Meter:
    """The usage and cost of judge calls, such as those of one grader for one cell, and its local measurements."""

    calls: int = 0
    cached: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    cost_usd: float | None = 0.0
    refused: int = 0
    """Questions that a judge refused."""
    judge_model: str | None = None
    """The model of the last reply."""
    scaled: dict[str, None] = field(default_factory=dict)
    """What was done to the images that were above the limits of a judge, in order."""
    measurements: int = 0
    cached_measurements: int = 0
    whole: Meter | None = None
    """Counts the same calls, and those of other judges."""

    def __str__(self) -> str:
        cost = "unknown" if self.cost_usd is None else f"{self.cost_usd:.4f} USD"
        return f"asked {self.calls} questions, {self.cached} of them answered from the cache; cost: {cost}"

    @property
    def is_from_cache(self) -> bool:
        """Whether all judge calls were answered from the cache; without calls, whether all measurements were."""
        if self.calls:
            return self.cached == self.calls
        return 0 < self.measurements == self.cached_measurements

    @property
    def details(self) -> dict[str, list[str]]:
        """What a record's details say of the calls."""
        return {"scaled": list(self.scaled)} if self.scaled else {}

    def add_measurement(self, *, cached: bool) -> None:
        """Adds one local measurement."""
        self.measurements += 1
        self.cached_measurements += cached

    def add(self, reply: Reply, *, cached: bool) -> None:
        """Adds one call. An unknown cost makes the total unknown."""
        if self.whole is not None:
            self.whole.add(reply, cached=cached)
        self.calls += 1
        self.cached += cached
        self.judge_model = reply.model
        self.scaled |= dict.fromkeys(reply.scaled)
        for kind, tokens in (reply.usage or {}).items():
            self.usage[kind] = self.usage.get(kind, 0) + tokens
        self.cost_usd = None if self.cost_usd is None or reply.cost_usd is None else self.cost_usd + reply.cost_usd

    def add_refusal(self) -> None:
        """Adds a question that a judge refused."""
        if self.whole is not None:
            self.whole.add_refusal()
        self.refused += 1


@dataclass(frozen=True, slots=True)
class JudgeMeters:
    """The calls of one grader for one cell: all together, and by judge."""

    total: Meter = field(default_factory=Meter)
    by_judge: dict[str, Meter] = field(default_factory=dict)
    """The judges that were asked, even in vain."""

    def __str__(self) -> str:
        if len(self.by_judge) < 2:
            return str(self.total)
        return f"{self.total} ({'; '.join(f'{name}: {meter}' for name, meter in sorted(self.by_judge.items()))})"

    def of(self, judge: str) -> Meter:
        """The meter of a judge that is asked now."""
        return self.by_judge.setdefault(judge, Meter(whole=self.total))
