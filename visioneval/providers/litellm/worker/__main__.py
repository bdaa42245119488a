"""Answers requests from standard input on standard output until the input ends.

A request is ``{"id": 1, "call": "generate", ...}``, with the arguments of a function of ``calls``, or
``{"cancel": 1}``. An answer is ``{"id": 1, "result": {...}}`` or ``{"id": 1, "error": {...}}``.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

import orjson

from visioneval.providers.litellm.frames import LENGTH_BYTES, framed

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

    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_MOST_THREADS))
    stream = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), requests)
    running: dict[int, asyncio.Task[None]] = {}

    async def respond(request: dict[str, Any]) -> None:
        try:
            answer = await answer_to(request)
            data = framed({"id": request["id"], **answer})
            _write(answers, data)
        finally:
            running.pop(request["id"], None)

    while (request := await _next(stream)) is not None:
        if (number := request.get("cancel")) is not None:
            if number in running:
                running[number].cancel()
        else:
            running[request["id"]] = asyncio.create_task(respond(request))


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
