"""How many calls run, and how many wait for what, by rate-limit key."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, get_args

from visioneval.counted import count_of
from visioneval.engine.calls.limit_keys import RateLimitKey

Stage = Literal[
    "running",
    "operation",
    "slot",
    "requests",
    "images",
    "provider slot",
    "provider requests",
    "provider images",
    "budget",
    "retry",
]
"""``operation``: of the running calls, those that poll an operation. ``slot``, ``requests`` and ``images`` wait for a
limit of their model, or for one that all models of its provider share."""
WAITS: tuple[Stage, ...] = get_args(Stage)[2:]


@dataclass(slots=True)
class CountedCall:
    """Counts a call while it is entered. A class, as every call enters several: half the time of a generator."""

    counts: Counter[tuple[RateLimitKey, Stage]]
    key: tuple[RateLimitKey, Stage]

    def __enter__(self) -> None:
        self.counts[self.key] += 1

    def __exit__(self, *_: object) -> None:
        self.counts[self.key] -= 1


@dataclass(slots=True)
class CallCounts:
    """The calls of a run that have not ended, by key and stage."""

    counts: Counter[tuple[RateLimitKey, Stage]] = field(default_factory=Counter)

    def at(self, limit_key: RateLimitKey, stage: Stage) -> CountedCall:
        """A context in which a call counts as being at this stage."""
        return CountedCall(self.counts, (limit_key, stage))

    @property
    def running(self) -> int:
        """How many calls run, of all keys."""
        return sum(count for (_, stage), count in self.counts.items() if stage == "running")

    def keys(self) -> list[RateLimitKey]:
        """The keys with calls, those with waiting calls first, in the order of their first call."""
        keys = {key: None for (key, _), count in self.counts.items() if count}
        return sorted(keys, key=lambda key: not any(self.counts[key, stage] for stage in WAITS))

    def running_text(self, limit_key: RateLimitKey) -> str:
        """``3 generating``; empty if no call runs."""
        operations = self.counts[limit_key, "operation"]
        others = self.counts[limit_key, "running"] - operations
        verb = "generating" if limit_key.kind == "generate" else "judging"
        parts = [f"{count_of(operations, 'video')} in progress"] if operations else []
        return ", ".join([*parts, f"{others} {verb}"] if others > 0 else parts)
