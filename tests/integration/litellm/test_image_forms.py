"""Images by LiteLLM in three wire forms: an address that is fetched, Stability's, and OpenAI's."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from canned_api import Canned, canned
from conftest import FORMS, KEY
from web_pages import Page, web

from visioneval import CaseFiles, ProviderError
from visioneval.providers import image_replies

Generate = Callable[..., Any]
SIGNED = "?sig=s3cr3t"


def answer_of(form: str, image: bytes, url: str = "") -> dict[str, Any]:
    """A complete answer of a provider."""
    encoded = base64.b64encode(image).decode()
    return {
        "fal": {"images": [{"url": url or f"data:image/png;base64,{encoded}"}], "seed": 1},
        "stability": {"image": encoded, "finish_reason": "SUCCESS", "seed": 1},
        "openai": {"created": 1, "data": [{"b64_json": encoded}]},
    }[form]


def url_of(form: str, server: Canned) -> str:
    return server.url if form == "openai" else server.url.removesuffix("/v1")


@contextmanager
def fal_with(url: str) -> Iterator[str]:
    """A server whose answers name their image by ``url``."""
    with canned({"images": [{"url": url}]}) as server:
        yield url_of("fal", server)
        assert len(server.bodies) == 1


def error(generate: Generate, *arguments: Any, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        generate(*arguments, **options)
    assert KEY not in str(raised.value)
    assert "Traceback" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_becomes_an_image(generate: Generate, image: bytes, form: str) -> None:
    with canned(answer_of(form, image)) as server:
        assert generate(FORMS[form], url_of(form, server)).outputs == (image,)
    (headers,) = server.headers
    scheme = "Key" if form == "fal" else "Bearer"
    assert headers["authorization"] == f"{scheme} {KEY}"
    assert "sk-not-named" not in str(headers)
    (body,) = server.bodies
    assert body["prompt"] == "a tree" if form != "stability" else b"a tree" in body


def test_parameters_are_passed_on(generate: Generate, image: bytes) -> None:
    with canned(answer_of("stability", image)) as server:
        generate(FORMS["stability"], url_of("stability", server), params={"negative_prompt": "birds", "seed": 7})
    assert b'name="negative_prompt"\r\n\r\nbirds' in server.bodies[0]
    with canned(answer_of("fal", image)) as server:
        generate(FORMS["fal"], url_of("fal", server), params={"seed": 7})
    assert server.bodies == [{"prompt": "a tree", "seed": 7}]


def test_an_image_behind_an_address_is_fetched_without_the_key(generate: Generate, image: bytes) -> None:
    with web(image=Page(image)) as files, fal_with(f"{files.url}/image.png{SIGNED}") as base_url:
        assert generate(FORMS["fal"], base_url, output_hosts=["127.0.0.1"]).outputs == (image,)
    assert not {"authorization", "cookie", "x-api-key"} & files.seen[0].keys()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://169.254.169.254/latest?sig=s3cr3t", "http://169.254.169.254 is not the server that answered"),
        ("https://elsewhere.example/1.png?sig=s3cr3t", "https://elsewhere.example is not the server that answered"),
    ],
)
def test_an_address_on_another_host_is_not_fetched(generate: Generate, url: str, message: str) -> None:
    with fal_with(url) as base_url:
        generated = generate(FORMS["fal"], base_url)
    (download,) = generated.outputs
    assert message in download.problem
    assert "s3cr3t" not in download.problem
    assert (download.url, generated.unusable, url.encode() in generated.reply) == (url, None, True)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (Page(status=403), "it answers 403: the URL may have expired"),
        (Page(b"x" * 2000), "over the limit of 1,000 bytes"),
        (Page(headers={"location": "http://169.254.169.254/latest"}, status=302), "it redirects to another host"),
    ],
)
def test_an_address_that_cannot_be_read(
    generate: Generate, monkeypatch: pytest.MonkeyPatch, page: Page, message: str
) -> None:
    monkeypatch.setattr(image_replies, "MAX_BYTES", 1000)
    with web(image=page) as files, fal_with(f"{files.url}/image.png{SIGNED}") as base_url:
        generated = generate(FORMS["fal"], base_url, output_hosts=["127.0.0.1"])
    problem = generated.unusable or generated.outputs[0].problem  # another redirect may come later
    assert message in problem
    assert "s3cr3t" not in problem
    assert (generated.outputs == ()) == (page.status != 302)


@pytest.mark.parametrize("value", [None, "", "x", "no image!", 1, [], {}])
def test_an_answer_without_an_image_is_no_outage(generate: Generate, value: Any) -> None:
    with canned({"created": 1, "data": [{"b64_json": value}]}) as server:
        url = url_of("openai", server)
        try:
            unused = generate(FORMS["openai"], url)
            assert (unused.outputs, bool(unused.unusable), bool(unused.reply)) == ((), True, True)
        except ProviderError as problem:  # LiteLLM itself does not read it
            assert (problem.kind, bool(problem.reply)) == ("unusable", True)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("change", [lambda text: f"data:image/png;base64,{text}", lambda text: text.rstrip("=") + "\n"])
def test_base64_in_other_forms_is_an_image(generate: Generate, image: bytes, change: Callable[[str], str]) -> None:
    answer = {"created": 1, "data": [{"b64_json": change(base64.b64encode(image).decode())}]}
    with canned(answer) as server:
        assert generate(FORMS["openai"], url_of("openai", server)).outputs == (image,)


@pytest.fixture
def files(save_image: Callable[..., Path], mask: Callable[..., Path]) -> CaseFiles:
    images = (("base", save_image("base.png")), ("style", save_image("style.jpg", color="red")))
    return CaseFiles(images=images, masks={"editable": mask()})


def test_stability_edits_one_image_with_a_mask(generate: Generate, image: bytes, files: CaseFiles) -> None:
    single = CaseFiles(images=files.images[:1], masks=files.masks)
    with canned(answer_of("stability", image)) as server:
        url = url_of("stability", server)
        assert generate("stability/inpaint", url, files=single).outputs == (image,)
        assert b'name="mask"' in server.bodies[0]
        problem = error(generate, "stability/inpaint", url, files=files)
    assert str(problem) == "LiteLLM sends only the first image to 'stability', and this call has 2"
    assert len(server.bodies) == 1


def test_fal_edits_one_image(generate: Generate, image: bytes, files: CaseFiles) -> None:
    single = CaseFiles(images=files.images[:1])
    with canned(answer_of("fal", image)) as server:
        assert generate("fal_ai/fal-ai/flux-pro/kontext", url_of("fal", server), files=single).outputs == (image,)
    (body,) = server.bodies
    assert body["prompt"] == "a tree"
    sent = base64.b64encode(files.images[0][1].read_bytes()).decode()
    assert sent in json.dumps(body)


def test_a_provider_without_edits_is_one_line(generate: Generate, files: CaseFiles) -> None:
    problem = error(generate, "aiml/flux/schnell", "http://127.0.0.1:1", files=files)
    assert str(problem).startswith("LiteLLM did not send the call: ")
    assert str(problem).endswith("image edit is not supported for aiml")
    assert problem.kind == "invalid"
