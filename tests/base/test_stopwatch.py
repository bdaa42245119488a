"""Time at work and time spent waiting are counted apart, by a clock that moves only where a test says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from visioneval.stopwatch import MeasuredPool, Stopwatch, waiting, working

pytestmark = pytest.mark.slow


class Clock:
    """A clock that only advances when a test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("visioneval.stopwatch.perf_counter", lambda: self.now)

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


def test_a_wait_for_a_free_thread(clock: Clock) -> None:
    release = threading.Event()
    with MeasuredPool(1) as pool:
        blocker = pool.submit(release.wait)
        with Stopwatch() as stopwatch:
            task = pool.submit(clock.advance, 1)
            clock.advance(2)
            release.set()
            task.result()
            assert stopwatch.read() == (1, 2)
        blocker.result()


def test_a_cancelled_wait_for_a_thread_ends(clock: Clock) -> None:
    release = threading.Event()
    with MeasuredPool(1) as pool:
        blocker = pool.submit(release.wait)
        with Stopwatch() as stopwatch:
            task = pool.submit(clock.advance, 1)
            clock.advance(2)
            assert task.cancel()
            clock.advance(4)
            assert stopwatch.read() == (4, 2)
        release.set()
        blocker.result()


def test_a_wait_in_a_thread(clock: Clock) -> None:
    def work() -> None:
        clock.advance(1)
        with waiting():
            clock.advance(2)

    with MeasuredPool(1) as pool, Stopwatch() as stopwatch:
        pool.submit(work).result()
        assert stopwatch.read() == (1, 2)


def test_nothing_is_measured_outside(clock: Clock) -> None:
    with MeasuredPool(1) as pool, waiting(), working():
        clock.advance(1)
        assert pool.submit(lambda: 7).result() == 7
