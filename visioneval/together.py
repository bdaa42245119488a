"""Waiting for work: for several things at once, or for a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """``asyncio.gather``, but without a task for what is alone: most cells have one grader, which asks one question."""
    each = list(work)
    return [await each[0]] if len(each) == 1 else list(await asyncio.gather(*each))


async def in_thread(work: Callable[..., T], *words: Any, when: bool) -> T:
    """``asyncio.to_thread`` where that is worth it: the way there and back takes longer than most short work."""
    return await asyncio.to_thread(work, *words) if when else work(*words)
