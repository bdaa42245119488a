"""Runs third-party code: custom providers, graders and judges."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeVar

from visioneval.registry import describe_user_error
from visioneval.threads import Threads

T = TypeVar("T")
_FUNCTIONS = Threads(64, thread_name_prefix="function")
"""A separate pool, because such code may wait forever."""


class BrokenCodeError(Exception):
    """A provider, grader or judge exited, cancelled itself, or returned the wrong type."""


async def call_user_code(
    expected: type[T],
    work: Callable[..., T | Awaitable[T]],
    *arguments: Any,
    subject: str = "it",
    check: Callable[[T], None] | None = None,
) -> T:
    """Calls a provider, grader or judge: functions in a thread, coroutines in the event loop. Checks the result.

    An exit or a self-cancellation of the code does not end the calling worker. ``subject`` is what messages call the
    code.
    """
    try:
        result: Any
        if iscoroutinefunction(work):
            result = await work(*arguments)
        else:
            run = partial(copy_context().run, _call_in_thread, work, *arguments)
            result = await asyncio.get_running_loop().run_in_executor(_FUNCTIONS, run)
            result = await result if isawaitable(result) else result
    except SystemExit as error:
        raise BrokenCodeError(f"{subject} called exit({error.code})") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokenCodeError(f"{subject} cancelled itself") from None
    if not isinstance(result, expected):
        raise BrokenCodeError(f"{subject} returned {type(result).__name__}, not {expected.__name__}")
    if check is not None:
        check(result)
    return result


def _call_in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except StopIteration as error:  # a future cannot store it
        raise BrokenCodeError("it raised StopIteration") from error


def describe_error(error: BaseException) -> str:
    """The message for an unexpected exception."""
    if isinstance(error, BrokenCodeError):
        return str(error)
    return describe_user_error(error)
