"""Where short work runs: in the event loop, or in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from visioneval.aio import ShortWork
from visioneval.media.pixel_budget import PixelBudget

LONG = 0.03


class Clock:
    """Seconds that pass only when work is done or a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def is_in_loop(clock: Clock) -> Callable[..., bool]:
    """Does work of so many seconds, and returns whether it ran in the event loop."""
    short_work = ShortWork(clock)

    def work(seconds: float) -> threading.Thread:
        clock.now += seconds
        return threading.current_thread()

    def run(seconds: float = 0.001, size: float = 60_000) -> bool:
        return asyncio.run(short_work.run(work, seconds, size=size)) is threading.current_thread()

    return run


def test_short_work_never_leaves_the_loop(is_in_loop: Callable[..., bool]) -> None:
    assert all(is_in_loop() for _ in range(1000))


@pytest.mark.parametrize(("size", "expected"), [(256_000, True), (256_001, False), (float("inf"), False)])
def test_large_input_goes_to_a_thread_untried(is_in_loop: Callable[..., bool], size: float, expected: bool) -> None:
    assert is_in_loop(size=size) is expected


def test_what_would_wait_for_memory_begins_again_in_a_thread() -> None:
    """A small file may hold an image that does not fit into memory beside those that threads measure."""
    budget, is_held, done = PixelBudget(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hold() -> None:
        with budget.reserve(10**12):
            is_held.set()
            assert done.wait(30)

    def work() -> str:
        threads.append(threading.current_thread())
        if len(threads) == 2:
            done.set()
        with budget.reserve(1):
            return "checked"

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(30)
    assert asyncio.run(ShortWork().run(work, size=1)) == "checked"
    holder.join()
    assert [thread is threading.current_thread() for thread in threads] == [True, False]


def test_a_slow_disk_goes_to_threads(is_in_loop: Callable[..., bool]) -> None:
    """After a tenth of a second in the loop."""
    assert [is_in_loop(LONG) for _ in range(8)] == [True] * 4 + [False] * 4


def test_a_single_slow_write_changes_nothing(is_in_loop: Callable[..., bool]) -> None:
    assert is_in_loop(0.09)
    assert all(is_in_loop() for _ in range(100))


def test_long_work_holds_the_loop_for_a_small_share(is_in_loop: Callable[..., bool], clock: Clock) -> None:
    """Of 9 s of it."""
    start, held = clock.now, 0.0
    while clock.now < start + 9:
        held += LONG * is_in_loop(LONG)
    assert 0.2 < held < 0.02 * 9 + 0.1 + LONG


def test_errors_count_as_time(clock: Clock) -> None:
    short_work = ShortWork(clock)

    def fail() -> None:
        clock.now += 0.2
        raise ValueError(threading.current_thread() is threading.main_thread())

    for expected in (True, False):
        with pytest.raises(ValueError, match=str(expected)):
            asyncio.run(short_work.run(fail, size=1))


def test_others_have_a_turn_between(clock: Clock) -> None:
    """Else cells without a wait would keep an interrupt out."""
    turns: list[str] = []

    async def cells() -> None:
        short_work = ShortWork(clock)
        for _ in range(3):
            await short_work.run(turns.append, "cell", size=1)

    async def other() -> None:
        for _ in range(3):
            turns.append("other")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(cells(), other())

    asyncio.run(both())
    assert turns[:4] == ["cell", "other", "cell", "other"]


def test_a_cell_that_is_cancelled_does_not_lose_its_answer(clock: Clock) -> None:
    saved: list[str] = []

    async def cancelled() -> None:
        cell = asyncio.create_task(ShortWork(clock).run(saved.append, "paid", size=1))
        await asyncio.sleep(0)
        cell.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cell

    asyncio.run(cancelled())
    assert saved == ["paid"]
