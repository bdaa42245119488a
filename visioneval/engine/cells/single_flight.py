"""Shares work between cells: the first cell does it, concurrent cells wait for its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from visioneval.stopwatch import waiting

T = TypeVar("T")


class SingleFlight:
    """Results by key, for one run. A failure is raised for all waiting callers and not cached."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def __call__(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """The result of ``make`` of the first caller for ``key``. A cancelled caller does not cancel the others."""
        task: asyncio.Task[T] | None = self._tasks.get(key)
        if task is None:
            task = asyncio.ensure_future(_as_coroutine(make))
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._settle(key, done))
            return await asyncio.shield(task)
        with waiting():
            return await asyncio.shield(task)

    def _settle(self, key: str, done: asyncio.Task[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._tasks.pop(key, None)


async def _as_coroutine(make: Callable[[], Awaitable[T]]) -> T:
    return await make()
