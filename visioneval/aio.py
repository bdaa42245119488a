"""Coroutines that run together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from visioneval.errors import ClosingError, StoppedError

T = TypeVar("T")


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
