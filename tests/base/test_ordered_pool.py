"""The pool of threads: the work of the oldest cell goes first, and an interrupted run waits for no thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future

import pytest

from visioneval.ordered_pool import OrderedPool, in_turn, is_any_busy
from visioneval.stopwatch import MeasuredPool, Stopwatch

WAIT_S = 30.0


class Blocked:
    """A pool whose only thread is at work until ``free``."""

    def __init__(self, pool: OrderedPool) -> None:
        begun, self._free = threading.Event(), threading.Event()
        self.pool = pool
        self.done: list[str] = []
        self.blocker = pool.submit(lambda: (begun.set(), self._free.wait(WAIT_S)))
        assert begun.wait(WAIT_S)

    def submit(self, name: str, turn: int) -> Future[None]:
        with in_turn(turn):
            return self.pool.submit(self.done.append, name)

    def free(self) -> None:
        self._free.set()
        self.pool.shutdown()


@pytest.fixture(params=[OrderedPool, MeasuredPool])
def blocked(request: pytest.FixtureRequest) -> Iterator[Blocked]:
    pool: Callable[[int, str], OrderedPool] = request.param
    with Stopwatch():
        blocked = Blocked(pool(1, "test"))
        yield blocked
        blocked.free()


def test_the_lowest_turn_goes_first_and_its_work_in_order(blocked: Blocked) -> None:
    for name, turn in (("b1", 2), ("c1", 3), ("a1", 1), ("b2", 2), ("a2", 1)):
        blocked.submit(name, turn)
    blocked.pool.submit(blocked.done.append, "without a turn")
    blocked.free()
    assert blocked.done == ["without a turn", "a1", "a2", "b1", "b2", "c1"]


def test_a_turn_reaches_tasks_and_threads_of_asyncio(blocked: Blocked) -> None:
    async def cell(name: str, turn: int) -> None:
        with in_turn(turn):
            await asyncio.gather(*(asyncio.to_thread(blocked.done.append, f"{name}{step}") for step in (1, 2)))

    async def cells() -> None:
        asyncio.get_running_loop().set_default_executor(blocked.pool)
        tasks = [asyncio.ensure_future(cell(name, turn)) for name, turn in (("c", 3), ("b", 2), ("a", 1))]
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the tasks of a cell have begun
        blocked._free.set()
        await asyncio.gather(*tasks)

    asyncio.run(cells())
    assert blocked.done == ["a1", "a2", "b1", "b2", "c1", "c2"]


def test_cancelled_work_is_left_out(blocked: Blocked) -> None:
    first, second = blocked.submit("a", 1), blocked.submit("b", 2)
    assert first.cancel()
    blocked.free()
    assert blocked.done == ["b"]
    assert second.done()


def test_results_and_errors_are_returned() -> None:
    with OrderedPool(2, "test") as pool:
        assert pool.submit(divmod, 7, 2).result() == (3, 1)
        error = pool.submit(divmod, 7, 0).exception()
    assert isinstance(error, ZeroDivisionError)


def test_abandoned_work_that_waits_is_cancelled_and_what_runs_is_not_waited_for(blocked: Blocked) -> None:
    waiting = blocked.submit("a", 1)
    blocked.pool.abandon(0)
    assert waiting.cancelled()
    with pytest.raises(CancelledError):
        waiting.result()
    assert (blocked.blocker.running(), blocked.pool.is_busy, is_any_busy()) == (True, True, True)
    blocked.free()
    assert (blocked.done, blocked.pool.is_busy) == ([], False)


def test_abandoned_work_without_a_turn_is_done_although_every_thread_is_busy(blocked: Blocked) -> None:
    """Such as writing down the name of a video that is paid for."""
    paid, measured = blocked.pool.submit(blocked.done.append, "paid"), blocked.submit("measured", 1)
    blocked.pool.abandon(0)
    paid.result(WAIT_S)
    assert (blocked.done, measured.cancelled(), blocked.blocker.running()) == (["paid"], True, True)


def test_abandoned_work_may_end_within_the_patience() -> None:
    pool, begun, waits = OrderedPool(1, "test"), threading.Event(), threading.Event()
    work = pool.submit(lambda: (begun.set(), waits.wait(WAIT_S), "cached")[-1])
    assert begun.wait(WAIT_S)
    threading.Thread(target=waits.set).start()
    pool.abandon(WAIT_S)
    assert work.result(0) == "cached"
