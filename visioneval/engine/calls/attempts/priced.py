"""The attempts of a paid call: each reserves its cost in the budget, is priced, and is logged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Generic, TypeVar

from visioneval.engine.calls.attempts.outcomes import may_be_billed, status_of
from visioneval.engine.calls.cost.bounds import CallSize, CostBound, bound_of
from visioneval.engine.calls.cost.budget import Budget, Reservation
from visioneval.engine.calls.cost.pricing import Prices
from visioneval.engine.calls.limit_keys import RateLimitKey
from visioneval.engine.calls.log import CallLog
from visioneval.engine.calls.throttle import Tries
from visioneval.engine.sanitize import usd
from visioneval.providers.base import Generation, Reply

T = TypeVar("T", Generation, Reply)


@dataclass(slots=True, kw_only=True)
class PricedAttempts(Generic[T]):
    """The attempts of one call, one after the other. ``cost`` is that of the last one, ``None`` if unknown.

    An attempt that may have been billed although its reply was lost counts towards the budget. One that ``is_paid``
    before it begins needs none of it.
    """

    limit_key: RateLimitKey
    key: str
    work: Callable[[], Awaitable[T]]
    size: Callable[[], CallSize]
    images: int
    is_paid: Callable[[], bool]
    tries: Tries
    prices: Prices
    budget: Budget
    log: CallLog
    cost: float | None = None
    _reservation: Reservation = field(init=False)
    _was_paid: bool = False

    def admission(self) -> Reservation:
        """The reservation of the next attempt."""
        self._was_paid = self.is_paid()
        # No method: a reservation that refers to these attempts would keep them, with their question, in memory.
        bound = partial(_bound, self.prices, self.limit_key, self.size, is_paid=self._was_paid)
        self._reservation = self.budget.reserve(self.limit_key, self.images, bound)
        return self._reservation

    async def attempt(self) -> T:
        """Makes an attempt, once it is admitted."""
        start, claim = perf_counter(), self._reservation.claim
        try:
            answer = await self.work()
        except BaseException as error:
            self.log.call(self.limit_key, self.key, status_of(error), self.tries.count, perf_counter() - start)
            if may_be_billed(error):
                self.budget.settle(claim, None)
            raise
        outputs = len(answer.outputs) if isinstance(answer, Generation) else 0
        is_unusable = getattr(answer, "unusable", None) is not None and outputs < self.images
        if is_unusable:
            outputs = self.images  # what cannot be used is paid for too
        usage = self.prices.checked_usage(self.limit_key, answer.usage, outputs)
        known = usd(answer.cost_usd)
        if answer.cost_usd is None:
            known = self.prices.reported_cost(self.limit_key, usage, outputs)
        status = "unusable" if is_unusable or getattr(answer, "unreadable", None) is not None else "ok"
        if getattr(answer, "refused", None) is not None:
            status = "refused"
        is_free = self._was_paid or (known is None and not answer.usage and status == "refused")
        self.budget.settle(claim, 0.0 if is_free else known)
        seconds = perf_counter() - start
        self.log.call(self.limit_key, self.key, status, self.tries.count, seconds, usage=usage or {}, cost=known)
        self.cost = known
        return replace(answer, usage=usage)


def _bound(prices: Prices, limit_key: RateLimitKey, size: Callable[[], CallSize], *, is_paid: bool) -> CostBound:
    return CostBound(0.0, is_strict=True) if is_paid else bound_of(prices, limit_key, size())
