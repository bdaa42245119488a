"""Concurrency and rate limits of provider calls."""

from __future__ import annotations

import asyncio

import pytest
from stories import Clock, play, settle

from visioneval.engine.calls import limiters
from visioneval.engine.calls.limiters import CallRate, ConcurrencyLimiter
from visioneval.errors import ClosingError, ProviderError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Crowd:
    """People at a gate: ``inside`` in the order in which they came in."""

    def __init__(self, most: int) -> None:
        self.gate = ConcurrencyLimiter(most)
        self.inside: list[str] = []
        self.out: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        for name in names:
            self.out[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._visit(name))
            await settle()

    async def _visit(self, name: str) -> None:
        async with self.gate.slot():
            self.inside.append(name)
            await self.out[name].wait()

    async def leave(self, *names: str) -> None:
        for name in names:
            self.out[name].set()
            await settle()

    async def end(self) -> None:
        for event in self.out.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


def test_callers_are_admitted_in_order() -> None:
    async def story() -> None:
        crowd = Crowd(2)
        await crowd.come("a", "b", "c", "d", "e")
        assert (crowd.inside, crowd.gate.waiting) == (["a", "b"], 3)
        await crowd.leave("b")
        assert crowd.inside == ["a", "b", "c"]
        await crowd.leave("a", "c")
        assert (crowd.inside, crowd.gate.waiting) == (["a", "b", "c", "d", "e"], 0)
        await crowd.end()

    play(story())


