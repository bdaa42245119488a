"""The fake server through the real OpenAI SDK: judges, strict schemas, tools."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from fake_api import FakeAPI, Script, ToolCall
from fake_api.json_schema import SchemaError, check_strict, example_text, instance_error
from fake_api.outcomes import ScriptError
from fake_api.samples import (
    CROP,
    SCHEMA,
    asked_judge,
    chat,
    chat_format,
    crop_then_judge,
    data_url,
    encode,
    respond,
    response_format,
)
from tables import rows_of

rows = rows_of(__file__)


def ask_alone(script: Script, **params: Any) -> None:
    """One question to a separate server whose script is expected to fail."""
    with (
        FakeAPI(script) as api,
        openai.OpenAI(base_url=api.openai_base_url, api_key=api.key, max_retries=0) as client,
        pytest.raises(openai.InternalServerError),
    ):
        respond(client, **params)


def test_a_script_that_breaks_a_strict_schema_is_the_tests_fault(script: Script) -> None:
    script.judge({"verdict": "MAYBE"})
    with pytest.raises(ScriptError, match="breaks a strict schema"):
        ask_alone(script, text=response_format(SCHEMA))


@pytest.mark.parametrize(("schema", "words"), rows("strict_schema_rules"))
def test_strict_schema_rules(client: openai.OpenAI, schema: dict[str, Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError, match="Invalid schema for response_format 'grades'") as caught:
        respond(client, text=response_format(schema))
    assert words in str(caught.value)
    assert (caught.value.code, caught.value.param) == ("invalid_json_schema", "text.format.schema")
    with pytest.raises(openai.BadRequestError, match="Invalid schema"):
        chat(client, response_format=chat_format(schema))
    respond(client, text=response_format(schema, strict=False))


def test_strict_schemas_nest_and_refer() -> None:
    node = {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]}
    leaf = {"type": "object", "properties": {"v": {"type": ["number", "null"]}}, "required": ["v"]}
    schema = {"type": "object", "properties": {"a": node}, "required": ["a"], "additionalProperties": False}
    schema["$defs"] = {"leaf": {**leaf, "additionalProperties": False}}
    check_strict(schema)
    assert instance_error(json.loads(example_text(json.dumps(schema))), schema) is None
    schema["$defs"] = {"leaf": leaf}
    with pytest.raises(SchemaError, match=r"\('\$defs', 'leaf'\)"):
        check_strict(schema)


@pytest.mark.parametrize(("params", "param"), rows("a_bad_question_is_named"))
def test_a_bad_question_is_named(client: openai.OpenAI, params: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        respond(client, **params)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:image/png;base64,@@@", "invalid_base64_image"),
        (data_url(b"no image"), "image_parse_error"),
        (data_url(encode("BMP"), "image/bmp"), "invalid_image_format"),
        (data_url(encode(), "image/jpeg"), "image_parse_error"),
        (data_url(encode()[:60]), "image_parse_error"),
        ("file:///etc/hosts", "invalid_value"),
    ],
)
def test_bad_images_are_refused(client: openai.OpenAI, url: str, code: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        respond(client, input=[{"role": "user", "content": [{"type": "input_image", "image_url": url}]}])
    assert caught.value.code == code
    content = [{"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(openai.BadRequestError):
        chat(client, messages=[{"role": "user", "content": content}])


def test_bad_detail_is_refused(client: openai.OpenAI) -> None:
    part = {"type": "input_image", "image_url": data_url(encode()), "detail": "ultra"}
    with pytest.raises(openai.BadRequestError, match="'original'"):
        respond(client, input=[{"role": "user", "content": [part]}])


@pytest.mark.parametrize(("params", "words"), rows("a_bad_chat_is_refused"))
def test_a_bad_chat_is_refused(client: openai.OpenAI, params: Any, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        chat(client, **params)


RESPONSES_TOOL = {"type": "function", "name": "crop", "description": "Zoom", "parameters": CROP, "strict": True}


def test_responses_tool_calls_go_both_ways(api: FakeAPI, script: Script, client: openai.OpenAI) -> None:
    script.judge(crop_then_judge)
    question: list[Any] = [{"role": "user", "content": "Look."}]
    params: dict[str, Any] = {"model": "gpt-5.4", "tools": [RESPONSES_TOOL], "text": response_format(SCHEMA)}
    first = client.responses.create(input=question, store=False, reasoning={"effort": "low"}, **params)
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["image_id"] for call in calls] == ["output", "ref_1"]
    crop = {"type": "input_image", "image_url": data_url(encode()), "detail": "auto"}
    answers = [{"type": "function_call_output", "call_id": call.call_id, "output": [crop]} for call in calls]
    history = [*question, *first.output, *answers]
    second = client.responses.create(input=history, store=False, reasoning={"effort": "low"}, **params)
    assert json.loads(second.output_text)["quality"] == 2
    assert [(result.name, len(result.images)) for result in asked_judge(api).tool_results] == [("crop", 1)] * 2

    for items, words in [
        ([*question, *first.output, answers[0]], "No tool output found for function call"),
        ([*question, *answers], "No tool call found for function call output"),
        ([*question, *calls, *answers], "without its required 'reasoning' item"),
        ([*question, first.output[0]], "without its required following item"),
    ]:
        with pytest.raises(openai.BadRequestError, match=words):
            client.responses.create(input=items, **params)


def test_chat_tool_calls_go_both_ways(api: FakeAPI, script: Script, client: openai.OpenAI) -> None:
    script.judge(crop_then_judge)
    tool = {"type": "function", "function": {"name": "crop", "parameters": CROP, "strict": True}}
    question: list[Any] = [{"role": "user", "content": "Look."}]
    create: Any = client.chat.completions.create
    first = create(model="gpt-5.4", messages=question, tools=[tool]).choices[0]
    assert (first.finish_reason, first.message.content, len(first.message.tool_calls)) == ("tool_calls", None, 2)
    answers = [{"role": "tool", "tool_call_id": call.id, "content": "seen"} for call in first.message.tool_calls]
    turn = first.message.to_dict()
    history = [*question, {key: turn[key] for key in ("role", "content", "tool_calls")}, *answers]
    second = create(model="gpt-5.4", messages=history, tools=[tool])
    assert json.loads(second.choices[0].message.content)["quality"] == 2
    with pytest.raises(openai.BadRequestError, match="did not have response messages"):
        create(model="gpt-5.4", messages=history[:-1], tools=[tool])


def test_a_script_may_call_only_tools_that_were_offered(script: Script) -> None:
    script.judge(lambda _request: ToolCall("crop", {}))
    with pytest.raises(ScriptError, match="not among the tools"):
        ask_alone(script)
