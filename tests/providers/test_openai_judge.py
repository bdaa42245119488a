"""Judges through the real SDK: the Responses API, and chat completions of servers that can do less."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from canned_api import canned
from fake_api import FakeAPI, Fault, JudgeRequest, Script, ToolCall
from fake_api.samples import CROP, SCHEMA, asked_judge, encode
from tables import rows_of

from visioneval import CellRef, ProviderError, Question, Reply
from visioneval.providers.base import ImagePart, Part, Tool
from visioneval.providers.openai import OpenAIJudge
from visioneval.providers.openai.judge import open_judge
from visioneval.providers.questions import converse

rows = rows_of(__file__)

pytestmark = pytest.mark.slow

APIS = pytest.mark.parametrize("way", ["responses", "chat"])
KEY = "sk-fake-0123456789abcdef"
GOOD = {"verdict": "PASS", "quality": 4, "tags": []}
IMAGE = ImagePart(encode(), "image/png")
QUESTION = Question(("Judge this.", "output:", IMAGE), schema=SCHEMA, names=("verdict", "quality", "tags"))


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", KEY)


def ask(url: str, way: str, *questions: Question, model: str = "gpt-5.4", **params: Any) -> list[Reply]:
    """The replies of one judge to questions one after the other."""
    repeat_arguments: dict[str, Any] = {"provider": "openai", "model": model, "api": way, "params": params}
    config = OpenAIJudge(base_url=url, api_key_env="LOCAL_KEY", **repeat_arguments)

    async def all_of_them() -> list[Reply]:
        judge = open_judge(config)
        message = CellRef("one", "m", 0)
        return [await converse(lambda item: judge.ask(item, message), q) for q in questions or (QUESTION,)]

    return asyncio.run(all_of_them())


def failed(url: str, way: str, *questions: Question, **params: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        ask(url, way, *questions, **params)
    return caught.value


def question_with_crops(call: Callable[[Mapping[str, Any]], Sequence[Part]] | None = None, most: int = 6) -> Question:
    """The question with a tool that answers with a label and an image."""

    def crop(asked: Mapping[str, Any]) -> Sequence[Part]:
        return [f"a crop of {asked['image_id']} at {asked['x1']}", ImagePart(encode(size=(8, 8)), "image/png")]

    tool = Tool("crop", "Look closer.", CROP, call or crop)
    return Question(QUESTION.parts, SCHEMA, QUESTION.names, (tool,), max_tool_calls=most, detail="high")


@APIS
@pytest.mark.parametrize("detail", ["low", "high", "auto"])
def test_detail_is_sent_with_every_image(api: FakeAPI, way: str, detail: Any) -> None:
    ask(api.openai_base_url, way, Question((IMAGE, "and", IMAGE), detail=detail))
    assert [image.detail for image in asked_judge(api).images] == [detail, detail]


def test_nothing_is_stored_and_parameters_are_sent_as_written(api: FakeAPI) -> None:
    params = {"reasoning": {"effort": "high"}, "max_output_tokens": 4000, "text": {"verbosity": "low"}}
    ask(api.openai_base_url, "responses", **params)
    body = api.requests[-1].body
    assert (body["store"], body["reasoning"], body["max_output_tokens"]) == (False, {"effort": "high"}, 4000)
    assert body["text"]["verbosity"] == "low"
    assert body["text"]["format"]["schema"] == SCHEMA
    ask(api.openai_base_url, "responses", store=True)
    assert api.requests[-1].body["store"] is True
    ask(api.openai_base_url, "chat", reasoning_effort="low", seed=7)
    assert (api.requests[-1].body["reasoning_effort"], api.requests[-1].body["seed"]) == ("low", 7)


@APIS
def test_an_unknown_parameter_is_answered_in_the_providers_words(api: FakeAPI, way: str) -> None:
    error = failed(api.openai_base_url, way, colour="red")
    assert (error.kind, str(error)) == ("invalid", "400: Unknown parameter: 'colour'.")
    assert failed(api.openai_base_url, way, model="gpt-99").kind == "invalid"


def two_rounds(request: JudgeRequest) -> Any:
    if request.turns == 0:
        return [ToolCall("crop", {"image_id": name, "x1": 3}) for name in ("output", "ref_1")]
    if request.turns == 1:
        return ToolCall("crop", {"image_id": "output", "x1": 5})
    return GOOD


@APIS
@pytest.mark.parametrize("model", ["gpt-5.4", "gpt-4.1"])
def test_a_judge_zooms_in_over_several_rounds(api: FakeAPI, script: Script, way: str, model: str) -> None:
    script.judge(two_rounds)
    (reply,) = ask(api.openai_base_url, way, question_with_crops(), model=model)
    assert (json.loads(reply.text), reply.tool_calls, len(api.requests)) == (GOOD, 3, 3)
    asked = asked_judge(api)
    labels = ["a crop of output at 3", "a crop of ref_1 at 3", "a crop of output at 5"]
    assert [result.text for result in asked.tool_results] == labels
    assert [(image.size, image.detail) for image in asked.images] == [((64, 48), "high")] + [((8, 8), "high")] * 3
    assert [tool.name for tool in asked.tools] == ["crop"]
    assert "tool_choice" not in api.requests[-1].body
    if way == "responses":
        assert [[image.size for image in result.images] for result in asked.tool_results] == [[(8, 8)]] * 3
    else:  # tools send text alone: the images follow, each after its label
        assert [part for part in asked.parts if part in labels] == [*labels[:2], *labels[:2], labels[2], labels[2]]


@APIS
def test_usage_is_summed_over_the_rounds(api: FakeAPI, script: Script, way: str) -> None:
    script.judge(lambda request: ToolCall("crop", {"image_id": "a", "x1": 1}) if request.turns == 0 else GOOD)
    (reply,) = ask(api.openai_base_url, way, question_with_crops())
    came, thought = ("input", "output_reasoning") if way == "responses" else ("prompt", "completion_reasoning")
    assert reply.usage is not None
    assert reply.usage[f"{thought}_tokens"] == 2 * 64
    assert reply.usage[f"{came}_tokens"] > 3 * 765
    assert reply.usage[f"{came}_cached_tokens"] == 0


@APIS
def test_too_many_calls_are_forbidden_in_the_next_round(api: FakeAPI, script: Script, way: str) -> None:
    def crop_forever(request: JudgeRequest) -> Any:
        return GOOD if request.params.get("tool_choice") == "none" else ToolCall("crop", {"image_id": "a", "x1": 1})

    script.judge(crop_forever)
    (reply,) = ask(api.openai_base_url, way, question_with_crops(most=3))
    assert (reply.tool_calls, json.loads(reply.text)) == (5, GOOD)
    assert [entry.body.get("tool_choice") for entry in api.requests] == [None] * 5 + ["none"]


@APIS
def test_tool_rounds_are_limited(api: FakeAPI, script: Script, way: str) -> None:
    script.judge(lambda request: ToolCall("crop", {"image_id": "a", "x1": 1}))
    error = failed(api.openai_base_url, way, question_with_crops(most=1))
    assert (error.kind, str(error)) == ("invalid", "the judge still called tools after 3 calls")


@APIS
def test_arguments_that_are_no_object_get_an_answer(api: FakeAPI, script: Script, way: str) -> None:
    listed: Any = ["output", 3]
    script.judge(lambda request: ToolCall("crop", listed) if request.turns == 0 else GOOD)
    ask(api.openai_base_url, way, question_with_crops())
    assert asked_judge(api).tool_results[0].text == "The arguments are not JSON: the answer is not a JSON object."


CALLS = [("zoom", '{"x": 1}'), ("crop", '{"image_id": "a", x1'), ("crop", "")]
TOOL_ERRORS = ["There is no tool 'zoom'. There are: crop.", "The arguments are not JSON: ", "given {}"]


def repeat_arguments(asked: Mapping[str, Any]) -> list[Part]:
    return [f"given {json.dumps(asked)}"]


def test_bad_calls_get_an_answer_that_helps_in_responses() -> None:
    calls = [
        {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": name, "arguments": arguments}
        for n, (name, arguments) in enumerate(CALLS)
    ]
    done = {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "ok"}]}
    first, last = ({"model": "m", "status": "completed", "output": output} for output in (calls, [done]))
    with canned(first, last) as server:
        (reply,) = ask(server.url, "responses", question_with_crops(repeat_arguments))
    assert (reply.text, reply.tool_calls, reply.usage) == ("ok", 3, None)
    sent = server.bodies[1]["input"]
    assert [item["arguments"] for item in sent[1:4]] == ['{"x": 1}', "{}", "{}"]
    for item, words in zip(sent[4:], TOOL_ERRORS, strict=True):
        assert item["output"][0]["text"].startswith(words)


def test_bad_calls_get_an_answer_that_helps_in_chat() -> None:
    calls = [
        {"type": "function", "id": f"call_{n}", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(CALLS)
    ]
    first = {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": "hm"}
    answers = ({"model": "m", "choices": [{"message": message}]} for message in (first, {"content": "ok"}))
    with canned(*answers) as server:
        (reply,) = ask(server.url, "chat", question_with_crops(repeat_arguments))
    assert (reply.text, reply.tool_calls, reply.usage) == ("ok", 3, None)
    _, custom, *results = server.bodies[1]["messages"]
    assert custom.keys() == {"role", "content", "tool_calls"}
    assert [call["function"]["arguments"] for call in custom["tool_calls"]] == ['{"x": 1}', "{}", "{}"]
    for message, words in zip(results, TOOL_ERRORS, strict=True):
        assert message["content"].startswith(words)


def test_a_model_that_does_not_reason_is_not_asked_for_its_thoughts_again(api: FakeAPI) -> None:
    api.faults.queue(Fault("bad_request", text="Encrypted content is not supported with this model."))
    ask(api.openai_base_url, "responses", question_with_crops(), question_with_crops())
    asked_for = [entry.body.get("include") for entry in api.requests]
    assert asked_for == [["reasoning.encrypted_content"], None, None]


@pytest.mark.parametrize(("code", "kind"), rows("a_failed_answer_is_reported"))
def test_a_failed_answer_is_reported(code: str, kind: str) -> None:
    with canned({"model": "m", "status": "failed", "output": [], "error": {"code": code, "message": "why"}}) as server:
        error = failed(server.url, "responses")
    assert (error.kind, str(error)) == (kind, "the answer failed: why")


def test_a_chat_answer_without_a_choice_is_reported() -> None:
    with canned({"model": "m", "choices": []}) as server:
        error = failed(server.url, "chat")
    assert (error.kind, str(error)) == ("unusable", "the answer has no choices")


@pytest.mark.parametrize(("choice", "kind", "message"), rows("a_choice_without_a_message_is_no_answer"))
def test_a_choice_without_a_message_is_no_answer(choice: Any, kind: str, message: str) -> None:
    with canned({"model": "m", "choices": [choice]}) as server:
        error = failed(server.url, "chat")
    assert (error.kind, str(error)) == (kind, message)


@pytest.mark.parametrize(
    ("formats", "shape", "tried"),
    [
        (("text", "json_object", "json_schema"), "schema", ["json_schema"]),
        (("text", "json_object"), "json", ["json_schema", "json_object"]),
        (("text",), "text", ["json_schema", "json_object", None]),
    ],
)
def test_chat_takes_the_strongest_shape_that_the_server_knows(
    script: Script, formats: tuple[str, ...], shape: str, tried: list[str | None]
) -> None:
    script.judge(json.dumps(GOOD))
    with FakeAPI(script, chat_formats=formats) as api:
        replies = ask(api.openai_base_url, "chat", QUESTION, QUESTION)
        sent = [(entry.body.get("response_format") or {}).get("type") for entry in api.requests]
        asked = asked_judge(api)
    assert [reply.shape for reply in replies] == [shape, shape]
    assert [json.loads(reply.text) for reply in replies] == [GOOD, GOOD]
    assert sent == [*tried, tried[-1]]  # what the server took is remembered
    assert (json.dumps(SCHEMA) in asked.text) is (shape != "schema")


def test_other_errors_do_not_fall_back_to_chat(api: FakeAPI) -> None:
    api.faults.queue(Fault("bad_request"), Fault("server_error", text="response_format is broken today"))
    assert failed(api.openai_base_url, "chat").kind == "invalid"
    assert failed(api.openai_base_url, "chat").kind == "transient"
    assert len(api.requests) == 2


def test_missing_tool_support_is_reported(script: Script) -> None:
    with FakeAPI(script, chat_tools=False) as api:
        error = failed(api.openai_base_url, "chat", question_with_crops())
    assert (error.kind, str(error)) == (
        "invalid",
        '400: "auto" tool choice requires --enable-auto-tool-choice to be set',
    )
