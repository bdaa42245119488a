"""Each fault, and how the real SDKs report it."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx2
import openai
import pytest
from fake_api import KINDS, FakeAPI, Fault, Script
from fake_api.json_schema import example_text, instance_error
from fake_api.samples import (
    SCHEMA,
    chat,
    chat_format,
    open_image,
    respond,
    response_format,
)
from google import genai
from google.genai import errors, types

pytestmark = pytest.mark.slow

OPENAI_RAISES = {
    "rate_limit": openai.RateLimitError,
    "quota": openai.RateLimitError,
    "server_error": openai.InternalServerError,
    "bad_gateway": openai.InternalServerError,
    "unavailable": openai.InternalServerError,
    "unauthorized": openai.AuthenticationError,
    "forbidden": openai.PermissionDeniedError,
    "model_not_found": openai.NotFoundError,
    "bad_request": openai.BadRequestError,
    "reset": openai.APIConnectionError,
    "truncated_body": openai.APIConnectionError,
}


@pytest.mark.parametrize(("kind", "raised"), OPENAI_RAISES.items())
def test_faults_as_openai_raises_them(api: FakeAPI, client: openai.OpenAI, kind: str, raised: type) -> None:
    for call in (
        lambda: client.images.generate(model="gpt-image-2", prompt="x"),
        lambda: respond(client),
        lambda: chat(client),
    ):
        api.faults.queue(Fault(kind))
        with pytest.raises(raised):
            call()
        assert api.requests[-1].fault == kind
        call()
    assert api.paid == {"images.generations": 1, "responses": 1, "chat": 1}


GEMINI_RAISES: dict[str, tuple[type[Exception], int | None]] = {
    "rate_limit": (errors.ClientError, 429),
    "quota": (errors.ClientError, 429),
    "server_error": (errors.ServerError, 500),
    "bad_gateway": (errors.ServerError, 502),
    "unavailable": (errors.ServerError, 503),
    "unauthorized": (errors.ClientError, 400),
    "forbidden": (errors.ClientError, 403),
    "model_not_found": (errors.ClientError, 404),
    "bad_request": (errors.ClientError, 400),
    "reset": (httpx2.TransportError, None),
    "truncated_body": (httpx2.RemoteProtocolError, None),
}


@pytest.mark.parametrize(("kind", "expected"), GEMINI_RAISES.items())
def test_faults_as_genai_raises_them(api: FakeAPI, gemini: genai.Client, kind: str, expected: Any) -> None:
    api.faults.queue(Fault(kind))
    with pytest.raises(expected[0]) as caught:
        gemini.models.generate_content(model="gemini-3.5-flash", contents="x")
    assert getattr(caught.value, "code", None) == expected[1]
    assert gemini.models.generate_content(model="gemini-3.5-flash", contents="x").text


def test_retry_after_is_in_header_or_body(api: FakeAPI, client: openai.OpenAI, gemini: genai.Client) -> None:
    api.faults.queue(Fault("rate_limit", retry_after=1.5), Fault("rate_limit"))
    with pytest.raises(openai.RateLimitError) as caught:
        respond(client)
    assert (caught.value.response.headers["retry-after"], caught.value.code) == ("2", "rate_limit_exceeded")
    assert caught.value.response.headers["retry-after-ms"] == "1500"
    with pytest.raises(openai.RateLimitError) as caught:
        respond(client)
    assert "retry-after" not in caught.value.response.headers
    api.faults.queue(Fault("rate_limit", retry_after=1.5))
    with pytest.raises(errors.ClientError) as refused:
        gemini.models.generate_content(model="gemini-3.5-flash", contents="x")
    infos = [single for single in refused.value.details["error"]["details"] if single["@type"].endswith("RetryInfo")]
    assert [info["retryDelay"] for info in infos] == ["1.5s"]


def test_a_hang_is_a_timeout(api: FakeAPI) -> None:
    api.faults.queue(Fault("hang"), Fault("hang"))
    client = openai.OpenAI(base_url=api.openai_base_url, api_key=api.key, max_retries=0, timeout=0.3)
    with client, pytest.raises(openai.APITimeoutError):
        respond(client)
    options = types.HttpOptions(base_url=api.gemini_base_url, timeout=300)
    slow = genai.Client(api_key=api.key, http_options=options)
    with pytest.raises(httpx2.TimeoutException):
        slow.models.generate_content(model="gemini-3.5-flash", contents="x")
    slow.close()


def test_broken_images(api: FakeAPI, client: openai.OpenAI) -> None:
    def data() -> list[str | None]:
        reply = client.images.generate(model="gpt-image-2", prompt="x", n=3)
        return [image.b64_json for image in reply.data or []]

    whole = data()
    kinds = ("truncated_base64", "empty_base64", "no_image", "fewer_images", "not_an_image")
    api.faults.queue(*(Fault(kind) for kind in kinds))
    for text in data():
        with pytest.raises(ValueError, match="base64"):
            base64.b64decode(text or "", validate=True)
    assert data() == ["", "", ""]
    assert data() == []
    assert data() == whole[:2]
    with pytest.raises(OSError, match="cannot identify"):
        open_image(data()[0])
    assert api.paid["images.generations"] == 6


def test_broken_gemini_images(api: FakeAPI, gemini: genai.Client) -> None:
    def generate() -> types.GenerateContentResponse:
        return gemini.models.generate_content(model="gemini-nano-banana-2.1", contents="x")

    api.faults.queue(
        Fault("no_image", text="I would rather describe it."), Fault("empty_base64"), Fault("fewer_images")
    )
    assert [(part.text, part.inline_data) for part in generate().parts or []] == [("I would rather describe it.", None)]
    assert [part.inline_data.data for part in generate().parts or [] if part.inline_data] == [b""]
    assert [part.inline_data for part in generate().parts or []] == [None]


def test_a_refused_generation(api: FakeAPI, client: openai.OpenAI) -> None:
    api.faults.queue(Fault("refusal"))
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.generate(model="gpt-image-2", prompt="x")
    assert (caught.value.code, caught.value.type) == ("moderation_blocked", "image_generation_user_error")
    assert not api.paid


def test_refused_questions(api: FakeAPI, client: openai.OpenAI) -> None:
    api.faults.queue(*(Fault("refusal", text="No.") for _ in range(2)))
    part = respond(client).output[-1].content[0]
    assert (part.type, part.refusal) == ("refusal", "No.")
    choice = chat(client).choices[0]
    assert (choice.message.refusal, choice.message.content, choice.finish_reason) == ("No.", None, "stop")
    api.faults.queue(
        *(Fault("refusal", reason="content_filter") for _ in range(2)), Fault("refusal", reason="invalid_prompt")
    )
    reply = respond(client)
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "content_filter")
    assert chat(client).choices[0].finish_reason == "content_filter"
    with pytest.raises(openai.BadRequestError) as caught:
        respond(client)
    assert caught.value.code == "invalid_prompt"


@pytest.mark.parametrize("model", ["gemini-nano-banana-2.1", "gemini-3.5-flash"])
def test_gemini_refusals(api: FakeAPI, gemini: genai.Client, model: str) -> None:
    reasons = ("IMAGE_SAFETY", "PROHIBITED_CONTENT", "SAFETY")
    api.faults.queue(Fault("refusal"), *(Fault("refusal", reason=reason) for reason in reasons))
    blocked = gemini.models.generate_content(model=model, contents="x")
    assert (blocked.candidates, blocked.parts, blocked.text) == (None, None, None)
    assert blocked.prompt_feedback is not None
    assert blocked.prompt_feedback.block_reason is types.BlockedReason.PROHIBITED_CONTENT
    for reason in reasons:
        stopped = gemini.models.generate_content(model=model, contents="x")
        assert stopped.candidates
        assert stopped.candidates[0].finish_reason is types.FinishReason[reason]
        assert not stopped.parts
        assert stopped.prompt_feedback is None


def judge_texts(client: openai.OpenAI, gemini: genai.Client) -> list[str | None]:
    config = types.GenerateContentConfig(response_mime_type="application/json", response_json_schema=SCHEMA)
    return [
        respond(client, text=response_format(SCHEMA)).output_text,
        chat(client, response_format=chat_format(SCHEMA)).choices[0].message.content,
        gemini.models.generate_content(model="gemini-3.5-flash", contents="x", config=config).text,
    ]


def test_answers_out_of_shape(api: FakeAPI, client: openai.OpenAI, gemini: genai.Client) -> None:
    good = json.loads(example_text(json.dumps(SCHEMA)))
    api.faults.queue(*[Fault("off_schema")] * 3, *[Fault("fenced")] * 3, *[Fault("prose")] * 3, *[Fault("mangled")] * 3)
    for text in judge_texts(client, gemini):
        assert instance_error(json.loads(text or ""), SCHEMA) is not None
    for text in judge_texts(client, gemini):
        assert (text or "").startswith("```json\n")
        assert json.loads((text or "")[7:-3]) == good
    for text in judge_texts(client, gemini) + judge_texts(client, gemini):
        assert json.dumps(good)[:-1] in (text or "")
        with pytest.raises(ValueError, match=r"Expecting|double quotes|Illegal"):
            json.loads(text or "")
    api.faults.queue(*[Fault("empty")] * 3)
    assert judge_texts(client, gemini) == ["", "", None]


def test_the_token_limit(api: FakeAPI, client: openai.OpenAI, gemini: genai.Client) -> None:
    api.faults.queue(*[Fault("max_tokens")] * 3)
    reply = respond(client, text=response_format(SCHEMA))
    assert (reply.status, reply.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(reply.output_text)
    assert chat(client).choices[0].finish_reason == "length"
    cut = gemini.models.generate_content(model="gemini-3.5-flash", contents="x")
    assert cut.candidates
    assert cut.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


def test_a_script_can_return_invalid_output(api: FakeAPI, script: Script, client: openai.OpenAI) -> None:
    script.generate(lambda request: Fault("refusal") if "gun" in request.prompt else None)
    script.judge(lambda request: Fault("rate_limit") if request.turns == 0 else None)
    with pytest.raises(openai.BadRequestError, match="safety system"):
        client.images.generate(model="gpt-image-2", prompt="a gun")
    client.images.generate(model="gpt-image-2", prompt="a bun")
    with pytest.raises(openai.RateLimitError):
        respond(client)


def test_faults_by_predicate_and_by_chance(api: FakeAPI, client: openai.OpenAI) -> None:
    def statuses() -> list[int]:
        start = len(api.requests)
        for number in range(30):
            try:
                client.images.generate(model="gpt-image-2", prompt=f"case {number}")
            except openai.APIStatusError:
                continue
        return [entry.status for entry in api.requests[start:]]

    api.faults.random({"rate_limit": 0.3, "server_error": 0.2}, seed=7)
    first = statuses()
    assert {200, 429, 500} == set(first)
    with FakeAPI() as other:
        other.faults.random({"rate_limit": 0.3, "server_error": 0.2}, seed=7)
        with openai.OpenAI(base_url=other.openai_base_url, api_key=other.key, max_retries=0) as again:
            for number in reversed(range(30)):
                try:
                    again.images.generate(model="gpt-image-2", prompt=f"case {number}")
                except openai.APIStatusError:
                    continue
        assert [entry.status for entry in reversed(other.requests)] == first
    api.faults.clear()
    api.faults.when(lambda asked: asked.model == "gpt-image-2.5-flare", Fault("unavailable"))
    with pytest.raises(openai.InternalServerError):
        client.images.generate(model="gpt-image-2.5-flare", prompt="x")
    client.images.generate(model="gpt-image-2", prompt="x")


def test_unknown_faults_are_named() -> None:
    with pytest.raises(ValueError, match="no such fault: earthquake"):
        Fault("earthquake")
    assert set(OPENAI_RAISES) < set(KINDS)


def test_a_web_page_instead_of_an_answer(api: FakeAPI, client: openai.OpenAI, gemini: genai.Client) -> None:
    api.faults.queue(*[Fault("html")] * 3)
    assert [type(respond(client)), type(chat(client))] == [str, str]  # OpenAI's SDK returns the text unchanged
    with pytest.raises(json.JSONDecodeError):
        gemini.models.generate_content(model="gemini-3.5-flash", contents="x")
    assert not api.paid
