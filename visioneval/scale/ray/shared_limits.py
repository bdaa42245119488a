"""The limits and the budget of a run, for all of its workers: an actor with the engine's own throttle and budget."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from time import monotonic

from visioneval.errors import ClosingError, VisionEvalError
from visioneval.running.calls.budget import Budget, Claim, Reservation
from visioneval.running.calls.throttle import Throttle
from visioneval.scale.ray.messages import Grant, LeaseEnd, LeaseRequest, LimitsStatus, Refusal
from visioneval.suite.entries.limits import Limits


@dataclass(slots=True)
class _Lessee:
    """A worker's leases: tasks that wait or hold a turn, how granted ones end, and grants that it has not fetched."""

    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    ends: dict[int, asyncio.Future[LeaseEnd]] = field(default_factory=dict)
    grants: list[Grant] = field(default_factory=list)
    has_grants: asyncio.Event = field(default_factory=asyncio.Event)

    def grant(self, grant: Grant) -> None:
        self.grants.append(grant)
        self.has_grants.set()


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
        self._lessees: dict[int, _Lessee] = {}
        self._lost: set[int] = set()

    async def send(self, worker: int, requests: Sequence[LeaseRequest], ends: Sequence[LeaseEnd]) -> None:
        """Takes a worker's new requests, and how earlier calls ended."""
        if worker in self._lost:
            return
        lessee = self._lessee(worker)
        for end in ends:
            self._end(lessee, end)
        for request in requests:
            lessee.tasks[request.number] = asyncio.create_task(self._serve(lessee, request))

    async def grants(self, worker: int) -> list[Grant]:
        """Waits until any of a worker's calls may start, and returns all of them."""
        lessee = self._lessee(worker)
        await lessee.has_grants.wait()
        lessee.has_grants.clear()
        grants, lessee.grants = lessee.grants, []
        return grants

    async def lose(self, worker: int) -> None:
        """Ends the leases of a lost worker. Its calls in flight may have been paid for, so their reservations are."""
        self._lost.add(worker)
        lessee = self._lessees.pop(worker, None)
        if lessee is None:
            return
        for number in list(lessee.tasks):
            self._end(lessee, LeaseEnd(number, costs=(None,)))
        lessee.grant(Grant(-1, refusal=Refusal("closing", "the worker is lost")))

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

    def _lessee(self, worker: int) -> _Lessee:
        return self._lessees.setdefault(worker, _Lessee())

    def _end(self, lessee: _Lessee, end: LeaseEnd) -> None:
        """Ends a granted lease, or withdraws a request that was not granted yet."""
        if (granted := lessee.ends.get(end.number)) is not None:
            if not granted.done():
                granted.set_result(end)
        elif (task := lessee.tasks.get(end.number)) is not None:
            task.cancel()

    async def _serve(self, lessee: _Lessee, request: LeaseRequest) -> None:
        """Waits for the turn of a call, and holds it until the call has ended."""
        reservations: list[Reservation] = []

        def admission() -> AbstractAsyncContextManager[object]:
            if request.bound is None:
                return nullcontext()
            bound = request.bound
            reservations.append(self._budget.reserve(request.limit_key, request.images, lambda: bound))
            return reservations[-1]

        number = request.number
        try:
            async with AsyncExitStack() as stack:
                turn = await self._throttle.turn(stack, request.limit_key, request.images, admission)
                claim = reservations[-1].claim if reservations else Claim(request.limit_key, request.images, 0.0)
                started = monotonic()
                lessee.ends[number] = asyncio.get_running_loop().create_future()
                lessee.grant(Grant(number, claim.usd))
                end = await lessee.ends[number]
                for cost in end.costs:
                    self._budget.settle(claim, cost)
                if end.is_limited:
                    turn.slow_down(started, end.retry_after)
                elif end.succeeded:
                    turn.succeeded()
        except VisionEvalError as error:
            lessee.grant(Grant(number, refusal=Refusal.of(error)))
        except asyncio.CancelledError:
            lessee.grant(Grant(number, refusal=Refusal.of(ClosingError("the call was withdrawn"))))
        finally:
            lessee.ends.pop(number, None)
            lessee.tasks.pop(number, None)
