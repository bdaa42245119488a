"""How code that is not ours is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeVar

T = TypeVar("T")
_FUNCTIONS = ThreadPoolExecutor(64, thread_name_prefix="function")
"""Such code may wait for a network: it must not fill up the run's own pool, which is as large as the machine."""


class BrokenCodeError(Exception):
    """A provider or a grader that left in a way in which code must not leave."""


async def call_user_code(expected: type[T], work: Callable[..., T | Awaitable[T]], *arguments: Any) -> T:
    """Calls a provider, a grader or a judge, which must give what is wanted: a function in a thread, a coroutine here.

    An exit or a cancellation of its own must not end the worker that calls it.
    """
    try:
        result: Any
        if iscoroutinefunction(work):
            result = await work(*arguments)
        else:
            result = await asyncio.get_running_loop().run_in_executor(_FUNCTIONS, _call_in_thread, work, *arguments)
            result = await result if isawaitable(result) else result
    except SystemExit as error:
        raise BrokenCodeError(f"it called exit({error.code})") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokenCodeError("it was cancelled from within") from None
    if not isinstance(result, expected):
        raise BrokenCodeError(f"it gave {type(result).__name__}, not {expected.__name__}")
    return result


def _call_in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except StopIteration as error:  # which no future can hold
        raise BrokenCodeError("it raised StopIteration") from error


def describe_error(error: BaseException) -> str:
    """An exception that nobody expected, in words."""
    if isinstance(error, BrokenCodeError):
        return str(error)
    return f"{type(error).__name__}: {error}"
