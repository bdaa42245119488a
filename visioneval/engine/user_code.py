"""How code that is not ours is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class BrokenCodeError(Exception):
    """A provider or a grader that left in a way in which code must not leave."""


async def guarded(work: Awaitable[T], wanted: type[T]) -> T:
    """Awaits a provider or a grader, which must give what is wanted.

    An exit or a cancellation of its own must not end the worker that calls it.
    """
    try:
        given = await work
    except SystemExit as error:
        raise BrokenCodeError(f"it called exit({error.code})") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokenCodeError("it was cancelled from within") from None
    if not isinstance(given, wanted):
        raise BrokenCodeError(f"it gave {type(given).__name__}, not {wanted.__name__}")
    return given


def described(error: BaseException) -> str:
    """An exception that nobody expected, in words."""
    if isinstance(error, BrokenCodeError):
        return str(error)
    return f"{type(error).__name__}: {error}"
