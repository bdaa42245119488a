"""Generation and editing through the real SDK, against a server that checks requests as the real one does."""

from __future__ import annotations

import asyncio
import base64
import io
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from canned_api import canned
from fake_api import FakeAPI, Fault, Script
from fake_api.samples import asked_generate, encode
from PIL import Image
from tables import rows_of

from visioneval import CaseFiles, Generation, GenerationRequest, ProviderError, TaskType, TestCase, UsageError
from visioneval.providers.error_replies import read_error, retry_after
from visioneval.providers.openai import OpenAIProvider
from visioneval.providers.openai.connection import client_for, provider_errors
from visioneval.providers.openai.generator import OpenAIGenerator
from visioneval.suite.remote import OpenAIOptions

rows = rows_of(__file__)

pytestmark = pytest.mark.slow

PLAIN = {"model": "gpt-image-2"}


def request(
    params: Mapping[str, Any] = PLAIN, files: CaseFiles | None = None, prompt: str = "a tree"
) -> GenerationRequest:
    return GenerationRequest(
        case=TestCase(id="one", prompt=prompt),
        task_type=TaskType.IMAGE_EDITING if files else TaskType.IMAGE_GENERATION,
        prompt=prompt,
        model_label="m",
        params=params,
        files=files or CaseFiles(),
        samples=tuple(range(params.get("n", 1))),
        folder=Path(),
    )


def generate(url: str, asked: GenerationRequest, key: str = "sk-fake-0123456789abcdef", **options: Any) -> Generation:
    os.environ["LOCAL_KEY"] = key
    config = OpenAIProvider(provider="openai", base_url=url, api_key_env="LOCAL_KEY", **options)

    async def once() -> Generation:
        provider = OpenAIGenerator(config)
        return await (provider.edit(asked) if asked.files.images else provider.generate(asked))

    try:
        return asyncio.run(once())
    finally:
        del os.environ["LOCAL_KEY"]


