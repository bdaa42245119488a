"""Work in threads and together: what goes first, what is waited for, and what counts as work and as waiting."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from visioneval.threads import (
    Slots,
    Stopwatch,
    Threads,
    finish_in_thread,
    gather_all,
    in_thread,
    is_any_busy,
    processors,
    waiting,
    working,
)

WAIT_S = 10.0


def entered(turns: list[tuple[str, int]], count: int = 1, cancelled: str = "") -> list[str]:
    """The order in which work of these names and turns enters, all of which waits while another holds the slots."""
    order: list[str] = []

    async def run() -> None:
        slots, free = Slots(count), asyncio.Event()

        async def hold() -> None:
            async with slots.taken(0):
                await free.wait()

        async def enter(name: str, turn: int) -> None:
            async with slots.taken(turn):
                order.append(name)
                await asyncio.sleep(0)

        holders = [asyncio.ensure_future(hold()) for _ in range(count)]
        await asyncio.sleep(0)
        tasks = {name: asyncio.ensure_future(enter(name, turn)) for name, turn in turns}
        await asyncio.sleep(0)
        assert order == []
        if cancelled:
            tasks[cancelled].cancel()
        free.set()
        await asyncio.gather(*holders, *tasks.values(), return_exceptions=True)
        async with asyncio.timeout(WAIT_S), slots.taken(0):  # the slots are free again
            pass

    asyncio.run(run())
    return order


def test_the_lowest_turn_goes_first_and_its_work_in_order() -> None:
    turns = [("b1", 2), ("c1", 3), ("a1", 1), ("b2", 2), ("a2", 1), ("without a turn", 0)]
    assert entered(turns) == ["without a turn", "a1", "a2", "b1", "b2", "c1"]
    assert entered(turns, count=2) == ["without a turn", "a1", "a2", "b1", "b2", "c1"]


def test_what_was_cancelled_is_left_out() -> None:
    assert entered([("a", 1), ("b", 2)], cancelled="a") == ["b"]


def test_no_more_work_enters_than_there_are_slots() -> None:
    most = 0

    async def run() -> None:
        slots, inside = Slots(3), 0

        async def enter(turn: int) -> None:
            nonlocal inside, most
            async with slots.taken(turn):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(enter(turn) for turn in range(20)))

    asyncio.run(run())
    assert most == 3


def test_work_that_is_cancelled_in_the_moment_of_its_turn_leaves_its_slot_to_others() -> None:
    async def run() -> bool:
        slots = Slots(1)

        async def enter() -> bool:
            async with slots.taken(1):
                return True

        async with slots.taken(0):
            first, second = asyncio.ensure_future(enter()), asyncio.ensure_future(enter())
            await asyncio.sleep(0)
        first.cancel()  # which has the slot now, but has not run yet
        return await asyncio.wait_for(second, WAIT_S)

    assert asyncio.run(run())


def test_at_least_one_processor_is_used() -> None:
    assert processors() >= 1


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_abandoned_work_is_not_waited_for(release: threading.Event) -> None:
    pool, begun = Threads(1, "test"), threading.Event()
    running = pool.submit(lambda: (begun.set(), release.wait(WAIT_S)))
    assert begun.wait(WAIT_S)
    pool.abandon(0)
    assert (running.running(), is_any_busy()) == (True, True)
    release.set()
    running.result(WAIT_S)


def test_abandoned_work_may_end_within_the_patience(release: threading.Event) -> None:
    pool, begun = Threads(1, "test"), threading.Event()
    work = pool.submit(lambda: (begun.set(), release.wait(WAIT_S), "cached")[-1])
    assert begun.wait(WAIT_S)
    threading.Thread(target=release.set).start()
    pool.abandon(WAIT_S)
    assert work.result(0) == "cached"


def test_a_caller_that_is_cancelled_does_not_lose_its_answer(release: threading.Event) -> None:
    """Even if every thread is at work."""
    saved: list[str] = []

    async def cancelled() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(Threads(1))
        busy = loop.run_in_executor(None, release.wait, WAIT_S)
        cell = asyncio.create_task(finish_in_thread(saved.append, "paid"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell
        release.set()
        await busy
        await asyncio.to_thread(list)  # comes after it

    asyncio.run(cancelled())
    assert saved == ["paid"]


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


class Body:
    """What a call sent."""


def test_the_error_of_several_calls_does_not_stay_in_memory() -> None:
    bodies: list[weakref.ref[Body]] = []

    async def fail() -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        raise ValueError("no answer")

    async def both() -> None:
        with pytest.raises(ValueError, match="no answer"):
            await gather_all([fail(), fail()])

    gc.disable()
    try:
        asyncio.run(both())
        assert [body() for body in bodies] == [None, None]
    finally:
        gc.enable()
