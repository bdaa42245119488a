"""Judges behind LiteLLM: with a JSON schema where the model has it, and without."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from canned_api import canned
from conftest import KEY
from fake_api import FakeAPI, JudgeRequest

from visioneval import CellRef, ProviderError, Question, Reply
from visioneval.providers.base import ImagePart, Tool
from visioneval.providers.conversation import converse
from visioneval.providers.litellm.config import LiteLLMJudge
from visioneval.providers.litellm.generator import open_judge

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


def test_a_model_with_schemas_gets_the_schema(api: FakeAPI, ask: Ask, image: bytes) -> None:
    api.script.judge({"nice": True})
    reply = ask("openai/gpt-5.4", api.openai_base_url, reasoning_effort="low")
    assert (reply.text, reply.shape) == ('{"nice": true}', "schema")
    assert reply.usage is not None
    assert reply.usage["prompt_tokens"] > 0
    (request,) = api.requests_to("chat")
    assert request.body["response_format"]["json_schema"]["schema"] == SCHEMA
    assert request.body["reasoning_effort"] == "low"
    assert isinstance(request.asked, JudgeRequest)
    assert [sent.data for sent in request.asked.images] == [image]


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


def test_tools_are_called_in_rounds(api: FakeAPI, ask: Ask) -> None:
    from fake_api import ToolCall

    answers = iter([[ToolCall("look", {"x": 1})], {"nice": True}])
    api.script.judge(lambda _: next(answers))
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}  # fmt: skip
    tool = Tool("look", "looks closer", parameters, lambda arguments: [f"x is {arguments['x']}"])
    reply = ask("openai/gpt-5.4", api.openai_base_url, tools=(tool,))
    assert (reply.text, reply.tool_calls) == ('{"nice": true}', 1)
    last = api.requests_to("chat")[-1]
    assert [message["role"] for message in last.body["messages"]] == ["user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (chat(None, refusal="I will not look at that"), "the judge refused: I will not look at that"),
        ({**chat(""), "choices": [{**chat("")["choices"][0], "finish_reason": "content_filter"}]},
         "the judge's answer was blocked: content_filter"),
    ],
)  # fmt: skip
def test_a_refusal_of_a_judge(ask: Ask, answer: Any, message: str) -> None:
    with canned(answer) as server, pytest.raises(ProviderError) as raised:
        ask("openai/gpt-5.4", server.url)
    assert (str(raised.value), raised.value.kind) == (message, "refused")


def test_a_cut_reply_says_so(ask: Ask) -> None:
    answer = chat('{"nice": ')
    answer["choices"][0]["finish_reason"] = "length"
    with canned(answer) as server:
        assert ask("openai/gpt-5.4", server.url).stopped == "max_tokens"


@pytest.mark.parametrize(("status", "kind", "wait"), [(401, "auth", None), (429, "rate_limit", 3.0), (500, "transient", None)])  # fmt: skip
def test_a_failed_judgement(ask: Ask, status: int, kind: str, wait: float | None) -> None:
    headers = {"retry-after": "3"} if wait else {}
    with canned({"error": {"message": f"no {KEY}"}}, status=status, headers=headers) as server:
        with pytest.raises(ProviderError) as raised:
            ask("openai/gpt-5.4", server.url)
        assert len(server.bodies) == 1
    assert (raised.value.kind, raised.value.retry_after, str(raised.value)) == (kind, wait, f"{status}: no ***")
