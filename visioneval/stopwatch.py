"""Measures time at work and time spent waiting apart, whichever thread does the work.

A stopwatch belongs to one generation or one grader of a cell. Code that waits for its turn (a rate limit, a lock, a
free thread) says so with ``waiting``. Time counts as waiting while something waits and nothing that is known to be work
runs: a grader may ask several questions at once, of which one is being answered.
"""

from __future__ import annotations

import threading
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


class waiting:  # noqa: N801 - used like a function
    """Marks a wait for a turn. A class takes half the time of a generator, and every call enters several."""

    __slots__ = ("_stopwatch", "_works")

    def __enter__(self) -> None:
        self._stopwatch, self._works = _here()
        if self._stopwatch is not None:
            self._stopwatch.change(waits=1, works=-self._works)

    def __exit__(self, *_: object) -> None:
        if self._stopwatch is not None:
            self._stopwatch.change(waits=-1, works=self._works)


class working:  # noqa: N801
    """Marks work that does not end because something else waits, such as a call in flight."""

    __slots__ = ("_stopwatch", "_token")

    def __enter__(self) -> None:
        stopwatch, works = _here()
        self._stopwatch = None if works else stopwatch
        if self._stopwatch is not None:
            self._token = _is_at_work.set(True)
            self._stopwatch.change(waits=0, works=1)

    def __exit__(self, *_: object) -> None:
        if self._stopwatch is not None:
            self._stopwatch.change(waits=0, works=-1)
            _is_at_work.reset(self._token)


def _here() -> tuple[Stopwatch | None, int]:
    """The stopwatch of this code, and how much marked work waits when this code waits: 0 or 1."""
    return _current.get(), int(_is_at_work.get())
