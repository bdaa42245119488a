"""Work in threads: what keeps a processor busy waits for its turn, and all else begins at once."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from typing import Any, TypeVar

from visioneval.stopwatch import waiting, working

T = TypeVar("T")
SPARE_THREADS = 4
"""Of a run, beside one for each processor, which measurements may hold for long: these read, check and store."""


def processors() -> int:
    """How many processors this process may use, at least 1."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Slots:
    """A semaphore of one event loop: the lowest priority enters first, and first come, first served within it.

    Graders measure step by step. Without priorities, the first step of every cell would come before the second of any,
    so that no cell is done until all are nearly done.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._positions = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def taken(self, priority: int) -> AsyncIterator[None]:
        """Holds a slot, once one is free."""
        if self._free:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heappush(self._waiting, (priority, next(self._positions), turn))
            try:
                with waiting():
                    await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # its turn came in the same moment
                    self._leave()
                raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        while self._waiting:
            _, _, turn = heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


async def in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs ``work`` in a thread. It is no wait, whatever else its grader waits for."""
    with working():
        return await asyncio.to_thread(work, *args)


async def finish_in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs ``work`` in a thread to its end, even if the caller is cancelled: it stores what is paid for."""
    return await asyncio.shield(asyncio.to_thread(work, *args))


class Threads(ThreadPoolExecutor):
    """Threads of which is known whether any is at work. What runs in one cannot be stopped."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submits a function."""
        future = super().submit(fn, *args, **kwargs)
        _unfinished.add(future)
        future.add_done_callback(_unfinished.discard)
        return future

    def abandon(self, patience_s: float) -> None:
        """Waits at most ``patience_s`` for what is at work."""
        self.shutdown(wait=False)
        wait(list(_unfinished), patience_s)


_unfinished: set[Future[Any]] = set()
"""Of all pools."""


def is_any_busy() -> bool:
    """Whether any thread is at work, which would delay the end of the process."""
    return bool(_unfinished)
