"""The fake server through the real google-genai SDK, Developer API and Vertex."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from fake_api import FakeAPI, Script, SentFile
from fake_api.json_schema import instance_error
from fake_api.samples import (
    SCHEMA,
    asked_generate,
    asked_judge,
    crop_then_judge,
    encode,
    gemini_client,
    gemini_tools,
    image_part,
)
from google import genai
from google.genai import errors, types
from google.oauth2.credentials import Credentials
from PIL import Image

pytestmark = pytest.mark.slow


def test_gemini_generates_in_the_ratio_asked_for(api: FakeAPI, gemini: genai.Client) -> None:
    config = types.GenerateContentConfig(
        response_modalities=["IMAGE"], image_config=types.ImageConfig(aspect_ratio="16:9", image_size="2K")
    )
    reply = gemini.models.generate_content(
        model="gemini-3-pro-image", contents=["Add a hat.", image_part()], config=config
    )
    assert reply.parts
    assert [part.text for part in reply.parts] == [None]
    blob = reply.parts[0].inline_data
    assert blob is not None
    assert blob.data is not None
    assert blob.mime_type == "image/png"
    assert Image.open(io.BytesIO(blob.data)).size == (2688, 1536)
    assert reply.usage_metadata is not None
    details = {single.modality: single.token_count for single in reply.usage_metadata.prompt_tokens_details or []}
    assert details == {types.MediaModality.TEXT: 3, types.MediaModality.IMAGE: 258}
    asked = asked_generate(api)
    assert (asked.prompt, [image.size for image in asked.images], asked.n) == ("Add a hat.", [(64, 48)], 1)


def test_gemini_judges_in_a_schema(api: FakeAPI, gemini: genai.Client) -> None:
    config = types.GenerateContentConfig(
        response_mime_type="application/json",
        response_json_schema=SCHEMA,
        temperature=0,
        system_instruction="Be strict.",
        thinking_config=types.ThinkingConfig(thinking_level=types.ThinkingLevel.LOW, include_thoughts=True),
    )
    video = types.Part.from_bytes(data=b"\0\0\0\x18ftypmp42", mime_type="video/mp4")
    address = types.Part.from_uri(file_uri="gs://bucket/clip.mp4", mime_type="video/mp4")
    reply = gemini.models.generate_content(
        model="gemini-3-flash-preview", contents=["Judge.", image_part(), video, address], config=config
    )
    assert instance_error(json.loads(reply.text or ""), SCHEMA) is None
    assert reply.parts
    assert [part.thought for part in reply.parts] == [True, None]
    asked = asked_judge(api)
    assert asked.text == "Be strict.\nJudge."
    assert [image.mime for image in asked.images] == ["image/png", "video/mp4"]
    assert asked.files == (SentFile("gs://bucket/clip.mp4", "video/mp4"),)


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


def test_vertex_by_project_and_by_key(api: FakeAPI) -> None:
    by_project = gemini_client(
        api,
        api_key=None,
        vertexai=True,
        project="shop",
        location="europe-west4",
        credentials=Credentials(token=api.key),
    )
    config = types.GenerateContentConfig(image_config=types.ImageConfig(output_mime_type="image/jpeg"))
    reply = by_project.models.generate_content(model="gemini-nano-banana-2.1", contents="Generate.", config=config)
    blob = next(part.inline_data for part in reply.parts or [] if part.inline_data)
    assert Image.open(io.BytesIO(blob.data or b"")).format == "JPEG"
    assert "/projects/shop/locations/europe-west4/publishers/google/models/" in api.requests[-1].path
    by_key = gemini_client(api, vertexai=True)
    assert by_key.models.generate_content(model="gemini-3.5-flash", contents="Hello").text
    assert api.requests[-1].path == "/v1beta1/publishers/google/models/gemini-3.5-flash:generateContent"
    assert api.paid == {"vertex": 2}
    wrong = gemini_client(
        api, api_key=None, vertexai=True, project="p", location="l", credentials=Credentials(token="no")
    )
    with pytest.raises(errors.ClientError) as caught:
        wrong.models.generate_content(model="gemini-3.5-flash", contents="Hello")
    assert (caught.value.code, caught.value.status) == (401, "UNAUTHENTICATED")
    for client in (by_project, by_key, wrong):
        client.close()


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
