"""Gemini generation and editing through the real SDK: requests as sent, usage, faults, Developer API and Vertex AI."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from canned_api import Canned, canned
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fake_api import FakeAPI, Fault
from fake_api.samples import asked_generate
from PIL import Image

from visioneval import CaseFiles, Generation, GenerationRequest, ProviderError, TaskType, TestCase, UsageError
from visioneval.providers.gemini import GeminiProvider
from visioneval.providers.gemini.connection import _http
from visioneval.providers.gemini.generator import GeminiGenerator

pytestmark = pytest.mark.slow

MODEL = "gemini-nano-banana-2.1"
HOSTILE = {
    "GOOGLE_API_KEY": "wrong-key-of-the-environment",
    "GEMINI_API_KEY": "another-wrong-key",
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
    "GOOGLE_GENAI_USE_ENTERPRISE": "true",
    "GOOGLE_CLOUD_PROJECT": "stray",
    "GOOGLE_CLOUD_LOCATION": "nowhere",
    "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9/gemini",
    "GOOGLE_VERTEX_BASE_URL": "http://127.0.0.1:9/vertex",
    "GOOGLE_GENAI_API_VERSION": "v7",
}


@pytest.fixture(autouse=True)
def key(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_KEY", api.key)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)


def config(url: str, **options: Any) -> GeminiProvider:
    entry = {"provider": "gemini", "base_url": url, "api_key_env": "FAKE_KEY", "params": {"model": MODEL}}
    return GeminiProvider.model_validate({**entry, **options})


def request_for(n: int = 1, files: CaseFiles | None = None, prompt: str = "a tree", **params: Any) -> GenerationRequest:
    return GenerationRequest(
        case=TestCase(id="one", prompt=prompt),
        task_type=TaskType.IMAGE_EDITING if files else TaskType.IMAGE_GENERATION,
        prompt=prompt,
        model_label="m",
        params={"model": MODEL, **({"n": n} if n > 1 else {}), **params},
        files=files or CaseFiles(),
        samples=tuple(range(n)),
        folder=Path(),
    )


def generate(entry: GeminiProvider, request: GenerationRequest) -> Generation:
    provider = GeminiGenerator(entry)
    return asyncio.run((provider.edit if request.files.images else provider.generate)(request))


def failed(entry: GeminiProvider, request: GenerationRequest | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        generate(entry, request or request_for())
    return caught.value


def size(data: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(data)).size


@pytest.mark.usefixtures("hostile")
def test_generates_with_the_parameters_as_written(api: FakeAPI) -> None:
    sent: dict[str, Any] = {"image_config": {"aspect_ratio": "16:9"}, "temperature": 0.5, "seed": 7}
    generated = generate(config(api.gemini_base_url), request_for(**sent))
    assert [size(data) for data in generated.outputs] == [(1344, 768)]
    assert generated.run_params == {"model": MODEL, **sent}
    assert generated.usage is not None
    assert generated.usage == {
        "prompt_token_count": 2, "prompt_text_tokens": 2, "total_token_count": 1357, "thoughts_token_count": 64,
        "candidates_token_count": 1291, "candidates_image_tokens": 1290,
    }  # fmt: skip
    (logged,) = api.requests
    assert logged.path == f"/v1beta/models/{MODEL}:generateContent"
    assert logged.body == {
        "contents": [{"role": "user", "parts": [{"text": "a tree"}]}],
        "generationConfig": {
            "responseModalities": ["IMAGE"], "imageConfig": {"aspectRatio": "16:9"}, "temperature": 0.5, "seed": 7,
        },
    }  # fmt: skip


@pytest.mark.parametrize("name", ["response_modalities", "responseModalities"])
def test_an_image_is_extracted_from_text_and_thoughts(api: FakeAPI, name: str) -> None:
    params: dict[str, Any] = {name: ["TEXT", "IMAGE"], "thinking_config": {"include_thoughts": True}}
    generated = generate(config(api.gemini_base_url), request_for(**params))
    assert [size(data) for data in generated.outputs] == [(256, 256)]
    assert api.requests[0].body["generationConfig"]["responseModalities"] == ["TEXT", "IMAGE"]


def test_no_request_goes_to_another_host(api: FakeAPI) -> None:
    """Whatever the SDK does with a URL, the key goes to the host of the suite only."""
    client = _http(api.gemini_base_url, "v1beta").httpx_async_client
    assert client is not None
    with pytest.raises(ProviderError, match=r"blocked a request to 'localhost': calls may only go to '127\.0\.0\.1'"):
        asyncio.run(client.get(api.gemini_base_url.replace("127.0.0.1", "localhost")))
    assert api.requests == []


@pytest.fixture
def files(save_image: Callable[..., Path], mask: Callable[..., Path]) -> CaseFiles:
    """A person, a jacket in a format that the service does not take, and a mask."""
    images = (("person", save_image("a.jpg", (80, 60), "red")), ("garment", save_image("b.gif", (40, 30), "blue")))
    return CaseFiles(images=images, masks={"editable": mask(size=(80, 60))})


def test_edits_show_the_inputs_in_order_and_then_the_mask(api: FakeAPI, files: CaseFiles) -> None:
    generated = generate(config(api.gemini_base_url), request_for(files=files, prompt="Wear it."))
    asked = asked_generate(api)
    assert [(image.mime, image.size) for image in asked.images] == [
        ("image/jpeg", (80, 60)), ("image/png", (40, 30)), ("image/png", (80, 60)),
    ]  # fmt: skip
    assert asked.images[0].data == files.images[0][1].read_bytes()
    shown = Image.open(io.BytesIO(asked.images[2].data)).convert("L")
    assert (shown.getpixel((40, 20)), shown.getpixel((0, 0))) == (255, 0)
    assert asked.prompt.startswith("Wear it.\n\nImage 3 is a mask for image 1: change only what is white")
    assert [set(part) for part in api.requests[0].body["contents"][0]["parts"]] == [{"inlineData"}] * 3 + [{"text"}]
    assert generated.run_params["mask_mode"] == "as_image"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"colour": "red"}, "invalid parameter colour: Extra inputs are not permitted"),
        ({"image_config": {"ratio": "1:1"}}, "invalid parameter image_config.ratio"),
        ({"temperature": "hot"}, "invalid parameter temperature"),
        ({"image_config": {"output_mime_type": "image/jpeg"}}, "output_mime_type parameter is only supported in"),
        ({"http_options": {"base_url": "http://127.0.0.1:9"}}, "invalid parameter http_options"),
        ({"httpOptions": {"headers": {"x": "y"}}}, "invalid parameter http_options"),
    ],
)
def test_a_bad_parameter_is_reported_without_a_call(api: FakeAPI, params: Any, words: str) -> None:
    error = failed(config(api.gemini_base_url), request_for(**params))
    assert (error.kind, api.requests) == ("invalid", [])
    assert words in str(error)


def test_a_rejected_parameter_is_reported_with_the_services_message(api: FakeAPI) -> None:
    error = failed(config(api.gemini_base_url), request_for(image_config={"aspect_ratio": "7:3"}))
    assert (error.kind, str(error)[:33]) == ("invalid", "400: Invalid aspect ratio: 7:3. S")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(UsageError, match="set GEMINI_API_KEY: the API key for the Gemini API"):
        GeminiGenerator(GeminiProvider.model_validate({"provider": "gemini", "params": {"model": MODEL}}))


KEYLESS = {"error": {"code": 403, "message": "Blocked.", "details": [{"reason": "API_KEY_SERVICE_BLOCKED"}]}}


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "wait"),
    [
        (429, {"retry-after": "3"}, {"error": {"message": "Slow down."}}, "rate_limit", 3.0),
        (429, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, {"error": {}}, "rate_limit", 0.0),
        (503, {"retry-after": "1.5"}, {"message": "Busy."}, "transient", 1.5),
        (500, {}, ["odd", "body"], "transient", None),
        (403, {}, KEYLESS, "auth", None),
    ],
)
def test_unusual_error_bodies_are_classified(
    status: int, headers: dict[str, str], body: Any, kind: str, wait: float | None
) -> None:
    with canned(body, status=status, headers=headers) as server:
        error = failed(config(server.url))
    assert (error.kind, error.retry_after, len(server.headers)) == (kind, wait, 1)


@pytest.fixture
def own_credentials(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canned]:
    """Machine credentials: a service account whose tokens are issued locally."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    token = {"access_token": api.key, "expires_in": 3600, "token_type": "Bearer"}
    with canned(token) as tokens:
        account = {"type": "service_account", "client_email": "a@example.com", "project_id": "other"}
        account |= {"private_key": pem.decode(), "private_key_id": "1", "token_uri": tokens.url}
        path = tmp_path / "account.json"
        path.write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        yield tokens


