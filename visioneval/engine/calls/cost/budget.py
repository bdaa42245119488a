"""Tracks the cost of calls and enforces the budget."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from visioneval.engine.calls.cost.bounds import CostBound
from visioneval.engine.calls.limit_keys import RateLimitKey
from visioneval.errors import BudgetError


@dataclass(frozen=True, slots=True)
class Claim:
    """The US dollars reserved for one call in flight; ``images`` is the number of images it generates."""

    limit_key: RateLimitKey
    images: int
    usd: float


@dataclass(slots=True)
class Budget:
    """The budget of a run in US dollars, or ``None``. A call in flight reserves the most that it may cost.

    If that amount is only an estimate because the token count is unknown, the first call of a rate-limit key runs
    alone, and later calls reserve the largest cost of a call so far.
    """

    limit_usd: float | None = None
    spent: float = 0.0
    refused: int = 0
    refusal: str | None = None
    """The message of the first call that the budget refused."""
    _reserved: float = 0.0
    _running: dict[RateLimitKey, int] = field(default_factory=lambda: defaultdict(int))
    _largest: dict[RateLimitKey, float] = field(default_factory=dict)
    """The largest cost of a call so far, per generated image if it generates any."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def reserve(self, limit_key: RateLimitKey, images: int, bound: Callable[[], CostBound]) -> Reservation:
        """A context that reserves the cost of one paid call. Calls ``bound`` only if there is a budget."""
        return Reservation(self, limit_key, images, bound)

    async def start(self, limit_key: RateLimitKey, images: int, bound: Callable[[], CostBound]) -> Claim:
        """Reserves the cost of one call. Waits while calls in flight may still leave enough of the budget.

        Raises ``BudgetError`` if they cannot.
        """
        if self.limit_usd is None:
            return Claim(limit_key, images, 0.0)
        claim = await self._claim(limit_key, images, bound(), self.limit_usd)
        self._running[limit_key] += 1
        self._reserved += claim.usd
        return claim

    def end(self, claim: Claim) -> None:
        """Releases the reservation of a call."""
        if self.limit_usd is None:
            return
        self._running[claim.limit_key] -= 1
        self._reserved = self._reserved - claim.usd if any(self._running.values()) else 0.0
        self._changed.set()
        self._changed = asyncio.Event()

    def settle(self, claim: Claim, cost: float | None) -> None:
        """Adds the cost of a call. If the cost is unknown because the reply was lost, adds the whole reservation."""
        self.spent += claim.usd if cost is None else cost
        if cost:  # a call that cost nothing, such as one that was paid before, tells nothing about the next
            largest = self._largest.get(claim.limit_key, 0.0)
            self._largest[claim.limit_key] = max(largest, cost / max(1, claim.images))

    async def _claim(self, limit_key: RateLimitKey, images: int, bound: CostBound, limit_usd: float) -> Claim:
        while True:
            largest = None if bound.is_strict else self._largest.get(limit_key)
            claim = Claim(limit_key, images, bound.usd if largest is None else largest * max(1, images))
            self._check_affordable(claim, bound, limit_usd)
            is_first = largest is None and not bound.is_strict
            if _is_within(self.spent + self._reserved + claim.usd, limit_usd) and not (
                is_first and self._running[limit_key]
            ):
                return claim
            await self._changed.wait()

    def _check_affordable(self, claim: Claim, bound: CostBound, limit_usd: float) -> None:
        """Raises ``BudgetError`` if the call exceeds the budget even when all calls in flight cost nothing."""
        if _is_within(self.spent + claim.usd, limit_usd):
            return
        self.refused += 1
        message = budget_too_small(limit_usd, claim.limit_key, bound)
        if self.spent:
            message = (
                f"the budget of {limit_usd:g} USD is used up: {self.spent:.4g} USD spent, and the next call of"
                f" {claim.limit_key} may cost {claim.usd:.4g} USD"
            )
        self.refusal = self.refusal or message
        raise BudgetError(message)


@dataclass(slots=True)
class Reservation:
    """The reservation of one call, for ``async with``. ``claim`` is set while the call is in flight."""

    budget: Budget
    limit_key: RateLimitKey
    images: int
    bound: Callable[[], CostBound]
    claim: Claim = field(init=False)

    async def __aenter__(self) -> Claim:
        """Waits until the call is affordable. Raises ``BudgetError`` if it cannot be."""
        self.claim = await self.budget.start(self.limit_key, self.images, self.bound)
        return self.claim

    async def __aexit__(self, *_: object) -> None:
        self.budget.end(self.claim)


def budget_too_small(limit_usd: float, limit_key: RateLimitKey, bound: CostBound) -> str:
    """The message for a budget that is smaller than the cost of one call."""
    hint = ""
    if not bound.is_strict:
        price_hint = f"'prices: {{{limit_key}: {{per_image: ...}}}}' in the suite sets the price"
        hint = "; " + (
            price_hint
            if limit_key.kind == "generate"
            else "to lower this, set a maximum number of output tokens in its params"
        )
    return (
        f"the budget of {limit_usd:g} USD is too small for one call of {limit_key}, which may cost {bound.usd:.4g} USD"
        f"{hint}"
    )


def _is_within(usd: float, limit_usd: float) -> bool:
    """Allows a tiny excess for floating-point rounding."""
    return usd <= limit_usd * (1 + 1e-9)
