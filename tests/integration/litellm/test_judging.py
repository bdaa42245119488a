"""Judges behind LiteLLM: with a JSON schema where the model has it, and without."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from canned_api import canned
from conftest import KEY

from visioneval import CellRef, Question, Reply
from visioneval.providers.base import ImagePart, Tool
from visioneval.providers.litellm import LiteLLMJudge
from visioneval.providers.litellm.generator import open_judge
from visioneval.providers.questions import converse

SCHEMA = {
    "type": "object",
    "properties": {"nice": {"type": "boolean"}},
    "required": ["nice"],
    "additionalProperties": False,
}
ABOUT = CellRef("one", "m", 0)
Ask = Callable[..., Reply]


@pytest.fixture
def ask(wait_for: Callable[[Awaitable[Any]], Any], image: bytes) -> Ask:
    def asked(model: str, base_url: str, *, tools: tuple[Tool, ...] = (), **params: Any) -> Reply:
        config = LiteLLMJudge(
            provider="litellm", model=model, base_url=base_url, api_key_env="LOCAL_KEY", params=params
        )
        parts = ("Is it nice?", ImagePart(image, "image/png"))
        question = Question(parts=parts, schema=SCHEMA, names=("nice",), tools=tools, max_tool_calls=2)
        judge = open_judge(config)
        reply: Reply = wait_for(converse(lambda current: judge.ask(current, ABOUT), question))
        return reply

    return asked


def chat(content: str | None, **message: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def test_a_model_that_litellm_does_not_know_gets_a_json_object(ask: Ask) -> None:
    with canned(chat('{"nice": false}')) as server:
        reply = ask("openai/our-own", server.url)
    assert (reply.text, reply.shape) == ('{"nice": false}', "json")
    (body,) = server.bodies
    assert body["response_format"] == {"type": "json_object"}
    assert "JSON Schema" in body["messages"][0]["content"][-1]["text"]


def test_a_model_without_formats_gets_text(ask: Ask) -> None:
    answer = {"id": "1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
              "content": [{"type": "text", "text": '{"nice": true}'}], "usage": {"input_tokens": 9, "output_tokens": 4}}  # fmt: skip
    with canned(answer) as server:
        reply = ask("anthropic/claude-3-haiku-20240307", server.url.removesuffix("/v1"), max_tokens=100)
    assert '"nice": true' in reply.text
    (headers,) = server.headers
    assert headers["x-api-key"] == KEY
    (body,) = server.bodies
    source = body["messages"][0]["content"][1]["source"]
    assert base64.b64decode(source["data"]).startswith(b"\x89PNG")
