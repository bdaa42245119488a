"""Waiting for work: for several things at once, or for a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from visioneval.errors import ClosingError, StoppedError

T = TypeVar("T")


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """``asyncio.gather``, but where one fails the others still come to their end, as they may be paid for.

    Raises the error to report; see ``primary_error``. What is alone needs no task: most cells have one grader, which
    asks one question.
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
    if errors:
        raise primary_error(errors)
    return results


def primary_error(errors: Sequence[BaseException]) -> BaseException:
    """The error to report of several: what stopped the run; last of all a call that did not begin because of it."""

    def rank(error: BaseException) -> int:
        return 2 if isinstance(error, ClosingError) else int(not isinstance(error, StoppedError))

    return min(errors, key=rank)


async def run_in_thread(work: Callable[..., T], *args: Any, when: bool) -> T:
    """``asyncio.to_thread`` where that is worth it: the way there and back takes longer than most short work."""
    return await asyncio.to_thread(work, *args) if when else work(*args)
