"""Answers requests from standard input on standard output until the input ends.

A request is ``{"id": 1, "call": "generate", ...}``, with the arguments of a function of ``calls``, or
``{"cancel": 1}``. An answer is ``{"id": 1, "result": {...}}`` or ``{"id": 1, "error": {...}}``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

import orjson

from visioneval.providers.litellm.frames import LENGTH_BYTES, framed

Request = Mapping[str, Any]
Answer = Mapping[str, Any]

_MOST_THREADS = 256
"""LiteLLM calls some providers in threads."""


def main() -> None:
    """Keeps the channel of answers to itself: LiteLLM and its libraries may print."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        asyncio.run(_serve(sys.stdin.buffer, answers))
    finally:
        os._exit(0)  # LiteLLM's exit handlers wait for its threads


async def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    from visioneval.providers.litellm.worker.calls import answer_to

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MOST_THREADS))
    await serve(requests, answers, answer_to)


async def serve(requests: BinaryIO, answers: BinaryIO, answer_to: Callable[[Request], Awaitable[Answer]]) -> None:
    """Answers each request by ``answer_to``, several at a time. Only a request that was cancelled has no answer."""
    stream = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), requests)
    running: dict[int, asyncio.Task[None]] = {}

    async def respond(request: dict[str, Any]) -> None:
        try:
            _write(answers, _framed_answer(request["id"], await _answer(answer_to, request)))
        finally:
            running.pop(request["id"], None)

    while (request := await _next(stream)) is not None:
        if (number := request.get("cancel")) is not None:
            if number in running:
                running[number].cancel()
        else:
            running[request["id"]] = asyncio.create_task(respond(request))


async def _answer(answer_to: Callable[[Request], Awaitable[Answer]], request: Request) -> Answer:
    try:
        return await answer_to(request)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _failure("LiteLLM cancelled its own call")


def _framed_answer(number: int, answer: Answer) -> bytes:
    try:
        return framed({"id": number, **answer})
    except TypeError as error:
        return framed({"id": number, **_failure(f"the answer of LiteLLM cannot be passed on: {error}")})


def _failure(message: str) -> Answer:
    return {"error": {"message": message, "kind": "transient", "retry_after": None, "may_be_billed": True}}


async def _next(stream: asyncio.StreamReader) -> dict[str, Any] | None:
    try:
        length = int.from_bytes(await stream.readexactly(LENGTH_BYTES))
        request: dict[str, Any] = orjson.loads(await stream.readexactly(length))
    except asyncio.IncompleteReadError:
        return None
    return request


def _write(answers: BinaryIO, data: bytes) -> None:
    answers.write(data)
    answers.flush()


if __name__ == "__main__":
    main()
