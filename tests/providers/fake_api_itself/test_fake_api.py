"""The fake server through the real SDKs: generation, keys, the log and the connections."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from fake_api import FakeAPI, Fault, Script
from fake_api.http1 import MalformedError
from fake_api.samples import (
    asked_generate,
    encode,
    gemini_client,
    open_image,
    respond,
)
from google import genai
from google.genai import errors, types

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("fmt", "decoder"), [("png", "PNG"), ("jpeg", "JPEG"), ("webp", "WEBP")])
def test_generation_honours_n_size_and_format(api: FakeAPI, client: openai.OpenAI, fmt: Any, decoder: str) -> None:
    reply = client.images.generate(
        model="gpt-image-2.5-flare", prompt="A bakery", n=3, size="1536x864", quality="low", output_format=fmt
    )
    outputs = [open_image(image.b64_json) for image in reply.data or []]
    assert [(output.format, output.size) for output in outputs] == [(decoder, (1536, 864))] * 3
    assert len({image.b64_json for image in reply.data or []}) == 3
    assert (reply.size, reply.output_format, reply.quality) == ("1536x864", fmt, "low")
    assert reply.usage is not None
    assert reply.usage.input_tokens_details.text_tokens == 3
    assert reply.usage.output_tokens_details is not None
    assert reply.usage.output_tokens_details.image_tokens == reply.usage.output_tokens > 0
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens


def test_edit_gets_images_in_order_and_the_mask(api: FakeAPI, client: openai.OpenAI) -> None:
    first, second, mask = encode("JPEG", (64, 48)), encode("WEBP", (20, 30)), encode("PNG", (64, 48), "RGBA")
    client.images.edit(
        model="gpt-image-1.5",
        prompt="Swap",
        image=[("a.jpg", first, "image/jpeg"), ("b.webp", second, "image/webp")],
        mask=("mask.png", mask, "image/png"),
        input_fidelity="high",
        n=2,
    )
    asked = asked_generate(api)
    assert [image.data for image in asked.images] == [first, second]
    assert asked.mask is not None
    assert asked.mask.data == mask
    assert (asked.n, asked.prompt, asked.params["input_fidelity"]) == (2, "Swap", "high")
    assert [part.name for part in api.requests[-1].form if part.filename] == ["image[]", "image[]", "mask"]


def test_a_script_generates(api: FakeAPI, script: Script, client: openai.OpenAI) -> None:
    mine = encode("PNG", (7, 9))
    script.generate(lambda request: mine if "mine" in request.prompt else None)
    ours = client.images.generate(model="gpt-image-2", prompt="mine", n=2)
    theirs = client.images.generate(model="gpt-image-2", prompt="other")
    assert [base64.b64decode(image.b64_json or "") for image in ours.data or []] == [mine, mine]
    assert open_image((theirs.data or [])[0].b64_json).size == (256, 256)


@pytest.mark.parametrize(
    ("params", "param", "code"),
    [
        ({"extra_body": {"colour": "red"}}, "colour", "unknown_parameter"),
        ({"response_format": "b64_json"}, "response_format", "unknown_parameter"),
        ({"style": "vivid"}, "style", "unknown_parameter"),
        ({"quality": "ultra"}, "quality", "invalid_value"),
        ({"quality": "hd"}, "quality", "invalid_value"),
        ({"quality": "max", "model": "gpt-image-2"}, "quality", "invalid_value"),
        ({"size": "1000x1000"}, "size", "invalid_value"),
        ({"size": "512x512"}, "size", "invalid_value"),
        ({"size": "3840x1024"}, "size", "invalid_value"),
        ({"size": "1536x864", "model": "gpt-image-1.5"}, "size", "invalid_value"),
        ({"n": 11}, "n", "integer_above_max_value"),
        ({"n": "2"}, "n", "invalid_type"),
        ({"output_format": "bmp"}, "output_format", "invalid_value"),
        ({"background": "transparent", "output_format": "jpeg"}, "background", "invalid_value"),
        ({"output_compression": 50}, "output_compression", "invalid_value"),
        ({"prompt": ""}, "prompt", "missing_required_parameter"),
    ],
)
def test_a_bad_generation_parameter_is_named(client: openai.OpenAI, params: Any, param: str, code: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.generate(**{"model": "gpt-image-2.5-sunburst", "prompt": "x", **params})
    assert (caught.value.param, caught.value.code) == (param, code)
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("model", ["gpt-image-1", "dall-e-3", "gpt-image-99"])
def test_an_unknown_or_retired_model_is_a_404(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError, match=model) as caught:
        client.images.generate(model=model, prompt="x")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"image": encode()}, "unsupported_file_mimetype"),
        ({"image": ("a.png", b"no image", "image/png")}, "invalid_image_file"),
        ({"image": ("a.png", encode("JPEG"), "image/png")}, "invalid_image_file"),
        ({"image": [("a.png", encode(), "image/png")] * 17}, "array_above_max_length"),
        ({"mask": ("m.png", encode("PNG", (64, 49), "RGBA"), "image/png")}, "invalid_mask_image_format"),
        ({"mask": ("m.png", encode("PNG"), "image/png")}, "invalid_mask_image_format"),
        ({"mask": ("m.webp", encode("WEBP", mode="RGBA"), "image/webp")}, "invalid_mask_image_format"),
        ({"input_fidelity": "high"}, "invalid_input_fidelity_model"),
        ({"extra_body": {"colour": "red"}}, "unknown_parameter"),
        ({"n": 0}, "integer_below_min_value"),
    ],
)
def test_a_bad_edit_is_refused(client: openai.OpenAI, change: Any, code: str) -> None:
    good = {"model": "gpt-image-2.5-flare", "prompt": "x", "image": ("a.png", encode(), "image/png")}
    client.images.edit(**good)
    with pytest.raises(openai.BadRequestError) as caught:
        client.images.edit(**{**good, **change})
    assert caught.value.code == code


def test_a_broken_form_is_refused(api: FakeAPI) -> None:
    headers = {"authorization": f"Bearer {api.key}", "content-type": "multipart/form-data; boundary=b"}
    body = b'--b\r\ncontent-disposition: form-data; name="prompt"\r\n\r\nx\r\n'
    reply = httpx2.post(f"{api.openai_base_url}/images/edits", headers=headers, content=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_multipart_form")


def test_wrong_keys(api: FakeAPI) -> None:
    client = openai.OpenAI(base_url=api.openai_base_url, api_key="sk-wrong-key", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError) as caught:
        respond(client)
    assert caught.value.code == "invalid_api_key"
    wrong = gemini_client(api, api_key="wrong")
    with pytest.raises(errors.ClientError) as refused:
        wrong.models.generate_content(model="gemini-3.5-flash", contents="x")
    wrong.close()
    assert refused.value.code == 400
    assert refused.value.details["error"]["details"][0]["reason"] == "API_KEY_INVALID"
    assert httpx2.post(f"{api.gemini_base_url}/v1beta/models/gemini-3.5-flash:generateContent").status_code == 403
    assert httpx2.post(f"{api.openai_base_url}/responses").status_code == 401


def test_the_log_has_no_secrets_and_counts_paid_calls(api: FakeAPI, client: openai.OpenAI) -> None:
    edit = {"model": "gpt-image-2", "prompt": "x", "image": ("a.png", encode(), "image/png")}
    for _ in range(2):
        client.images.edit(**edit)  # type: ignore[call-overload]
    api.faults.queue(Fault("server_error"))
    with pytest.raises(openai.InternalServerError):
        client.images.edit(**edit)  # type: ignore[call-overload]
    respond(client)
    assert api.key not in repr(api.requests)
    assert [entry.endpoint for entry in api.requests] == ["images.edits"] * 3 + ["responses"]
    assert [entry.paid for entry in api.requests] == [True, True, False, True]
    assert len({entry.digest for entry in api.requests_to("images.edits")}) == 1
    assert sorted(api.paid_by_digest.values()) == [1, 2]
    assert api.requests[-1].body["model"] == "gpt-5.4"


def test_a_connection_is_reused(api: FakeAPI, client: openai.OpenAI) -> None:
    for _ in range(3):
        respond(client)
    assert api.most_connections == 1


def test_three_hundred_at_once(api: FakeAPI) -> None:
    api.latency = {"images": 0.5, "judge": (0.4, 0.6)}

    async def burst() -> None:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        transport = httpx2.AsyncClient(limits=limits)
        options = types.HttpOptions(base_url=api.gemini_base_url, httpx_async_client=transport)
        gemini = genai.Client(api_key=api.key, http_options=options)
        async with openai.AsyncOpenAI(base_url=api.openai_base_url, api_key=api.key, max_retries=0) as client:
            generates = [client.images.generate(model="gpt-image-2", prompt=f"case {n}") for n in range(100)]
            openai_judgements = [client.responses.create(model="gpt-5.4", input=f"case {n}") for n in range(100)]
            gemini_judgements = [
                gemini.aio.models.generate_content(model="gemini-3.5-flash", contents=f"case {n}") for n in range(100)
            ]
            await asyncio.gather(*generates, *openai_judgements, *gemini_judgements)
        await gemini.aio.aclose()
        await transport.aclose()  # one that is handed over is not the SDK's to close

    asyncio.run(burst())
    assert api.paid == {"images.generations": 100, "responses": 100, "gemini": 100}
    assert api.most_connections == 300


def test_three_hundred_bare_connections_at_the_same_moment(api: FakeAPI) -> None:
    waiting = [socket.create_connection(("127.0.0.1", api.port), timeout=5) for _ in range(300)]
    for connection in waiting:
        connection.sendall(b"GET /nothing HTTP/1.1\r\nhost: x\r\n\r\n")
    for connection in waiting:
        assert connection.recv(12) == b"HTTP/1.1 401"
        connection.close()


def test_a_body_in_chunks(api: FakeAPI) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"model": "gpt-5.4", '
        yield b'"input": "Hello"}'

    headers = {"authorization": f"Bearer {api.key}"}
    reply = httpx2.post(f"{api.openai_base_url}/responses", headers=headers, content=chunks())
    assert (reply.status_code, api.requests[-1].body) == (200, {"model": "gpt-5.4", "input": "Hello"})


def test_invalid_http_is_reported(script: Script) -> None:
    with pytest.raises(MalformedError, match="not a request line"):
        send_bytes(script, b"HELLO\r\n\r\n")


def send_bytes(script: Script, data: bytes) -> None:
    with FakeAPI(script) as api, socket.create_connection(("127.0.0.1", api.port), timeout=5) as connection:
        connection.sendall(data)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")


def test_it_runs_in_its_own_process() -> None:
    here = Path(__file__).parents[2]
    command = [sys.executable, "-m", "fake_api", "--faults", '{"unavailable": 1}']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=here) as process:
        assert process.stdin
        assert process.stdout
        urls = json.loads(process.stdout.readline())
        headers = {"authorization": f"Bearer {urls['key']}"}
        question = {"model": "gpt-5.4", "input": "Hello"}
        reply = httpx2.post(f"{urls['openai_base_url']}/responses", headers=headers, json=question)
        process.stdin.close()
        counts = json.loads(process.stdout.read())
    assert reply.status_code == 503
    assert (counts["requests"], counts["paid"]) == (1, {})
