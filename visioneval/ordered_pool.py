"""A pool of threads whose waiting work is done in the order of the cells that it belongs to.

Graders submit work step by step. First come, first served would do the first step of every cell before the second step
of any, so that no cell is done until all are nearly done.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any
from weakref import WeakSet

NO_TURN = 0
_turn: ContextVar[int] = ContextVar("turn", default=NO_TURN)


@contextmanager
def in_turn(number: int) -> Iterator[None]:
    """Work that is submitted in this block waits for that of lower numbers; work outside of any block comes first."""
    token = _turn.set(number)
    try:
        yield
    finally:
        _turn.reset(token)


@dataclass(order=True, slots=True)
class _WorkItem:
    turn: int
    position: int
    call: Callable[[], Any] = field(compare=False)
    future: Future[Any] = field(compare=False, default_factory=Future)


class OrderedPool(ThreadPoolExecutor):
    """A pool of threads that does the waiting work of the lowest turn first, and first come, first served within it."""

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        super().__init__(max_workers, thread_name_prefix)
        self._waiting: list[_WorkItem] = []
        self._positions = itertools.count()
        self._lock = threading.Lock()
        self._running: set[Future[Any]] = set()
        _pools.add(self)

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work."""
        return bool(self._running)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submits a function with the turn of the caller."""
        item = _WorkItem(_turn.get(), next(self._positions), partial(fn, *args, **kwargs))
        with self._lock:
            heappush(self._waiting, item)
        super().submit(self._run_first)  # one for each item: whichever comes first then
        return item.future

    def _run_first(self) -> None:
        with self._lock:
            if not self._waiting:  # cancelled by ``abandon``
                return
            item = heappop(self._waiting)
            self._running.add(item.future)
        try:
            _run(item)
        finally:
            with self._lock:
                self._running.discard(item.future)

    def abandon(self, patience_s: float) -> None:
        """Cancels the waiting work of all turns, and waits at most ``patience_s`` for the rest.

        What runs cannot be stopped. What waits without a turn, such as storing what is paid for, is done in a thread of
        its own, as those of the pool may be busy for long.
        """
        with self._lock:
            waiting, self._waiting = self._waiting, []
            unfinished = set(self._running)
        without_turn = sorted(item for item in waiting if item.turn == NO_TURN)
        unfinished.update(item.future for item in without_turn)
        for item in waiting:
            if item.turn != NO_TURN and item.future.cancel():
                item.future.set_running_or_notify_cancel()
        threading.Thread(target=_run_all, args=(without_turn,), daemon=True).start()
        wait(unfinished, patience_s)
        self.shutdown(wait=False)


_pools: WeakSet[OrderedPool] = WeakSet()


def is_any_busy() -> bool:
    """Whether a thread of any pool is at work, which would delay the end of the process."""
    return any(pool.is_busy for pool in _pools)


def _run_all(items: list[_WorkItem]) -> None:
    for item in items:
        _run(item)


def _run(item: _WorkItem) -> None:
    if not item.future.set_running_or_notify_cancel():
        return
    try:
        result = item.call()
    except BaseException as error:
        item.future.set_exception(error)
        del item  # its future has the error, the error this frame: no cycle may hold an image in memory
    else:
        item.future.set_result(result)
