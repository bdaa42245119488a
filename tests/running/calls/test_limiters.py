"""Concurrency and rate limits of provider calls."""

from __future__ import annotations

import asyncio

import pytest
from concurrency import Clock, settle

from visioneval import ProviderError
from visioneval.errors import ClosingError
from visioneval.running.calls import throttle
from visioneval.running.calls.throttle import CallRate, ConcurrencyLimiter
from visioneval.suite.entries.providers import MAX_ATTEMPTS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Callers:
    """Concurrent callers of a limiter: ``admitted`` in order of admission."""

    def __init__(self, most: int) -> None:
        self.limiter = ConcurrencyLimiter(most)
        self.admitted: list[str] = []
        self.releases: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def arrive(self, *names: str) -> None:
        for name in names:
            self.releases[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._call(name))
            await settle()

    async def _call(self, name: str) -> None:
        async with self.limiter:
            self.admitted.append(name)
            await self.releases[name].wait()

    async def release(self, *names: str) -> None:
        for name in names:
            self.releases[name].set()
            await settle()

    async def finish(self) -> None:
        for event in self.releases.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def test_callers_are_admitted_in_order() -> None:
    callers = Callers(2)
    await callers.arrive("a", "b", "c", "d", "e")
    assert (callers.admitted, callers.limiter.waiting) == (["a", "b"], 3)
    await callers.release("b")
    assert callers.admitted == ["a", "b", "c"]
    await callers.release("a", "c")
    assert (callers.admitted, callers.limiter.waiting) == (["a", "b", "c", "d", "e"], 0)
    await callers.finish()


