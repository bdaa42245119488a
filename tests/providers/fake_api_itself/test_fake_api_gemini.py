"""The fake server through the real google-genai SDK, Developer API and Vertex."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_api import FakeAPI, Script
from fake_api.samples import (
    SCHEMA,
    asked_judge,
    crop_then_judge,
    encode,
    gemini_tools,
    image_part,
)
from google import genai
from google.genai import errors, types

pytestmark = pytest.mark.slow


def test_gemini_accepts_its_own_schema_dialect(gemini: genai.Client) -> None:
    schema = {"type": "OBJECT", "properties": {"ok": {"type": "BOOLEAN"}}, "required": ["ok"]}
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=schema)
    reply = gemini.models.generate_content(model="gemini-3.5-flash", contents="Judge.", config=config)
    assert json.loads(reply.text or "") == {"ok": True}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"response_json_schema": SCHEMA}, "mime type: 'text/plain' is unsupported"),
        (
            {"response_mime_type": "application/json", "response_json_schema": {"type": "string", "minLength": 1}},
            "minLength",
        ),
        ({"http_options": {"extra_body": {"generationConfig": {"colour": 1}}}}, 'Unknown name "colour"'),
        ({"http_options": {"extra_body": {"colour": 1}}}, 'Unknown name "colour"'),
        ({"response_modalities": ["IMAGE"]}, "does not support the requested response modalities"),
        ({"response_mime_type": "application/json", "tools": gemini_tools()}, "Function calling with a response mime"),
    ],
)
def test_a_bad_gemini_config_is_refused(gemini: genai.Client, config: Any, words: str) -> None:
    with pytest.raises(errors.ClientError, match=words) as caught:
        gemini.models.generate_content(model="gemini-2.5-flash", contents="x", config=config)
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"image_config": {"aspect_ratio": "7:3"}}, "Invalid aspect ratio"),
        ({"image_config": {"image_size": "4K"}}, "Invalid image size"),
        ({"candidate_count": 2}, "Multiple candidates"),
        ({"response_mime_type": "application/json"}, "JSON mode is not enabled"),
    ],
)
def test_a_bad_gemini_generation_is_refused(gemini: genai.Client, config: Any, words: str) -> None:
    with pytest.raises(errors.ClientError, match=words):
        gemini.models.generate_content(model="gemini-2.5-flash-image", contents="x", config=config)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (image_part(b"no image"), "Unable to process input image"),
        (image_part(encode("GIF"), "image/gif"), "Unsupported MIME type"),
        (image_part(encode("JPEG")), "Unable to process input image"),
        (types.Part(file_data=types.FileData(file_uri="gs://b/x", mime_type=None)), "mime type"),
        (types.Part(file_data=types.FileData(file_uri="/tmp/x.png", mime_type="image/png")), "file uri"),
    ],
)
def test_bad_gemini_media_are_refused(gemini: genai.Client, part: types.Part, words: str) -> None:
    with pytest.raises(errors.ClientError, match=words):
        gemini.models.generate_content(model="gemini-3.5-flash", contents=[part, "Judge."])


def test_gemini_tool_calls_go_both_ways(api: FakeAPI, script: Script, gemini: genai.Client) -> None:
    script.judge(crop_then_judge)
    model, config = "gemini-3.1-pro-preview", types.GenerateContentConfig(tools=gemini_tools())
    question = types.Content(role="user", parts=[types.Part(text="Look.")])
    first = gemini.models.generate_content(model=model, contents=[question], config=config)
    assert [call.name for call in first.function_calls or []] == ["crop", "crop"]
    crop = types.FunctionResponsePart(inline_data=types.FunctionResponseBlob(data=encode(), mime_type="image/png"))
    answers = [
        types.Part(
            function_response=types.FunctionResponse(id=call.id, name=call.name, response={"ok": 1}, parts=[crop])
        )
        for call in first.function_calls or []
    ]
    assert first.candidates
    turn = first.candidates[0].content
    assert turn is not None
    reply = types.Content(role="user", parts=answers)
    second = gemini.models.generate_content(model=model, contents=[question, turn, reply], config=config)
    assert json.loads(second.text or "")["quality"] == 2
    assert [len(result.images) for result in asked_judge(api).tool_results] == [1, 1]

    unsigned = types.Content(
        role="model", parts=[types.Part(function_call=call) for call in first.function_calls or []]
    )
    for contents, words in [
        ([question, turn, types.Content(role="user", parts=answers[:1])], "number of function response parts"),
        ([question, reply], "immediately after a function call turn"),
        ([question, unsigned, reply], "missing a thought_signature"),
    ]:
        with pytest.raises(errors.ClientError, match=words):
            gemini.models.generate_content(model=model, contents=contents, config=config)
