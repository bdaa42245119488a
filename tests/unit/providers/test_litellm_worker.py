"""The channel of LiteLLM's process: what each request is answered, without LiteLLM."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from visioneval.providers.litellm.frames import LENGTH_BYTES, framed
from visioneval.providers.litellm.worker.__main__ import serve


def answers_to(*messages: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the process writes until its input ends."""
    requests, questions = os.pipe()
    replies, answers = os.pipe()
    with os.fdopen(replies, "rb") as reading, os.fdopen(requests, "rb") as asked:
        with os.fdopen(questions, "wb") as asking:
            asking.writelines(map(framed, messages))
        with os.fdopen(answers, "wb") as writing:
            asyncio.run(serve_to_the_end(asked, writing))
        return list(read_frames(reading.read()))


async def serve_to_the_end(asked: Any, writing: Any) -> None:
    await serve(asked, writing, respond)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


async def respond(request: Mapping[str, Any]) -> Mapping[str, Any]:
    match request["call"]:
        case "cancels itself":
            raise asyncio.CancelledError
        case "no json":
            return {"result": object()}
        case "waits":
            await asyncio.Event().wait()
    return {"result": {"echo": request["call"]}}


def read_frames(data: bytes) -> Any:
    while data:
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES])
        yield orjson.loads(data[LENGTH_BYTES:end])
        data = data[end:]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("cancels itself", "LiteLLM cancelled its own call"),
        ("no json", "the answer of LiteLLM cannot be passed on: Type is not JSON serializable: object"),
    ],
)
def test_a_call_without_an_answer_is_an_error_at_once(call: str, message: str) -> None:
    error = {"message": message, "kind": "transient", "retry_after": None, "may_be_billed": True}
    assert answers_to({"id": 1, "call": call}) == [{"id": 1, "error": error}]


def test_a_call_that_the_engine_cancelled_has_no_answer() -> None:
    messages = ({"id": 1, "call": "waits"}, {"cancel": 1}, {"id": 2, "call": "other"})
    assert answers_to(*messages) == [{"id": 2, "result": {"echo": "other"}}]
