"""Calling custom providers, graders and judges: functions, coroutines, exits and wrong results."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from visioneval.running.calls.attempts import BrokenCodeError, call_user_code, describe_error


def call(work: Callable[..., Any], *arguments: Any, expected: type[Any] = str) -> Any:
    return asyncio.run(call_user_code(expected, work, *arguments))


async def coroutine(word: str) -> str:
    assert threading.current_thread() is threading.main_thread()
    return word


def function(word: str) -> str:
    assert threading.current_thread().name.startswith("function")
    return word


def function_with_coroutine(word: str) -> Awaitable[str]:
    return coroutine(word)


class CallableObject:
    async def __call__(self, word: str) -> str:
        return await coroutine(word)


@pytest.mark.parametrize(
    "work", [coroutine, function, function_with_coroutine, functools.partial(coroutine), CallableObject()]
)
def test_functions_and_coroutines_are_called(work: Callable[..., Any]) -> None:
    assert call(work, "tree") == "tree"


async def exit_in_coroutine() -> str:
    sys.exit(7)


def exit_in_function() -> str:
    sys.exit("bye")


async def cancel_itself() -> str:
    raise asyncio.CancelledError


def stop_iteration() -> str:
    return next(iter(()))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (exit_in_coroutine, "it called exit(7)"),
        (exit_in_function, "it called exit(bye)"),
        (cancel_itself, "it cancelled itself"),
        (stop_iteration, "it raised StopIteration"),
        (lambda: None, "it returned NoneType, not str"),
        (lambda: b"x", "it returned bytes, not str"),
    ],
)
def test_code_that_breaks_the_rules_is_an_error(work: Callable[..., Any], message: str) -> None:
    with pytest.raises(BrokenCodeError) as failure:
        call(work)
    assert describe_error(failure.value) == message


async def test_a_cancelled_caller_is_cancelled() -> None:
    started = asyncio.Event()

    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(call_user_code(str, work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_exception_without_a_message_is_described_by_its_type() -> None:
    assert describe_error(OSError()) == "OSError"
