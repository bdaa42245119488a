"""The limits and the budget that the workers of a cluster share, without Ray between them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any

import pytest

from visioneval import BudgetError, ProviderError, StoppedError
from visioneval.errors import ClosingError
from visioneval.running.calls.prices import CostBound
from visioneval.running.keys import RateLimitKey
from visioneval.scale.ray.limits import Grant, LeasedBudget, LeasedThrottle, Leases, SharedLimits, leased
from visioneval.suite.entries.providers import Limits

KEY = RateLimitKey("openai", "model", "generate")
JUDGE = RateLimitKey("openai", "judge", "judge")


def leases_of(shared: SharedLimits, worker: int) -> Leases:
    """The leases of a worker in the process of the shared limits."""
    return Leases(partial(shared.send, worker), partial(shared.grants, worker))


class Callers:
    """The workers of a run, which make calls of ``usd`` each."""

    def __init__(self, shared: SharedLimits, limit_usd: float | None, workers: int, limits: dict[str, Limits]) -> None:
        self.parts: list[tuple[LeasedThrottle, LeasedBudget]] = []
        self.leases = [leases_of(shared, worker) for worker in range(workers)]
        self.parts = [leased(leases, limits, 8, limit_usd) for leases in self.leases]
        self.running = self.most = self.paid = 0

    async def call(self, worker: int, work: Callable[[], Awaitable[Any]] | None = None, usd: float = 0.1) -> None:
        throttle, budget = self.parts[worker]
        reservations = []

        def admission() -> Any:
            reservations.append(budget.reserve(KEY, 1, lambda: CostBound(usd, is_strict=True)))
            return reservations[-1]

        async def counted() -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await (work or (lambda: asyncio.sleep(0.001)))()
                budget.settle(reservations[-1].claim, usd)
                self.paid += 1
            finally:
                self.running -= 1

        await throttle.call(KEY, counted, images=1, admission=admission)


@asynccontextmanager
async def callers(limit_usd: float | None = None, workers: int = 3, concurrency: int = 8, **limits: Any) -> Any:
    by_name = {"openai:model": Limits(**limits)} if limits else {}
    shared = SharedLimits(by_name, concurrency, limit_usd, 0.0)
    calls = Callers(shared, limit_usd, workers, by_name)
    serving = [asyncio.create_task(leases.serve()) for leases in calls.leases]
    try:
        yield shared, calls
    finally:
        for task in serving:
            task.cancel()


async def begun(calls: Callers, count: int) -> None:
    """Waits until so many calls are in flight."""
    for _ in range(100_000):
        if calls.running >= count:
            return
        await asyncio.sleep(0)
    pytest.fail("no call has begun")


async def all_of(calls: Callers, count: int) -> list[BaseException | None]:
    workers = len(calls.leases)
    return await asyncio.gather(*(calls.call(at % workers) for at in range(count)), return_exceptions=True)


def test_the_workers_together_keep_to_the_concurrency_of_one_process() -> None:
    async def run() -> None:
        async with callers(concurrency=4) as (_, calls):
            assert await all_of(calls, 60) == [None] * 60
            assert calls.most == 4

    asyncio.run(run())


def test_no_more_is_spent_than_the_budget_allows() -> None:
    async def run() -> None:
        async with callers(1.0) as (shared, calls):
            errors = [error for error in await all_of(calls, 30) if error is not None]
            assert calls.paid == 10
            assert {type(error) for error in errors} == {BudgetError}
            status = await shared.status()
            assert status.spent == pytest.approx(1.0)
            assert status.refused == 20
            assert "the budget of 1 USD is used up" in str(status.refusal)

    asyncio.run(run())


def test_calls_in_flight_of_a_lost_worker_count_as_paid() -> None:
    async def run() -> None:
        async with callers(1.0, workers=2) as (shared, calls):
            forever = asyncio.Event()
            lost = [asyncio.create_task(calls.call(0, forever.wait)) for _ in range(3)]
            await begun(calls, 3)
            await shared.lose(0)
            for task in lost:
                task.cancel()
            await asyncio.gather(*lost, return_exceptions=True)
            assert (await shared.status()).spent == pytest.approx(0.3)
            await asyncio.gather(*(calls.call(1) for _ in range(9)), return_exceptions=True)
            assert calls.paid == 7

    asyncio.run(run())


def test_a_lost_worker_leaves_its_turns_to_others() -> None:
    async def run() -> None:
        async with callers(concurrency=2, workers=2) as (shared, calls):
            forever = asyncio.Event()
            lost = [asyncio.create_task(calls.call(0, forever.wait)) for _ in range(5)]
            await begun(calls, 2)
            await shared.lose(0)
            await asyncio.gather(*(calls.call(1) for _ in range(4)))
            assert calls.paid == 4
            for task in lost:
                task.cancel()

    asyncio.run(run())


def test_a_429_of_one_worker_pauses_the_others() -> None:
    async def limited() -> None:
        raise ProviderError("slow down", kind="rate_limit", retry_after=700)

    async def run() -> None:
        async with callers(workers=2) as (shared, calls):
            with pytest.raises(ProviderError, match="the provider asks for a wait of 700 s"):
                await calls.call(0, limited)
            with pytest.raises(ProviderError, match="resume the run after that") as raised:
                await calls.call(1)
            assert raised.value.kind == "rate_limit"
            assert "rate limit" in (await shared.status()).calls[0]

    asyncio.run(run())


def test_requests_per_minute_count_over_all_workers() -> None:
    """Of a limit of 60 per minute, six seconds may start at once; the seventh call waits."""

    async def run() -> None:
        async with callers(requests_per_minute=60) as (_, calls):
            start = monotonic()
            tasks = [asyncio.create_task(calls.call(at % 3)) for at in range(12)]
            await asyncio.sleep(0.3)
            assert 6 <= calls.paid <= 7 + monotonic() - start
            for task in tasks:
                task.cancel()

    asyncio.run(run())


def test_closing_ends_waiting_generations_but_not_judgements() -> None:
    async def run() -> None:
        async with callers(workers=1, concurrency=1) as (shared, calls):
            release = asyncio.Event()
            first, second = (asyncio.create_task(calls.call(0, release.wait)) for _ in range(2))
            await begun(calls, 1)
            await shared.close(all_calls=False)
            with pytest.raises(ClosingError):
                await second
            release.set()
            await first
            throttle, _ = calls.parts[0]
            async with AsyncExitStack() as stack:
                await throttle.turn(stack, JUDGE, 0, AsyncExitStack)
            await shared.close(all_calls=True)
            async with AsyncExitStack() as stack:
                with pytest.raises(ClosingError):
                    await throttle.turn(stack, JUDGE, 0, AsyncExitStack)

    asyncio.run(run())


def test_a_withdrawn_request_takes_no_turn() -> None:
    async def run() -> None:
        async with callers(workers=2, concurrency=1) as (_, calls):
            release = asyncio.Event()
            first = asyncio.create_task(calls.call(0, release.wait))
            await begun(calls, 1)
            second = asyncio.create_task(calls.call(0, release.wait))
            await asyncio.sleep(0.01)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            release.set()
            await first
            await calls.call(1)
            assert calls.paid == 2

    asyncio.run(run())


def test_no_call_starts_without_the_shared_limits() -> None:
    async def gone() -> list[Grant]:
        await asyncio.sleep(0.01)
        raise ConnectionError

    async def run() -> None:
        leases = Leases(partial(SharedLimits({}, 0, None, 0.0).send, 1), gone)
        serving = asyncio.create_task(leases.serve())
        for _ in range(2):
            with pytest.raises(StoppedError, match="the rate limiter of the run does not respond: ConnectionError"):
                await leases.acquire(KEY, 1, None)
        await serving

    asyncio.run(run())


def test_a_request_that_is_withdrawn_before_it_was_sent_holds_no_turn() -> None:
    """Both are in one message."""

    async def run() -> None:
        async with callers(workers=1, concurrency=1) as (_, calls):
            first = asyncio.create_task(calls.call(0))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            async with asyncio.timeout(30):
                await calls.call(0)
            assert calls.paid == 1

    asyncio.run(run())
