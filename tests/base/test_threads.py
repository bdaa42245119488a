"""Work in threads: the measurements of the oldest cell go first, and an interrupted run waits for no thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from visioneval.threads import Slots, Threads, finish_in_thread, is_any_busy, processors

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
