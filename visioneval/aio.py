"""Helpers for asyncio: running coroutines concurrently, and functions in threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Any, TypeVar

from visioneval.errors import ClosingError, StoppedError

T = TypeVar("T")

SMALL = 256_000
"""Reading, hashing or checking fewer bytes than this is mostly faster than starting a thread."""


def processors() -> int:
    """How many processors this process may use, at least 1."""
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Like ``asyncio.gather``, but if one fails, the others still finish, since they may be paid for.

    Raises the error to report; see ``primary_error``. A single coroutine runs without a task, which is the common case.
    """
    coroutines = list(work)
    if len(coroutines) == 1:
        return [await coroutines[0]]
    results: list[T] = []
    errors: list[BaseException] = []
    for result in await asyncio.gather(*coroutines, return_exceptions=True):
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


async def run_in_thread(work: Callable[..., T], *args: Any, when: bool) -> T:
    """Runs ``work`` in a thread if ``when`` is true. For short work, a thread costs more than it saves."""
    return await asyncio.to_thread(work, *args) if when else work(*args)


async def finish_in_thread(work: Callable[..., T], *args: Any) -> T:
    """Runs ``work`` in a thread, even if the caller is cancelled before one is free: it stores what is paid for."""
    return await asyncio.shield(asyncio.to_thread(work, *args))


_holds_loop: ContextVar[bool] = ContextVar("holds_loop", default=False)


class WouldWaitError(BaseException):
    """Work in the event loop cannot go on before another thread has finished, which all calls would wait for.

    Not an ``Exception``, as whoever decodes an image takes those for damage.
    """


def check_may_wait() -> None:
    """Raises ``WouldWaitError`` in the event loop, where ``ShortWork`` then starts the work again in a thread."""
    if _holds_loop.get():
        raise WouldWaitError


class ShortWork:
    """Runs what is short for most cells, such as checking and saving a small image, in the event loop while it is.

    In a thread it would take longer, as Python's lock is then handed to and fro at each file operation. What takes
    longer than ``SHORT_S`` may hold the loop for ``BURST_S`` in all and for a ``SHARE`` of its time after that, so that
    large images and slow disks go to threads, and a single slow write changes nothing.
    """

    SHORT_S = 0.005
    BURST_S = 0.1
    SHARE = 0.02

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._held = 0.0
        """Seconds for which long work held the loop, less the share that it may have."""
        self._read_at = clock()

    async def run(self, work: Callable[..., T], *args: Any, size: float) -> T:
        """The result of ``work``. More than ``SMALL`` bytes of input go to a thread untried.

        So does work with ``size`` infinity, which may wait for a network. What ends in ``WouldWaitError`` begins again
        in a thread. A caller that is cancelled does not cancel the work.
        """
        now = self._clock()
        self._held = max(0.0, self._held - self.SHARE * (now - self._read_at))
        self._read_at = now
        if size > SMALL or self._held > self.BURST_S:
            return await finish_in_thread(work, *args)
        try:
            result = self._in_loop(work, args, now)
        except WouldWaitError:
            return await finish_in_thread(work, *args)
        # Where nothing else waits, cells that need no thread would keep out an interrupt. Not before the work: a cell
        # that is cancelled then would lose an answer that is paid for.
        await asyncio.sleep(0)
        return result

    def _in_loop(self, work: Callable[..., T], args: Sequence[Any], began: float) -> T:
        """The result of ``work``, whose time counts."""
        token = _holds_loop.set(True)
        try:
            return work(*args)
        finally:
            _holds_loop.reset(token)
            seconds = self._clock() - began
            if seconds > self.SHORT_S:
                self._held += seconds
