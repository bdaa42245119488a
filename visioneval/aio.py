"""Waiting for work: for several things at once, or for a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from visioneval.errors import ClosingError, StoppedError

T = TypeVar("T")


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """``asyncio.gather``, but where one fails the others still come to their end, as they may be paid for.

    Raises the error to report; see ``first_cause``. What is alone needs no task: most cells have one grader, which
    asks one question.
    """
    each = list(work)
    if len(each) == 1:
        return [await each[0]]
    results: list[T] = []
    errors: list[BaseException] = []
    for ended in await asyncio.gather(*each, return_exceptions=True):
        if isinstance(ended, BaseException):
            errors.append(ended)
        else:
            results.append(ended)
    if errors:
        raise first_cause(errors)
    return results


def first_cause(errors: Sequence[BaseException]) -> BaseException:
    """The error to report of several: what stopped the run; last of all a call that did not begin because of it."""

    def rank(error: BaseException) -> int:
        return 2 if isinstance(error, ClosingError) else int(not isinstance(error, StoppedError))

    return min(errors, key=rank)


async def in_thread(work: Callable[..., T], *words: Any, when: bool) -> T:
    """``asyncio.to_thread`` where that is worth it: the way there and back takes longer than most short work."""
    return await asyncio.to_thread(work, *words) if when else work(*words)
