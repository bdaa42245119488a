"""Work in threads and coroutines, and how long it works and waits.

What keeps a processor busy waits for its turn, and all else begins at once. Time at work and time spent waiting are
measured apart, whichever thread does the work.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from heapq import heappop, heappush
from time import perf_counter
from typing import Any, Self, TypeVar

from visioneval.errors import ClosingError, StoppedError


class Stopwatch:
    """Time at work and time spent waiting since it was created, of everything in its block and in the threads that it
    uses too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start = self._changed = perf_counter()
        self._waits = self._works = 0
        self._waited = 0.0

    def __enter__(self) -> Self:
        self._tokens = _current.set(self), _is_at_work.set(False)
        return self

    def __exit__(self, *_: object) -> None:
        current, at_work = self._tokens
        _current.reset(current)
        _is_at_work.reset(at_work)

    def change(self, *, waits: int, works: int) -> None:
        """Counts waits and work that begin or end now."""
        with self._lock:
            self._settle()
            self._waits += waits
            self._works += works

    def _settle(self) -> float:
        now = perf_counter()
        if self._waits > 0 and self._works <= 0:
            self._waited += now - self._changed
        self._changed = now
        return now

    def read(self) -> tuple[float, float]:
        """The seconds at work and the seconds spent waiting so far."""
        with self._lock:
            elapsed = self._settle() - self._start
            return elapsed - self._waited, self._waited


_current: ContextVar[Stopwatch | None] = ContextVar("stopwatch", default=None)
_is_at_work: ContextVar[bool] = ContextVar("is_at_work", default=False)


@contextmanager
def waiting() -> Iterator[None]:
    """Marks a wait for a turn."""
    stopwatch, works = _here()
    if stopwatch is None:
        yield
        return
    stopwatch.change(waits=1, works=-works)
    try:
        yield
    finally:
        stopwatch.change(waits=-1, works=works)


@contextmanager
def working() -> Iterator[None]:
    """Marks work that does not end because something else waits, such as a call in flight."""
    stopwatch, works = _here()
    if stopwatch is None or works:
        yield
        return
    token = _is_at_work.set(True)
    stopwatch.change(waits=0, works=1)
    try:
        yield
    finally:
        stopwatch.change(waits=0, works=-1)
        _is_at_work.reset(token)


def _here() -> tuple[Stopwatch | None, int]:
    """The stopwatch of this code, and how much marked work waits when this code waits: 0 or 1."""
    return _current.get(), int(_is_at_work.get())


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


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Like ``asyncio.gather``, but if one fails, the others still finish, since they may be paid for.

    Raises the error to report; see ``primary_error``.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            errors.append(result)
        else:
            results.append(result)
    try:
        if errors:
            raise primary_error(errors)
        return results
    finally:
        del errors  # an error whose traceback refers to this list would stay in memory, with all that was sent


def primary_error(errors: Sequence[BaseException]) -> BaseException:
    """The most important of several errors: first errors that stop the run, last calls that never started."""

    def rank(error: BaseException) -> int:
        return 2 if isinstance(error, ClosingError) else int(not isinstance(error, StoppedError))

    return min(errors, key=rank)