def failed(url: str, asked: GenerationRequest | None = None, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        generate(url, asked or request(), **options)
    return caught.value


def open_image(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.parametrize("fmt", ["png", "webp", "jpeg"])
def test_images_have_the_requested_count_and_format(api: FakeAPI, fmt: str) -> None:
    params = {"model": "gpt-image-2", "n": 3, "size": "1536x1024", "quality": "low", "output_format": fmt}
    generation = generate(api.openai_base_url, request(params))
    assert [(open_image(data).format, open_image(data).size) for data in generation.outputs] == [
        (fmt.upper(), (1536, 1024))
    ] * 3
    assert len(set(generation.outputs)) == 3
    assert (generation.run_params, generation.refused) == (params, None)


def test_only_given_parameters_are_sent(api: FakeAPI) -> None:
    params = {
        "model": "gpt-image-2",
        "background": "transparent",
        "moderation": "low",
        "output_compression": 100,
        "user": "eval",
    }
    generate(api.openai_base_url, request(params))
    assert api.requests[-1].body == {**params, "prompt": "a tree"}
    generate(api.openai_base_url, request({**PLAIN, "prompt": "another"}))
    assert api.requests[-1].body["prompt"] == "a tree"


@pytest.mark.parametrize(("params", "words"), rows("a_bad_parameter_is_answered_in_the_providers_words"))
def test_a_bad_parameter_is_answered_in_the_providers_words(api: FakeAPI, params: dict[str, Any], words: str) -> None:
    asked = request({**PLAIN, "n": 1})
    object.__setattr__(asked, "params", {**PLAIN, **params})
    error = failed(api.openai_base_url, asked)
    assert str(error).startswith(words)
    assert (error.kind, error.retry_after) == ("invalid", None)


def test_usage_separates_image_and_text_tokens(api: FakeAPI, save_image: Callable[..., Path]) -> None:
    files = CaseFiles(images=(("base", save_image()),))
    generation = generate(api.openai_base_url, request({**PLAIN, "quality": "low", "n": 2}, files))
    assert generation.usage == {
        "input_tokens": 325,
        "input_image_tokens": 323,
        "input_text_tokens": 2,
        "output_tokens": 544,
        "output_image_tokens": 544,
        "output_text_tokens": 0,
        "total_tokens": 869,
    }


def test_an_answer_without_usage_has_none() -> None:
    with canned({"created": 1, "data": [{"b64_json": base64.b64encode(b"x").decode()}]}) as server:
        assert replace(generate(server.url, request()), reply=None) == Generation(outputs=(b"x",), run_params=PLAIN)


def test_several_images_are_sent_in_order(api: FakeAPI, save_image: Callable[..., Path]) -> None:
    paths = [
        save_image("a.png"),
        save_image("b.jpg", size=(40, 30)),
        save_image("c.webp", size=(20, 10)),
        save_image("d.gif"),
    ]
    files = CaseFiles(images=tuple((f"role_{position}", path) for position, path in enumerate(paths)))
    generate(api.openai_base_url, request({**PLAIN, "quality": "high"}, files, "put it on"))
    sent = asked_generate(api)
    assert [(part.filename, part.mime, part.size) for part in sent.images] == [
        ("a.png", "image/png", (64, 48)),
        ("b.jpg", "image/jpeg", (40, 30)),
        ("c.webp", "image/webp", (20, 10)),
        ("d.png", "image/png", (64, 48)),
    ]
    assert [part.data for part in sent.images[:3]] == [path.read_bytes() for path in paths[:3]]
    assert (sent.mask, sent.prompt) == (None, "put it on")
    assert sent.params == {**PLAIN, "quality": "high", "prompt": "put it on"}


def masked(save_image: Callable[..., Path], mask: Path) -> CaseFiles:
    return CaseFiles(images=(("base", save_image()), ("logo", save_image("b.png"))), masks={"editable": mask})


def test_a_mask_of_another_format_becomes_a_png_with_alpha(
    api: FakeAPI, save_image: Callable[..., Path], mask: Callable[..., Path], tmp_path: Path
) -> None:
    with Image.open(mask()) as image:
        image.save(tmp_path / "mask.webp", lossless=True)
    generate(api.openai_base_url, request(files=masked(save_image, tmp_path / "mask.webp")))
    sent = asked_generate(api).mask
    assert sent is not None
    alpha = open_image(sent.data).getchannel("A")
    assert [alpha.getpixel(at) for at in ((0, 0), (15, 12), (16, 12), (47, 35), (48, 36))] == [255, 255, 0, 0, 255]


@pytest.mark.parametrize("form", ["webp", "gray.png"])
def test_the_soft_edge_of_a_mask_is_sent(
    api: FakeAPI, save_image: Callable[..., Path], tmp_path: Path, form: str
) -> None:
    """In alpha as an argument, whatever the format; as an image, what may change is white."""
    shades = Image.new("LA" if form == "gray.png" else "RGBA", (64, 48))
    alpha = Image.new("L", (64, 48), 255)
    alpha.paste(0, (16, 12, 48, 36))
    alpha.paste(100, (14, 12, 16, 36))
    shades.putalpha(alpha)
    shades.save(tmp_path / f"mask.{form}", **({"lossless": True} if form == "webp" else {}))
    files = masked(save_image, tmp_path / f"mask.{form}")
    generate(api.openai_base_url, request(files=files))
    sent = asked_generate(api).mask
    assert sent is not None
    row = [open_image(sent.data).getchannel("A").getpixel((x, 20)) for x in (13, 14, 16, 48)]
    assert row == [255, 100, 0, 255]
    generate(api.openai_base_url, request(files=files), mask_mode="as_image")
    shown = open_image(asked_generate(api).images[2].data)
    assert [shown.getpixel((x, 20)) for x in (13, 14, 16, 48)] == [0, 255, 255, 0]


def test_a_mask_in_a_palette_is_sent_with_an_alpha_channel(
    api: FakeAPI, save_image: Callable[..., Path], tmp_path: Path
) -> None:
    gray = Image.new("L", (64, 48), 255)
    gray.paste(0, (16, 12, 48, 36))
    gray.save(tmp_path / "mask.png", transparency=0)
    generate(api.openai_base_url, request(files=masked(save_image, tmp_path / "mask.png")))
    sent = asked_generate(api).mask
    assert sent is not None
    image = open_image(sent.data)
    assert (image.mode, image.getpixel((20, 20))[3], image.getpixel((0, 0))[3]) == ("RGBA", 0, 255)


def test_a_damaged_image_fails_only_its_cell(api: FakeAPI, script: Script) -> None:
    good = encode()
    whole = base64.b64encode(good).decode()
    with canned({"data": [{"b64_json": whole}, {"b64_json": whole[:-3]}, {"b64_json": ""}, {}]}) as server:
        generated = generate(server.url, request({**PLAIN, "n": 4}))
    assert generated.outputs == (good,)
    assert "; item 3: its base64 text is empty; item 4: null is no base64 text" in str(generated.unusable)
    script.generate(lambda asked: [good, b"", good])
    assert generate(api.openai_base_url, request({**PLAIN, "n": 3})).outputs == (good, good)


def test_an_unreachable_server_is_a_transient_error() -> None:
    with canned({}) as server:
        pass
    error = failed(server.url)
    assert error.kind == "transient"
    assert str(error).startswith("no answer: Cannot connect to host 127.0.0.1:")
    assert "ssl:" not in str(error), "the address is http"


def test_a_server_that_hangs_is_transient(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_KEY", api.key)
    api.faults.queue(Fault("hang"))

    async def ask() -> None:
        created = client_for(OpenAIOptions(base_url=api.openai_base_url, api_key_env="LOCAL_KEY"))
        async with created:
            with provider_errors(created):
                await created.images.generate(prompt="a tree", extra_body=PLAIN, timeout=0.2)

    with pytest.raises(ProviderError) as caught:
        asyncio.run(ask())
    assert (caught.value.kind, str(caught.value)) == ("transient", "no answer: Timeout on reading data from socket")


def test_as_many_calls_are_in_flight_as_are_begun(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp opens 100 connections by default: further calls would wait for one within their timeouts."""
    calls = 130
    monkeypatch.setenv("LOCAL_KEY", "sk-fake-0123456789abcdef")
    api.faults.queue(*[Fault("hang")] * calls)

    async def most_in_flight() -> int:
        config = OpenAIProvider(provider="openai", base_url=api.openai_base_url, api_key_env="LOCAL_KEY")
        provider = OpenAIGenerator(config)
        tasks = [asyncio.create_task(provider.generate(request())) for _ in range(calls)]
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while len(api.requests) < calls:  # noqa: ASYNC110 - set in another thread
                    await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return len(api.requests)

    assert asyncio.run(most_in_flight()) == calls


@pytest.mark.parametrize(("headers", "seconds"), rows("how_long_to_wait_is_read_from_the_headers"))
def test_how_long_to_wait_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(429, headers, read_error("")) == seconds
    with canned({"error": {"message": "slow down"}}, status=429, headers=headers) as server:
        error = failed(server.url)
    assert (error.kind, error.retry_after, str(error)) == ("rate_limit", seconds, "429: slow down")


def test_an_unknown_error_format_is_reported() -> None:
    with canned({"detail": "no such route"}, status=404) as server:
        error = failed(server.url)
    assert (error.kind, str(error)) == ("invalid", "404: no such route")
    with canned({"odd": {"why": "no"}}, status=404) as server:
        assert str(failed(server.url)) == '404: {"odd":{"why":"no"}}'
    with canned("<html>" + "x" * 5000, status=503) as server:
        error = failed(server.url)
    assert (error.kind, len(str(error))) == ("transient", 1000)


def test_no_error_shows_the_key() -> None:
    with canned({"error": {"message": "bad key sk-echoed-12345678!"}}, status=401) as server:
        error = failed(server.url, key="sk-echoed-12345678")
    assert (error.kind, str(error)) == ("auth", "401: bad key ***!")
    with canned("x" * 990 + " sk-echoed-12345678", status=500) as server:
        assert "sk-echo" not in str(failed(server.url, key="sk-echoed-12345678"))
    with canned({"error": {"message": "ollama is busy"}}, status=503) as server:
        assert str(failed(server.url, key="ollama")) == "503: ollama is busy"


@pytest.mark.parametrize("key", ["", "sk-1234\n", "sk 1234", "sk-1234\r", "sk-\u00fc1234", "sk-\x00"])
def test_a_key_that_cannot_be_sent_is_named_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, "OPENAI_API_KEY": key})
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        client_for(OpenAIOptions())
    assert "1234" not in str(caught.value)


def test_environment_settings_do_not_reach_another_host(monkeypatch: pytest.MonkeyPatch) -> None:
    around = {
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_ORG_ID": "org-stray",
        "OPENAI_PROJECT_ID": "proj-stray",
        "OPENAI_API_KEY": "sk-stray-11111111",
        "OPENAI_ADMIN_KEY": "sk-stray-22222222",
        "OPENAI_CUSTOM_HEADERS": "X-Stray: stray\nAuthorization: Bearer sk-stray-33333333",
    }
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    with canned({"data": []}) as server:
        generate(server.url, request(), key="sk-local-00000000")
    (sent,) = server.headers
    assert sent["authorization"] == "Bearer sk-local-00000000"
    assert "stray" not in str(sent).lower()
    assert {name: os.environ[name] for name in around} == around


def test_no_call_describes_this_machine(save_image: Callable[..., Path]) -> None:
    edited = CaseFiles(images=(("base", save_image()),))
    with canned({"data": []}) as server:
        generate(server.url, request())
        generate(server.url, request(files=edited))
    generated, edit = ({name.lower() for name in sent} for sent in server.headers)
    needed = {"host", "accept", "accept-encoding", "content-type", "content-length", "user-agent", "authorization"}
    assert needed <= generated & edit
    assert (generated | edit) - needed <= {"x-stainless-retry-count", "x-stainless-raw-response"}


def test_each_path_of_a_server_has_its_own_url(save_image: Callable[..., Path]) -> None:
    edited = CaseFiles(images=(("base", save_image()),))
    with canned({"data": []}) as first, canned({"data": []}) as second:
        for server in (first, second, first):
            generate(server.url, request())
            generate(server.url, request(files=edited))
    assert first.paths == ["/images/generations", "/images/edits"] * 2
    assert second.paths == first.paths[:2]


def test_without_a_base_url_calls_go_to_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-own-12345678")
    created = client_for(OpenAIOptions())
    assert (str(created.base_url), created.api_key, created.max_retries) == (
        "https://api.openai.com/v1/",
        "sk-own-12345678",
        0,
    )
    assert isinstance(created, openai.AsyncOpenAI)


def test_only_connecting_has_a_limit_of_its_own(
    save_image: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK ends a call after ten minutes without a byte, so ``timeout_s: 900`` had no effect."""
    limits: list[Any] = []
    send = httpx2.AsyncClient.send

    async def sent(client: httpx2.AsyncClient, request: httpx2.Request, **options: Any) -> httpx2.Response:
        limits.append(request.extensions["timeout"])
        return await send(client, request, **options)

    monkeypatch.setattr(httpx2.AsyncClient, "send", sent)
    with canned({"data": []}) as server:
        generate(server.url, request())
        generate(server.url, request(files=CaseFiles(images=(("base", save_image()),))))
    assert limits == [{"connect": 5.0, "read": None, "write": None, "pool": None}] * 2


@pytest.mark.parametrize("data", ["abc!", ["abc!"], [["a", "b", "c"]], 3])
def test_images_of_another_form_are_an_answer_that_cannot_be_used(data: Any) -> None:
    with canned({"data": data}) as server:
        generated = generate(server.url, request())
    assert (generated.outputs, generated.refused) == ((), None)
    assert "base64" in str(generated.unusable)