VERTEX = {"api_key_env": None, "google": {"project": "shop", "location": "europe-west4"}}


@pytest.mark.usefixtures("hostile", "own_credentials")
def test_vertex_is_chosen_by_the_suite(api: FakeAPI) -> None:
    params: dict[str, Any] = {"image_config": {"aspect_ratio": "4:3", "output_mime_type": "image/jpeg"}}
    generated = generate(config(api.gemini_base_url, **VERTEX), request_for(**params))
    assert Image.open(io.BytesIO(generated.outputs[0])).format == "JPEG"
    (logged,) = api.requests
    where = "projects/shop/locations/europe-west4"
    assert logged.path == f"/v1beta1/{where}/publishers/google/models/{MODEL}:generateContent"
    assert api.paid == {"vertex": 1}


@pytest.mark.usefixtures("own_credentials")
def test_vertex_refuses_a_token_with_a_401(api: FakeAPI) -> None:
    api.faults.queue(Fault("unauthorized"))
    error = failed(config(api.gemini_base_url, **VERTEX))
    assert (error.kind, str(error)[:20]) == ("auth", "401: Request had inv")


def test_vertex_reports_a_missing_model(api: FakeAPI, own_credentials: Canned) -> None:
    error = failed(config(api.gemini_base_url, **VERTEX), request_for(model="gemini-nope"))
    assert (error.kind, "Publisher Model `projects/shop" in str(error)) == ("invalid", True)
    assert len(own_credentials.headers) == 1


def test_missing_vertex_credentials_are_reported_before_any_call(
    api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "gone.json"))
    with pytest.raises(UsageError, match="Vertex AI: no credentials for the project 'shop'"):
        GeminiGenerator(config(api.gemini_base_url, **VERTEX))
    assert api.requests == []


def test_credentials_that_give_no_token_are_an_error_of_the_key(
    api: FakeAPI, own_credentials: Canned, tmp_path: Path
) -> None:
    path = tmp_path / "account.json"
    with canned({"error": "invalid_grant", "error_description": "Account not found."}, status=400) as tokens:
        path.write_text(path.read_text().replace(own_credentials.url, tokens.url))
        error = failed(config(api.gemini_base_url, **VERTEX))
    assert (error.kind, "Account not found" in str(error)) == ("auth", True)
