"""The fake server through the real SDKs: generation, keys, the log and the connections."""

from __future__ import annotations

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
    encode,
    respond,
)
from tables import rows_of

rows = rows_of(__file__)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("params", "param", "code"), rows("a_bad_generation_parameter_is_named"))
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
