"""Time at work and time spent waiting are counted apart, by a clock that moves only where a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from visioneval.threads import Slots, Stopwatch, in_thread, waiting, working

pytestmark = pytest.mark.slow


class Clock:
    """A clock that only advances when a test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("visioneval.threads.perf_counter", lambda: self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def times(self, work: Callable[[], Coroutine[Any, Any, object]]) -> tuple[float, float]:
        """The time at work and the time spent waiting."""

        async def run() -> tuple[float, float]:
            with Stopwatch() as stopwatch:
                await work()
                return stopwatch.read()

        return asyncio.run(run())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_wait_in_the_event_loop(clock: Clock) -> None:
    async def work() -> None:
        clock.advance(1)
        with waiting():
            clock.advance(2)
        clock.advance(3)

    assert clock.times(work) == (4, 2)


def test_a_wait_within_work_is_a_wait(clock: Clock) -> None:
    async def work() -> None:
        with working(), working():
            clock.advance(1)
            with waiting():
                clock.advance(2)

    assert clock.times(work) == (1, 2)


def test_a_wait_beside_work_is_no_wait(clock: Clock) -> None:
    done, begun = asyncio.Event(), asyncio.Event()

    async def call() -> None:
        with working():
            begun.set()
            await done.wait()

    async def wait() -> None:
        with waiting():
            await begun.wait()
            clock.advance(2)
            done.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            clock.advance(1)

    async def work() -> None:
        await asyncio.gather(call(), wait())

    assert clock.times(work) == (2, 1)


def test_a_wait_for_a_slot(clock: Clock) -> None:
    async def work() -> None:
        slots, begun = Slots(1), asyncio.Event()

        async def hold() -> None:
            async with slots.taken(0):
                begun.set()
                await asyncio.sleep(0)
                clock.advance(2)

        other = asyncio.ensure_future(hold())
        await begun.wait()
        async with slots.taken(1):
            await in_thread(clock.advance, 1)
        await other

    assert clock.times(work) == (1, 2)


def test_a_cancelled_wait_for_a_slot_ends(clock: Clock) -> None:
    async def work() -> None:
        slots = Slots(1)

        async def enter() -> None:
            async with slots.taken(1):
                pass

        async with slots.taken(0):
            task = asyncio.ensure_future(enter())
            await asyncio.sleep(0)
            clock.advance(2)
            task.cancel()
            await asyncio.wait([task])
            clock.advance(4)

    assert clock.times(work) == (4, 2)


def test_a_wait_in_a_thread(clock: Clock) -> None:
    def work() -> None:
        clock.advance(1)
        with waiting():
            clock.advance(2)

    assert clock.times(lambda: in_thread(work)) == (1, 2)
    assert clock.times(lambda: asyncio.to_thread(work)) == (1, 2)


def test_work_in_a_thread_beside_a_wait_is_no_wait(clock: Clock) -> None:
    async def work() -> None:
        done = asyncio.Event()

        async def wait() -> None:
            with waiting():
                await done.wait()

        other = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        await in_thread(clock.advance, 3)
        done.set()
        await other

    assert clock.times(work) == (3, 0)


def test_nothing_is_measured_outside(clock: Clock) -> None:
    with waiting(), working():
        clock.advance(1)
        assert asyncio.run(in_thread(lambda: 7)) == 7