def test_failed_call_frees_its_slot() -> None:
    async def story() -> None:
        gate = ConcurrencyLimiter(1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async with gate.slot():
                    raise ZeroDivisionError
        async with gate.slot():
            assert gate.waiting == 0

    play(story())


def test_cancelled_waiter_is_skipped() -> None:
    async def story() -> None:
        crowd = Crowd(1)
        await crowd.come("a", "b", "c")
        crowd.tasks["b"].cancel()
        await settle()
        assert crowd.gate.waiting == 1
        await crowd.leave("a")
        assert crowd.inside == ["a", "c"]
        await crowd.end()

    play(story())


@pytest.mark.parametrize("cancelled_first", [False, True])
def test_slot_is_not_lost_if_a_caller_is_cancelled_on_admission(cancelled_first: bool) -> None:
    async def story() -> None:
        crowd = Crowd(1)
        await crowd.come("a", "b", "c")
        if cancelled_first:
            crowd.tasks["b"].cancel()
        crowd.out["a"].set()
        await asyncio.sleep(0)  # a is leaving, the next caller has not run yet
        crowd.tasks["b"].cancel()
        await settle()
        assert crowd.tasks["b"].cancelled()
        assert crowd.inside == ["a", "c"]
        await crowd.leave("c")
        await crowd.come("d")
        assert crowd.inside == ["a", "c", "d"]
        await crowd.end()

    play(story())


def test_caller_cancelled_while_the_limiter_closes_is_cancelled() -> None:
    async def story() -> None:
        crowd = Crowd(1)
        await crowd.come("a", "b", "c")
        crowd.tasks["b"].cancel()
        crowd.gate.close()
        await settle()
        assert crowd.tasks["b"].cancelled()
        assert isinstance(crowd.tasks["c"].exception(), ClosingError)
        await crowd.end()

    play(story())


def test_closed_limiter_rejects_waiters_and_lets_calls_finish() -> None:
    async def story() -> None:
        crowd = Crowd(1)
        await crowd.come("a", "b")
        crowd.gate.close()
        await crowd.come("c")
        for name in ("b", "c"):
            with pytest.raises(ClosingError, match="being stopped"):
                await crowd.tasks[name]
        await crowd.leave("a")
        assert crowd.tasks["a"].exception() is None
        assert crowd.inside == ["a"]

    play(story())


async def allowed(gate: ConcurrencyLimiter, clock: Clock) -> int:
    """How many a gate lets through at once, once it is open."""
    clock.now += gate.seconds_until_open
    crowd = Crowd(1)
    crowd.gate = gate
    await crowd.come(*map(str, range(40)))
    many = len(crowd.inside)
    for task in crowd.tasks.values():
        task.cancel()
    await crowd.end()
    return many


def test_429_halves_concurrency_once_for_all_running_calls(clock: Clock) -> None:
    async def story() -> None:
        gate = ConcurrencyLimiter(16)
        assert await allowed(gate, clock) == 16
        began = clock.now
        clock.now += 1
        for _ in range(5):
            gate.slow_down(began, None)
        assert await allowed(gate, clock) == 8
        gate.slow_down(clock.now, None)
        assert await allowed(gate, clock) == 4
        for _ in range(9):
            clock.now += gate.seconds_until_open + 1
            gate.slow_down(clock.now, None)
        assert await allowed(gate, clock) == 1

    play(story())


def test_concurrency_grows_back_to_its_maximum_after_successes(clock: Clock) -> None:
    async def story() -> None:
        gate = ConcurrencyLimiter(8)
        gate.slow_down(clock.now, None)
        grown = [await allowed(gate, clock)]
        for _ in range(60):
            gate.succeeded()
            grown.append(await allowed(gate, clock))
        assert (grown[0], grown[-1]) == (4, 8)
        assert grown == sorted(grown)
        assert grown.index(5) in (4, 5)  # one more after as many successes as the current limit

    play(story())


def test_retry_after_pauses_all_calls(clock: Clock) -> None:
    async def story() -> None:
        gate = ConcurrencyLimiter(4)
        gate.slow_down(clock.now, 30.0)
        assert gate.seconds_until_open == 30
        gate.slow_down(clock.now - 1, 10.0)
        assert gate.seconds_until_open == 30, "an earlier time says nothing new"
        gate.slow_down(clock.now - 1, 50.0)
        assert gate.seconds_until_open == 50, "a later one does"
        gate.slow_down(clock.now - 1, None)
        assert gate.seconds_until_open == 50

    play(story())


def test_pauses_double_with_repeated_429s_until_a_success(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiters, "BACKOFF_S", 1.0)
    monkeypatch.setattr("random.uniform", lambda low, high: high)

    async def story() -> None:
        gate = ConcurrencyLimiter(4)

        def struck() -> float:
            clock.now += gate.seconds_until_open + 1
            gate.slow_down(clock.now, None)
            return gate.seconds_until_open

        assert [struck() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
        gate.succeeded()
        assert struck() == 1

    play(story())


def test_pause_ends_without_running_calls(clock: Clock) -> None:
    async def story() -> None:
        crowd = Crowd(4)
        crowd.gate.slow_down(clock.now, 0.02)
        await crowd.come("a", "b", "c")
        assert (crowd.inside, crowd.gate.waiting) == ([], 3)
        await asyncio.sleep(0.05)  # the timer fired, but this clock has not advanced
        assert crowd.inside == []
        clock.now += 0.02
        await asyncio.gather(*(_until_inside(crowd, name) for name in ("a", "b")))
        assert crowd.inside == ["a", "b"], "half of four"
        await crowd.end()
        assert crowd.inside == ["a", "b", "c"]

    play(story())


async def _until_inside(crowd: Crowd, name: str) -> None:
    while name not in crowd.inside:  # noqa: ASYNC110 - a timer admits it
        await asyncio.sleep(0.001)


def test_too_long_pause_fails_all_waiters(clock: Clock) -> None:
    async def story() -> None:
        crowd = Crowd(1)
        await crowd.come("a", "b")
        crowd.gate.slow_down(clock.now, 86_400.0)
        await crowd.come("c")
        for name in ("b", "c"):
            with pytest.raises(ProviderError, match="asks for a wait of 24 h") as caught:
                await crowd.tasks[name]
            assert (caught.value.kind, caught.value.retry_after) == ("rate_limit", 86_400)
        await crowd.end()
        clock.now += 86_400
        await crowd.come("d")
        assert crowd.inside == ["a", "d"]
        await crowd.end()

    play(story())


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
