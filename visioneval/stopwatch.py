"""Measures time at work and time spent waiting apart, whichever thread does the work.

A stopwatch belongs to one generation or one grader of a cell. Code that waits for its turn (a rate limit, a lock, a
free thread) says so with ``waiting``. Time counts as waiting while something waits and nothing that is known to be work
runs: a grader may ask several questions at once, of which one is being answered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Self


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
