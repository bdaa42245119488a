"""The limits and the budget of a run, for all of its workers: one process gives each call its turn.

``SharedLimits`` is an actor with the engine's throttle and budget. A worker has a throttle and a budget that ask it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from visioneval.errors import ClosingError, ProviderError, StoppedError, VisionEvalError
from visioneval.running.calls.budget import Budget, Claim, CostBound, Reservation
from visioneval.running.calls.limiters import RateLimitKey
from visioneval.running.calls.throttle import Admission, CallTurn, Throttle
from visioneval.suite.entries.limits import Limits

Grant = float | Callable[[], VisionEvalError]
"""The turn of a call: the US dollars that are reserved for it, or what makes the error of a refusal."""


@dataclass(slots=True)
class CallEnd:
    """How a call ended. ``costs`` has one entry for each time that it was paid for, ``None`` if unknown."""

    is_answered: bool = False
    is_limited: bool = False
    """Whether it got a 429, which asks for a wait of ``retry_after`` seconds."""
    retry_after: float | None = None
    costs: list[float | None] = field(default_factory=list)

    def succeeded(self) -> None:
        """The provider answered."""
        self.is_answered = True

    def slow_down(self, started: float, retry_after: float | None) -> None:  # noqa: ARG002 - its own clock counts there
        """The call got a 429."""
        self.is_limited, self.retry_after = True, retry_after


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


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """The turn of a call in flight, which ends when ``stack`` is closed."""

    stack: AsyncExitStack
    turn: CallTurn
    claim: Claim
    started: float


class SharedLimits:
    """Gives calls of workers their turns.

    A turn is held until its worker reports the end of the call, so that all workers together keep to the limits of
    one process. A lost worker's calls count as paid in full, since they may have been.
    """

    def __init__(
        self, limits: Mapping[str, Limits], max_concurrency: int, limit_usd: float | None, spent: float
    ) -> None:
        self._throttle = Throttle(limits, max_concurrency)
        self._budget = Budget(limit_usd, spent)
        self._held: dict[int, dict[int, HeldTurn]] = defaultdict(dict)
        """By worker and number of the call."""
        self._lost: set[int] = set()

    async def acquire(
        self, worker: int, number: int, limit_key: RateLimitKey, images: int, bound: CostBound | None
    ) -> Grant:
        """Waits until a call may start. ``bound`` is the most that it may cost; ``None`` without a budget."""
        reservation = None if bound is None else self._budget.reserve(limit_key, images, lambda: bound)
        async with AsyncExitStack() as stack:
            try:
                turn = await self._throttle.turn(stack, limit_key, images, lambda: reservation or nullcontext())
            except VisionEvalError as error:
                return same_error(error)
            if worker in self._lost:
                return partial(ClosingError, "the driver has lost this worker")
            claim = Claim(limit_key, images, 0.0) if reservation is None else reservation.claim
            self._held[worker][number] = HeldTurn(stack.pop_all(), turn, claim, monotonic())
            return claim.usd

    async def release(self, worker: int, number: int, end: CallEnd) -> None:
        """Ends the turn of a call."""
        if (held := self._held[worker].pop(number, None)) is None:
            return  # refused, or of a lost worker
        async with held.stack:
            for cost in end.costs:
                self._budget.settle(held.claim, cost)
            if end.is_limited:
                held.turn.slow_down(held.started, end.retry_after)
            elif end.is_answered:
                held.turn.succeeded()

    async def lose(self, worker: int) -> None:
        """Ends the turns of a lost worker. Its calls in flight may have been paid for, so their reservations are."""
        self._lost.add(worker)
        for number in list(self._held[worker]):
            await self.release(worker, number, CallEnd(costs=[None]))

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


@dataclass(slots=True)
class LeasedThrottle(Throttle):
    """Gets the turn of every call from the shared limits, together with the reservation of its cost.

    ``acquire`` and ``release`` are those of the shared limits, for this worker; nothing waits for ``release``.
    """

    acquire: Callable[..., Awaitable[Grant]] = field(kw_only=True)
    release: Callable[[int, CallEnd], object] = field(kw_only=True)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), kw_only=True)

    async def turn(self, stack: AsyncExitStack, limit_key: RateLimitKey, images: int, admission: Admission) -> CallEnd:
        """Waits until a call may start. ``stack`` holds its turn.

        Raises ``StoppedError``, such as ``BudgetError``, and ``ProviderError``.
        """
        self._check_open_here(limit_key)
        reservation = admission()
        is_limited = isinstance(reservation, Reservation) and reservation.budget.limit_usd is not None
        bound = reservation.bound() if isinstance(reservation, Reservation) and is_limited else None
        usd, end = await stack.enter_async_context(self._held_turn(limit_key, images, bound))
        if isinstance(reservation, Reservation):
            reservation.claim = LeasedClaim(limit_key, images, usd, end)
        self._check_open_here(limit_key)
        return end

    @asynccontextmanager
    async def _held_turn(self, *asked: object) -> AsyncIterator[tuple[float, CallEnd]]:
        """A turn, with the US dollars that are reserved for it, whose end is reported."""
        number, end = next(self._numbers), CallEnd()
        waiting = asyncio.ensure_future(self.acquire(number, *asked))
        try:
            grant = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(lambda _: self.release(number, end))  # not before, as messages may overtake
            raise
        except Exception as error:  # whatever the connection raises
            raise StoppedError(f"the limits of the run do not answer: {type(error).__name__}") from None
        if callable(grant):
            raise grant()
        try:
            yield grant, end
        finally:
            self.release(number, end)

    def _check_open_here(self, limit_key: RateLimitKey) -> None:
        if self._event(limit_key.kind).is_set():
            raise ClosingError("the run is being stopped")


@dataclass(frozen=True, slots=True)
class LeasedClaim(Claim):
    """A reservation of the shared budget."""

    end: CallEnd


class LeasedBudget(Budget):
    """The worker's view of the shared budget: it only notes what calls cost."""

    def settle(self, claim: Claim, cost: float | None) -> None:
        """Notes the cost of a call for the end of its turn."""
        assert isinstance(claim, LeasedClaim)
        claim.end.costs.append(cost)