async def test_failed_call_frees_its_slot() -> None:
    limiter = ConcurrencyLimiter(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with limiter:
                raise ZeroDivisionError
    async with limiter:
        assert limiter.waiting == 0


async def test_cancelled_waiter_is_skipped() -> None:
    callers = Callers(1)
    await callers.arrive("a", "b", "c")
    callers.tasks["b"].cancel()
    await settle()
    assert callers.limiter.waiting == 1
    await callers.release("a")
    assert callers.admitted == ["a", "c"]
    await callers.finish()


@pytest.mark.parametrize("cancelled_first", [False, True])
async def test_slot_is_not_lost_if_a_caller_is_cancelled_on_admission(cancelled_first: bool) -> None:
    callers = Callers(1)
    await callers.arrive("a", "b", "c")
    if cancelled_first:
        callers.tasks["b"].cancel()
    callers.releases["a"].set()
    await asyncio.sleep(0)  # a is leaving, the next caller has not run yet
    callers.tasks["b"].cancel()
    await settle()
    assert callers.tasks["b"].cancelled()
    assert callers.admitted == ["a", "c"]
    await callers.release("c")
    await callers.arrive("d")
    assert callers.admitted == ["a", "c", "d"]
    await callers.finish()


async def test_caller_cancelled_while_the_limiter_closes_is_cancelled() -> None:
    callers = Callers(1)
    await callers.arrive("a", "b", "c")
    callers.tasks["b"].cancel()
    callers.limiter.close()
    await settle()
    assert callers.tasks["b"].cancelled()
    assert isinstance(callers.tasks["c"].exception(), ClosingError)
    await callers.finish()


async def test_closed_limiter_rejects_waiters_and_lets_calls_finish() -> None:
    callers = Callers(1)
    await callers.arrive("a", "b")
    callers.limiter.close()
    await callers.arrive("c")
    for name in ("b", "c"):
        with pytest.raises(ClosingError, match="being stopped"):
            await callers.tasks[name]
    await callers.release("a")
    assert callers.tasks["a"].exception() is None
    assert callers.admitted == ["a"]


async def concurrency_of(limiter: ConcurrencyLimiter, clock: Clock) -> int:
    """The number of callers that an open limiter admits at once."""
    clock.now += limiter.seconds_until_open
    callers = Callers(1)
    callers.limiter = limiter
    await callers.arrive(*map(str, range(40)))
    many = len(callers.admitted)
    for task in callers.tasks.values():
        task.cancel()
    await callers.finish()
    return many


async def test_429_halves_concurrency_once_for_all_running_calls(clock: Clock) -> None:
    limiter = ConcurrencyLimiter(16)
    assert await concurrency_of(limiter, clock) == 16
    began = clock.now
    clock.now += 1
    for _ in range(5):
        limiter.slow_down(began, None)
    assert await concurrency_of(limiter, clock) == 8
    limiter.slow_down(clock.now, None)
    assert await concurrency_of(limiter, clock) == 4
    for _ in range(9):
        clock.now += limiter.seconds_until_open + 1
        limiter.slow_down(clock.now, None)
    assert await concurrency_of(limiter, clock) == 1


async def test_concurrency_grows_back_to_its_maximum_after_successes(clock: Clock) -> None:
    limiter = ConcurrencyLimiter(8)
    limiter.slow_down(clock.now, None)
    grown = [await concurrency_of(limiter, clock)]
    for _ in range(60):
        limiter.succeeded()
        grown.append(await concurrency_of(limiter, clock))
    assert (grown[0], grown[-1]) == (4, 8)
    assert grown == sorted(grown)
    assert grown.index(5) in (4, 5)  # one more after as many successes as the current limit


async def test_retry_after_pauses_all_calls(clock: Clock) -> None:
    limiter = ConcurrencyLimiter(4)
    limiter.slow_down(clock.now, 30.0)
    assert limiter.seconds_until_open == 30
    limiter.slow_down(clock.now - 1, 10.0)
    assert limiter.seconds_until_open == 30, "an earlier time says nothing new"
    limiter.slow_down(clock.now - 1, 50.0)
    assert limiter.seconds_until_open == 50, "a later one does"
    limiter.slow_down(clock.now - 1, None)
    assert limiter.seconds_until_open == 50


async def test_pauses_double_with_repeated_429s_until_a_success(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BACKOFF_S", 1.0)
    monkeypatch.setattr("random.uniform", lambda low, high: high)

    limiter = ConcurrencyLimiter(4)

    def backoff() -> float:
        clock.now += limiter.seconds_until_open + 1
        limiter.slow_down(clock.now, None)
        return limiter.seconds_until_open

    assert [backoff() for _ in range(6)] == [5, 10, 20, 40, 60, 60]
    limiter.succeeded()
    assert backoff() == 5


@pytest.mark.parametrize("stated", [None, 0.0, 1.0])
async def test_the_attempts_of_a_call_outlast_a_limit_per_minute(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, stated: float | None
) -> None:
    """Also where the server states a wait that does not help, and each pause is the shortest that it may be."""
    monkeypatch.setattr(throttle, "BACKOFF_S", 1.0)
    monkeypatch.setattr("random.uniform", lambda low, high: low)

    limiter, began = ConcurrencyLimiter(1), clock.now
    for _ in range(MAX_ATTEMPTS - 1):
        limiter.slow_down(clock.now, stated)
        clock.now += limiter.seconds_until_open
    assert clock.now - began >= 60


async def test_a_stated_wait_that_helps_is_exact(clock: Clock) -> None:
    limiter = ConcurrencyLimiter(1)
    for _ in range(20):
        limiter.slow_down(clock.now, 0.25)
        assert limiter.seconds_until_open == 0.25
        clock.now += 1
        limiter.succeeded()


async def test_endless_429s_are_no_error_of_this_program(clock: Clock) -> None:
    limiter = ConcurrencyLimiter(1)
    for _ in range(2000):
        clock.now += limiter.seconds_until_open + 1
        limiter.slow_down(clock.now, 0.0)
    assert limiter.seconds_until_open <= throttle.LONGEST_BACKOFF_S


async def test_calls_that_get_a_429_together_pause_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "BACKOFF_S", 1.0)
    waits = iter([0.5, *[1.0] * 6])
    monkeypatch.setattr("random.uniform", lambda low, high: next(waits))

    limiter = ConcurrencyLimiter(16)
    began = clock.now
    clock.now += 1
    for _ in range(6):
        limiter.slow_down(began, None)
    assert limiter.seconds_until_open == 2.5, "the wait of the first"
    clock.now += 0.25
    limiter.slow_down(began, None)
    assert limiter.seconds_until_open == 2.25, "a call in flight says nothing new"


async def test_pause_ends_without_running_calls(clock: Clock) -> None:
    callers = Callers(4)
    callers.limiter.slow_down(clock.now, 0.02)
    await callers.arrive("a", "b", "c")
    assert (callers.admitted, callers.limiter.waiting) == ([], 3)
    await asyncio.sleep(0.05)  # the timer fired, but this clock has not advanced
    assert callers.admitted == []
    clock.now += 0.02
    await asyncio.gather(*(_until_admitted(callers, name) for name in ("a", "b")))
    assert callers.admitted == ["a", "b"], "half of four"
    await callers.finish()
    assert callers.admitted == ["a", "b", "c"]


async def _until_admitted(callers: Callers, name: str) -> None:
    while name not in callers.admitted:  # noqa: ASYNC110 - a timer admits it
        await asyncio.sleep(0.001)


async def test_too_long_pause_fails_all_waiters(clock: Clock) -> None:
    callers = Callers(1)
    await callers.arrive("a", "b")
    callers.limiter.slow_down(clock.now, 86_400.0)
    await callers.arrive("c")
    for name in ("b", "c"):
        with pytest.raises(ProviderError, match="asks for a wait of 24 h") as caught:
            await callers.tasks[name]
        assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 86_400)
    await callers.finish()
    clock.now += 86_400
    await callers.arrive("d")
    assert callers.admitted == ["a", "d"]
    await callers.finish()


def test_rate_is_even_after_a_burst(clock: Clock) -> None:
    rate = CallRate(60)
    waits = [rate.turn(1) for _ in range(10)]
    assert waits == [0, 0, 0, 0, 0, 0, 0, 1, 2, 3], "a burst of six seconds, plus the call that is due"
    clock.now += 3
    assert rate.turn(1) == 1
    clock.now += 3600
    assert [rate.turn(1) for _ in range(8)] == waits[:8], "unused calls do not accumulate"


def test_rate_counts_several_calls_at_once(clock: Clock) -> None:
    rate = CallRate(60)
    assert [rate.turn(4), rate.turn(4), rate.turn(4)] == [0, 0, 2]
    clock.now += 2
    assert rate.turn(1) == 4
