"""What calls cost, and when a run has cost enough."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from visioneval.engine.calls.cost_bounds import Bound
from visioneval.engine.calls.throttle import RateLimitKey
from visioneval.errors import BudgetError


@dataclass(frozen=True, slots=True)
class Claim:
    """What is reserved for one call in flight, in US dollars; ``images`` is how many it generates."""

    limit_key: RateLimitKey
    images: int
    usd: float


@dataclass(slots=True)
class Budget:
    """US dollars that a run may cost, or ``None``. Each call in flight is counted at the most that it may cost.

    Where that is an estimate, as nobody knows how many tokens a call will take, the first call of a lane goes alone,
    and later ones are counted at the largest cost of a call so far.
    """

    most: float | None = None
    spent: float = 0.0
    refused: int = 0
    refusal: str | None = None
    """Why the first call that did not begin for want of money did not."""
    _reserved: float = 0.0
    _running: dict[RateLimitKey, int] = field(default_factory=lambda: defaultdict(int))
    _largest: dict[RateLimitKey, float] = field(default_factory=dict)
    """The largest cost of a call, or of each image that it generated."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def reserve(self, limit_key: RateLimitKey, images: int, bound: Callable[[], Bound]) -> AsyncIterator[Claim]:
        """Around one paid call. Waits while calls in flight may leave enough money; ``BudgetError`` where they cannot.

        ``bound`` is asked for only where there is a budget.
        """
        if self.most is None:
            yield Claim(limit_key, images, 0.0)
            return
        claim = await self._claim(limit_key, images, bound(), self.most)
        self._running[limit_key] += 1
        self._reserved += claim.usd
        try:
            yield claim
        finally:
            self._running[limit_key] -= 1
            self._reserved = self._reserved - claim.usd if any(self._running.values()) else 0.0
            self._changed.set()
            self._changed = asyncio.Event()

    def settle(self, claim: Claim, cost: float | None) -> None:
        """Counts what a call cost; one whose cost is unknown, as its answer got lost, counts at all that it might."""
        self.spent += claim.usd if cost is None else cost
        if cost is not None:
            largest = self._largest.get(claim.limit_key, 0.0)
            self._largest[claim.limit_key] = max(largest, cost / max(1, claim.images))

    async def _claim(self, limit_key: RateLimitKey, images: int, bound: Bound, most: float) -> Claim:
        while True:
            largest = None if bound.is_strict else self._largest.get(limit_key)
            claim = Claim(limit_key, images, bound.usd if largest is None else largest * max(1, images))
            self._check_affordable(claim, bound, most)
            is_first = largest is None and not bound.is_strict
            if _is_within(self.spent + self._reserved + claim.usd, most) and not (
                is_first and self._running[limit_key]
            ):
                return claim
            await self._changed.wait()

    def _check_affordable(self, claim: Claim, bound: Bound, most: float) -> None:
        """Raises ``BudgetError`` where the call would not fit even if all calls in flight cost nothing."""
        if _is_within(self.spent + claim.usd, most):
            return
        self.refused += 1
        why = budget_too_small(most, claim.limit_key, bound)
        if self.spent:
            why = (
                f"the budget of {most:g} USD is used up: {self.spent:.4g} USD are spent, and a call of {claim.limit_key} may"
                f" cost {claim.usd:.4g} USD"
            )
        self.refusal = self.refusal or why
        raise BudgetError(why)


def budget_too_small(most: float, limit_key: RateLimitKey, bound: Bound) -> str:
    """What to say of a budget that cannot pay even one call."""
    hint = ""
    if not bound.is_strict:
        how = f"'prices: {{{limit_key}: {{per_image: ...}}}}' in the suite states what it costs"
        hint = "; " + (how if limit_key.kind == "generate" else "a maximum of output tokens in its params lowers that")
    return f"the budget of {most:g} USD cannot pay one call of {limit_key}, which may cost {bound.usd:.4g} USD{hint}"


def _is_within(usd: float, most: float) -> bool:
    """A hair's breadth over is for the rounding of sums."""
    return usd <= most * (1 + 1e-9)
