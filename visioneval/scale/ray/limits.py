"""The limits and the budget of a run, for all of its workers: leases of turns, from the engine's throttle and budget.

``SharedLimits`` is an actor. A worker has ``Leases``, and a throttle and a budget whose turns come from there.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from visioneval.errors import ClosingError, ProviderError, StoppedError, VisionEvalError
from visioneval.running.calls.attempts import Budget, Claim, Reservation
from visioneval.running.calls.prices import CostBound
from visioneval.running.calls.throttle import Admission, Throttle
from visioneval.running.keys import RateLimitKey
from visioneval.suite.entries.providers import Limits


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A call that waits for its turn. ``bound`` is the most that it may cost; ``None`` without a budget."""

    number: int
    limit_key: RateLimitKey
    images: int
    bound: CostBound | None


@dataclass(slots=True)
class LeaseEnd:
    """How a call ended. ``costs`` has one entry for each time that it was paid for, ``None`` if unknown."""

    number: int
    succeeded: bool = False
    is_limited: bool = False
    """Whether it got a 429, which asks for a wait of ``retry_after`` seconds."""
    retry_after: float | None = None
    costs: list[float | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Grant:
    """The turn of a call, with the US dollars that are reserved for it, or the refusal."""

    number: int
    usd: float = 0.0
    refusal: Callable[[], VisionEvalError] | None = None


@dataclass(frozen=True, slots=True)
class LimitsStatus:
    """The state of the shared limits: lines about running and waiting calls, and the budget."""

    calls: tuple[str, ...] = ()
    spent: float = 0.0
    refused: int = 0
    refusal: str | None = None


def same_error(error: VisionEvalError) -> Callable[[], VisionEvalError]:
    """What makes the same error in another process: on the way, exceptions lose their fields."""
    if isinstance(error, ProviderError):
        return partial(ProviderError, str(error), kind=error.kind, retry_after=error.retry_after)
    return partial(type(error), str(error))


@dataclass(slots=True)
class _Lessee:
    """A worker's leases: tasks that wait or hold a turn, how granted ones end, and grants that it has not fetched."""

    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    ends: dict[int, asyncio.Future[LeaseEnd]] = field(default_factory=dict)
    grants: asyncio.Queue[Grant] = field(default_factory=asyncio.Queue)

    def end(self, end: LeaseEnd) -> None:
        """Ends a granted lease, or withdraws a request that was not granted yet."""
        task = self.tasks.pop(end.number, None)
        if end.number in self.ends:
            self.ends.pop(end.number).set_result(end)
        elif task is not None:
            task.cancel()


class SharedLimits:
    """Leases turns to workers, in blocks of what each asked for since its last message.

    A turn is held until its worker reports the end of the call, so that all workers together keep to the limits of
    one process. A lost worker's calls count as paid in full, since they may have been.
    """

    def __init__(
        self, limits: Mapping[str, Limits], max_concurrency: int, limit_usd: float | None, spent: float
    ) -> None:
        self._throttle = Throttle(limits, max_concurrency)
        self._budget = Budget(limit_usd, spent)
        self._lessees: dict[int, _Lessee] = defaultdict(_Lessee)
        self._lost: set[int] = set()

    async def send(self, worker: int, news: Sequence[LeaseRequest | LeaseEnd]) -> None:
        """Takes a worker's new requests and how earlier calls ended, in their order."""
        if worker in self._lost:
            return
        lessee = self._lessees[worker]
        for item in news:
            if isinstance(item, LeaseEnd):
                lessee.end(item)
            else:
                lessee.tasks[item.number] = asyncio.create_task(self._serve(lessee, item))

    async def grants(self, worker: int) -> list[Grant]:
        """Waits until any of a worker's calls may start, and returns all of them."""
        return await _all_of(self._lessees[worker].grants)

    async def lose(self, worker: int) -> None:
        """Ends the leases of a lost worker. Its calls in flight may have been paid for, so their reservations are."""
        self._lost.add(worker)
        lessee = self._lessees.pop(worker, _Lessee())
        for number in list(lessee.tasks):
            lessee.end(LeaseEnd(number, costs=[None]))
        lessee.grants.put_nowait(Grant(-1))

    async def close(self, *, all_calls: bool) -> None:
        """Starts no more generations, or no more calls of any kind."""
        if all_calls:
            self._throttle.shut()
        else:
            self._throttle.close()

    async def status(self) -> LimitsStatus:
        """The calls that run and wait, and the budget."""
        budget = self._budget
        return LimitsStatus(tuple(self._throttle.status()), budget.spent, budget.refused, budget.refusal)

    async def _serve(self, lessee: _Lessee, request: LeaseRequest) -> None:
        """Waits for the turn of a call, and holds it until the call has ended."""
        number, bound = request.number, request.bound
        asked = request.limit_key, request.images
        reservation = None if bound is None else self._budget.reserve(*asked, lambda: bound)
        try:
            async with AsyncExitStack() as stack:
                turn = await self._throttle.turn(stack, *asked, lambda: reservation or nullcontext())
                claim = Claim(*asked, 0.0) if reservation is None else reservation.claim
                started = monotonic()
                ended = lessee.ends[number] = asyncio.get_running_loop().create_future()
                lessee.grants.put_nowait(Grant(number, claim.usd))
                end = await ended
                for cost in end.costs:
                    self._budget.settle(claim, cost)
                if end.is_limited:
                    turn.slow_down(started, end.retry_after)
                elif end.succeeded:
                    turn.succeeded()
        except VisionEvalError as error:
            lessee.tasks.pop(number, None)
            lessee.grants.put_nowait(Grant(number, refusal=same_error(error)))


async def _all_of(queue: asyncio.Queue[Any]) -> list[Any]:
    """Waits for an item of a queue, and takes all that are there."""
    items = [await queue.get()]
    while not queue.empty():
        items.append(queue.get_nowait())
    return items


class Leases:
    """The leases of one worker. While a message is on its way, further ones are collected for the next."""

    def __init__(
        self,
        send: Callable[[Sequence[LeaseRequest | LeaseEnd]], Awaitable[None]],
        grants: Callable[[], Awaitable[Sequence[Grant]]],
    ) -> None:
        """``send`` and ``grants`` are those of the shared limits, for this worker."""
        self._send_news, self._next_grants = send, grants
        self._numbers = itertools.count(1)
        self._news: asyncio.Queue[LeaseRequest | LeaseEnd] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Grant]] = {}
        self._broken: str | None = None

    async def serve(self) -> None:
        """Exchanges messages until it is cancelled. If the shared limits are gone, no call starts any more."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send())
                group.create_task(self._receive())
        except* Exception as errors:  # whatever the connection raises
            self._broken = f"the rate limiter of the run does not respond: {type(errors.exceptions[0]).__name__}"
            for turn in self._waiting.values():
                if not turn.done():
                    turn.set_exception(StoppedError(self._broken))

    async def _send(self) -> None:
        while True:
            await self._send_news(await _all_of(self._news))

    async def _receive(self) -> None:
        while True:
            for grant in await self._next_grants():
                turn = self._waiting.pop(grant.number, None)
                if turn is not None and not turn.done():
                    turn.set_result(grant)

    async def acquire(self, limit_key: RateLimitKey, images: int, bound: CostBound | None) -> Lease:
        """Waits for the turn of a call. Raises ``StoppedError``, such as ``BudgetError``, and ``ProviderError``."""
        if self._broken is not None:
            raise StoppedError(self._broken)
        number = next(self._numbers)
        turn = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._news.put_nowait(LeaseRequest(number, limit_key, images, bound))
        try:
            grant = await turn
        except asyncio.CancelledError:
            self.release(LeaseEnd(number))
            raise
        if grant.refusal is not None:
            raise grant.refusal()
        return Lease(self, grant.usd, LeaseEnd(number))

    def release(self, end: LeaseEnd) -> None:
        """Reports the end of a call."""
        self._waiting.pop(end.number, None)
        self._news.put_nowait(end)


@dataclass(frozen=True, slots=True)
class Lease:
    """The turn of one call, for ``async with``. Reports at its end how the call ended."""

    leases: Leases
    usd: float
    end: LeaseEnd

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leases.release(self.end)

    def succeeded(self) -> None:
        """The provider answered."""
        self.end.succeeded = True

    def slow_down(self, started: float, retry_after: float | None) -> None:  # noqa: ARG002 - its own clock counts there
        """The call got a 429."""
        self.end.is_limited, self.end.retry_after = True, retry_after


@dataclass(slots=True)
class LeasedThrottle(Throttle):
    """Gets the turn of every call from the shared limits, together with the reservation of its cost."""

    leases: Leases = field(kw_only=True)

    async def turn(self, stack: AsyncExitStack, limit_key: RateLimitKey, images: int, admission: Admission) -> Lease:
        """Waits until a call may start. ``stack`` holds its turn."""
        self._check_open_here(limit_key)
        reservation = admission()
        is_limited = isinstance(reservation, Reservation) and reservation.budget.limit_usd is not None
        bound = reservation.bound() if isinstance(reservation, Reservation) and is_limited else None
        lease = await stack.enter_async_context(await self.leases.acquire(limit_key, images, bound))
        if isinstance(reservation, Reservation):
            reservation.claim = LeasedClaim(limit_key, images, lease.usd, lease)
        self._check_open_here(limit_key)
        return lease

    def _check_open_here(self, limit_key: RateLimitKey) -> None:
        if self._event(limit_key.kind).is_set():
            raise ClosingError("the run is being stopped")


@dataclass(frozen=True, slots=True)
class LeasedClaim(Claim):
    """A reservation of the shared budget."""

    lease: Lease


class LeasedBudget(Budget):
    """The worker's view of the shared budget: it only notes what calls cost."""

    def settle(self, claim: Claim, cost: float | None) -> None:
        """Notes the cost of a call for the end of its lease."""
        assert isinstance(claim, LeasedClaim)
        claim.lease.end.costs.append(cost)


def leased(
    leases: Leases, limits: Mapping[str, Limits], max_concurrency: int, limit_usd: float | None
) -> tuple[LeasedThrottle, LeasedBudget]:
    """The throttle and the budget of a worker."""
    return LeasedThrottle(limits, max_concurrency, leases=leases), LeasedBudget(limit_usd)
