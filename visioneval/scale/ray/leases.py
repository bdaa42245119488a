"""A worker's side of the shared limits: a throttle and a budget whose turns come from there."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Protocol

from visioneval.errors import ClosingError, StoppedError
from visioneval.running.calls.budget import Budget, Claim, CostBound, Reservation
from visioneval.running.calls.limiters import RateLimitKey
from visioneval.running.calls.throttle import Admission, Throttle
from visioneval.scale.ray.messages import Grant, LeaseEnd, LeaseRequest
from visioneval.suite.entries.limits import Limits


class LimitsClient(Protocol):
    """How a worker reaches the shared limits."""

    def send(self, requests: Sequence[LeaseRequest], ends: Sequence[LeaseEnd]) -> Awaitable[None]:
        """Sends new requests, and how earlier calls ended."""

    def grants(self) -> Awaitable[list[Grant]]:
        """Waits for grants."""


class Leases:
    """The leases of one worker. While a message is on its way, further ones are collected for the next."""

    def __init__(self, client: LimitsClient) -> None:
        self._client = client
        self._numbers = itertools.count(1)
        self._requests: list[LeaseRequest] = []
        self._ends: list[LeaseEnd] = []
        self._waiting: dict[int, asyncio.Future[Grant]] = {}
        self._has_news = asyncio.Event()
        self._broken: str | None = None

    async def serve(self) -> None:
        """Exchanges messages until it is cancelled. If the shared limits are gone, no call starts any more."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send())
                group.create_task(self._receive())
        except* Exception as errors:  # whatever the connection raises
            self._broken = f"the limits of the run do not answer: {type(errors.exceptions[0]).__name__}"
            for turn in self._waiting.values():
                if not turn.done():
                    turn.set_exception(StoppedError(self._broken))

    async def _send(self) -> None:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            requests, self._requests = self._requests, []
            ends, self._ends = self._ends, []
            await self._client.send(requests, ends)

    async def _receive(self) -> None:
        while True:
            for grant in await self._client.grants():
                turn = self._waiting.pop(grant.number, None)
                if turn is not None and not turn.done():
                    turn.set_result(grant)

    async def acquire(self, limit_key: RateLimitKey, images: int, bound: CostBound | None) -> Lease:
        """Waits for the turn of a call. Raises ``StoppedError``, such as ``BudgetError``, and ``ProviderError``."""
        if self._broken is not None:
            raise StoppedError(self._broken)
        number = next(self._numbers)
        turn: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self._waiting[number] = turn
        self._requests.append(LeaseRequest(number, limit_key, images, bound))
        self._has_news.set()
        try:
            grant = await turn
        except asyncio.CancelledError:
            self.release(LeaseEnd(number))
            raise
        if grant.refusal is not None:
            raise grant.refusal.error()
        return Lease(self, number, grant.usd)

    def release(self, end: LeaseEnd) -> None:
        """Reports the end of a call."""
        self._waiting.pop(end.number, None)
        self._ends.append(end)
        self._has_news.set()


@dataclass(slots=True)
class Lease:
    """The turn of one call, for ``async with``. Reports at its end how the call ended."""

    leases: Leases
    number: int
    usd: float
    costs: list[float | None] = field(default_factory=list)
    _is_success: bool = False
    _is_limited: bool = False
    _retry_after: float | None = None

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leases.release(
            LeaseEnd(self.number, self._is_success, self._is_limited, self._retry_after, tuple(self.costs))
        )

    def succeeded(self) -> None:
        """The provider answered."""
        self._is_success = True

    def slow_down(self, started: float, retry_after: float | None) -> None:  # noqa: ARG002 - its own clock counts there
        """The call got a 429."""
        self._is_limited, self._retry_after = True, retry_after


@dataclass(slots=True)
class LeasedThrottle(Throttle):
    """Gets the turn of every call from the shared limits, together with the reservation of its cost."""

    leases: Leases = field(kw_only=True)

    async def turn(self, stack: AsyncExitStack, limit_key: RateLimitKey, images: int, admission: Admission) -> Lease:
        """Waits until a call may start. ``stack`` holds its turn."""
        if self._event(limit_key.kind).is_set():
            raise ClosingError("the run is being stopped")
        reservation = admission()
        bound: CostBound | None = None
        if isinstance(reservation, Reservation) and reservation.budget.limit_usd is not None:
            bound = reservation.bound()
        lease = await stack.enter_async_context(await self.leases.acquire(limit_key, images, bound))
        if isinstance(reservation, Reservation):
            reservation.claim = LeasedClaim(limit_key, images, lease.usd, lease)
        if self._event(limit_key.kind).is_set():
            raise ClosingError("the run is being stopped")
        return lease


@dataclass(frozen=True, slots=True)
class LeasedClaim(Claim):
    """A reservation of the shared budget."""

    lease: Lease


class LeasedBudget(Budget):
    """The worker's view of the shared budget: it only notes what calls cost."""

    def settle(self, claim: Claim, cost: float | None) -> None:
        """Notes the cost of a call for the end of its lease."""
        assert isinstance(claim, LeasedClaim)
        claim.lease.costs.append(cost)


def leased(
    leases: Leases, limits: Mapping[str, Limits], max_concurrency: int, limit_usd: float | None
) -> tuple[LeasedThrottle, LeasedBudget]:
    """The throttle and the budget of a worker."""
    return LeasedThrottle(limits, max_concurrency, leases=leases), LeasedBudget(limit_usd)
