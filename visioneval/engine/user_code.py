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


async def call_user_code(wanted: type[T], work: Callable[..., T | Awaitable[T]], *arguments: Any) -> T:
    """Calls a provider, a grader or a judge, which must give what is wanted: a function in a thread, a coroutine here.

    An exit or a cancellation of its own must not end the worker that calls it.
    """
    try:
        given: Any
        if iscoroutinefunction(work):
            given = await work(*arguments)
        else:
            given = await asyncio.get_running_loop().run_in_executor(_FUNCTIONS, _call_in_thread, work, *arguments)
            given = await given if isawaitable(given) else given
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
