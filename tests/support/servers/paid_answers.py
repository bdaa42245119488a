"""A server whose generations are answered with any body, and the forms of answers that real servers have sent."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from http_server import QuietHandler, serving
from PIL import Image
from typer.testing import CliRunner, Result

from visioneval import Record, read_records
from visioneval.cli import app

MODELS = {"openai": "gpt-image-2", "gemini": "gemini-nano-banana-2.1"}
USAGES = {
    "openai": {"input_tokens": 10, "output_tokens": 1000},
    "gemini": {"promptTokenCount": 10, "candidatesTokenCount": 1000},
}


def noise(seed: int = 0) -> bytes:
    """A PNG whose base64 has every character of the alphabet."""
    out = io.BytesIO()
    Image.frombytes("RGB", (24, 24), random.Random(seed).randbytes(24 * 24 * 3)).save(out, "PNG")
    return out.getvalue()


IMAGE, OTHER = noise(), noise(1)
TEXT = base64.b64encode(IMAGE).decode()


@dataclass
class Answers:
    """What the server sends, and the bodies of the calls that it got."""

    url: str = ""
    body: bytes = b""
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    forms: Mapping[str, tuple[bytes, str]] = field(default_factory=dict)
    """Instead of ``body`` and ``kind``, for calls with one of these names in brackets."""
    posts: list[bytes] = field(default_factory=list)

    def send(self, body: Any, kind: str = "application/json") -> None:
        self.body, self.kind, self.forms = encoded(body), kind, {}

    def send_each(self, forms: Mapping[str, Any]) -> list[dict[str, str]]:
        """Answers by name with a body, or with a body and its type. Returns a case for each name."""
        pairs = {name: form if isinstance(form, tuple) else (form, "application/json") for name, form in forms.items()}
        self.forms = {name: (encoded(body), kind) for name, (body, kind) in pairs.items()}
        return [{"id": f"case{at:02}", "prompt": f"a tree [{name}]"} for at, name in enumerate(forms)]


def encoded(body: Any) -> bytes:
    """A body as bytes: JSON, unless it is bytes or a text."""
    return body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()


@contextmanager
def answering() -> Iterator[Answers]:
    """The server. A GET is answered with ``OTHER``."""
    answers = Answers()

    class Handler(QuietHandler):
        def get(self) -> None:
            self.reply(OTHER, 404 if "gone" in self.path else 200, "image/png")

        def post(self) -> None:
            answers.posts.append(self.body())
            named = (form for name, form in answers.forms.items() if f"[{name}]".encode() in answers.posts[-1])
            body, kind = next(named, (answers.body, answers.kind))
            self.send_response(200)
            for name, value in (("content-type", kind), ("content-length", str(len(body))), *answers.headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as url:
        answers.url = url
        yield answers


class PaidRun:
    """A suite of one case whose generations the server answers, its run ``r`` and its cache."""

    def __init__(self, answers: Answers, provider: str = "openai", **suite: Any) -> None:
        self.answers = answers
        self.provider = provider
        self.write(**suite)

    def write(self, params: Mapping[str, Any] | None = None, **suite: Any) -> None:
        """Writes the suite to the working directory."""
        url = self.answers.url + ("/v1" if self.provider == "openai" else "")
        host = {"provider": self.provider, "base_url": url, "api_key_env": "LOCAL_KEY"}
        model = MODELS[self.provider]
        text = {
            "name": "paid",
            "cases": [{"id": "tree", "prompt": "a tree"}],
            "models": [{**host, "label": "m", "params": {"model": model, **(params or {})}}],
            "graders": [{"key": "image", "type": "properties"}],
            "verdict": ["not image.blank"],
            "prices": {model: {"input_per_million": 5, "output_per_million": 40}},
            **suite,
        }
        Path("suite.yaml").write_text(json.dumps(text))

    def __call__(self, *flags: str, run_id: str = "r", suite: str = "suite.yaml") -> Result:
        """Runs the suite."""
        return self._invoke("run", suite, "--run-id", run_id, *flags)

    def resume(self, *flags: str, run_id: str = "r") -> Result:
        """Resumes the run."""
        return self._invoke("run", "--resume", run_id, *flags)

    @staticmethod
    def _invoke(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--cache", "cache"], catch_exceptions=False)

    @property
    def calls(self) -> int:
        """The generations that were paid."""
        return len(self.answers.posts)

    def records(self, run_id: str = "r") -> list[Record]:
        """The records of a run, by sample."""
        return sorted(read_records(Path("runs", run_id)), key=lambda record: (record.test_id, record.sample_index))


def openai(*items: Any, **more: Any) -> dict[str, Any]:
    """An answer of OpenAI's Images API with these items."""
    return {"created": 1, "data": list(items), "usage": USAGES["openai"], **more}


def gemini(*parts: Any, **more: Any) -> dict[str, Any]:
    """An answer of ``generateContent`` with these parts."""
    content = {"parts": list(parts), "role": "model"}
    return {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": USAGES["gemini"], **more}


def part(value: Any) -> dict[str, Any]:
    """A part of Gemini's answer with an image."""
    return {"inlineData": {"mimeType": "image/png", "data": value}}


def with_image(provider: str, value: Any) -> dict[str, Any]:
    """An answer whose one image is ``value``."""
    return openai({"b64_json": value}) if provider == "openai" else gemini(part(value))


def _lines(text: str) -> str:
    return "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76))


GOOD_TEXTS: dict[str, str] = {
    "plain": TEXT,
    "data URL": f"data:image/png;base64,{TEXT}",
    "data URL with parameters": f"data:image/png;name=a.png;charset=utf-8;base64,{TEXT}",
    "data URL in capitals": f"DATA:IMAGE/PNG;BASE64,{TEXT}",
    "data URL without a type": f"data:;base64,{TEXT}",
    "data URL of another type": f"data:text/plain;base64,{TEXT}",
    "data URL, percent-encoded": "data:image/png;base64," + TEXT.replace("+", "%2B").replace("/", "%2F"),
    "line breaks": _lines(TEXT),
    "data URL with line breaks": f" data:image/png;base64,\n{_lines(TEXT)}\n",
    "URL-safe": TEXT.replace("+", "-").replace("/", "_"),
    "without padding": TEXT.rstrip("="),
    "URL-safe without padding": base64.urlsafe_b64encode(IMAGE).decode().rstrip("="),
    "too much padding": TEXT.rstrip("=") + "====",
}
"""Texts that are ``IMAGE``."""
CUT = TEXT[: len(TEXT) // 8 * 4 + 1]
BAD_VALUES: dict[str, tuple[Any, str]] = {
    "null": (None, "null is no base64 text"),
    "true": (True, "true is no base64 text"),
    "number": (1, "the number 1 is no base64 text"),
    "huge number": (1e308, "a huge number is no base64 text"),
    "list": ([TEXT], "a list of 1 is no base64 text"),
    "object": ({"png": TEXT}, "an object with 'png' is no base64 text"),
    "empty text": ("", "its base64 text is empty"),
    "spaces": ("  \n ", "its base64 text is empty"),
    "empty data URL": ("data:image/png;base64,", "its base64 text is empty"),
    "one letter": ("x", "a text of 1 characters is base64 that is cut off: it begins with 'x'"),
    "words": ("no image today!", "is no base64: it begins with 'no image today!'"),
    "cut base64": (CUT, f"a text of {len(CUT):,} characters is base64 that is cut off"),
    "cut image": (TEXT[: len(TEXT) // 8 * 4], "the image cannot be decoded"),
    "text": (base64.b64encode(b"no image").decode(), "not a supported image"),
    "page": (base64.b64encode(b"<!doctype html><p>Busy").decode(), "not a supported image"),
    "URL": ("https://files.example/1.png?sig=s3cr3t", "it has a URL instead of base64"),
}
"""Values that are no image, each with what is said about it."""
PAGE = "<!doctype html><title>Sign in</title>"
OPENAI_IMAGE = {"b64_json": TEXT}
_FULL, _FULL_GEMINI = json.dumps(openai(OPENAI_IMAGE)), json.dumps(gemini(part(TEXT)))
Body = Callable[[str], Any]

GOOD_BODIES: dict[str, tuple[str, Body, str | None]] = {
    "image and null": ("openai", lambda _: openai(OPENAI_IMAGE, None), "images requested: 1, received: 2"),
    "image and text": ("openai", lambda _: openai(OPENAI_IMAGE, "x"), "images requested: 1, received: 2"),
    "null and image": ("openai", lambda _: openai(None, OPENAI_IMAGE), "item 1: null is no base64 text"),
    "text and image": ("openai", lambda _: openai("x", OPENAI_IMAGE), "item 1: a text of 1 characters"),
    "no image and image": (
        "openai",
        lambda _: openai({"b64_json": BAD_VALUES["text"][0]}, OPENAI_IMAGE),
        "images requested: 1, received: 2",
    ),
    "three images": ("openai", lambda _: openai(*[OPENAI_IMAGE] * 3), "images requested: 1, received: 3"),
    "one object": ("openai", lambda _: {**openai(), "data": OPENAI_IMAGE}, None),
    "one text": ("openai", lambda _: {**openai(), "data": TEXT}, None),
    "list of texts": ("openai", lambda _: openai(TEXT), None),
    "list at the top": ("openai", lambda _: [OPENAI_IMAGE], None),
    "null and URL": ("openai", lambda url: openai({"b64_json": None, "url": f"{url}/1.png"}), None),
    "empty and URL": ("openai", lambda url: openai({"b64_json": "", "url": f"{url}/1.png"}), None),
    "damaged and URL": ("openai", lambda url: openai({"b64_json": "!", "url": f"{url}/1.png"}), None),
    "base64 and null URL": ("openai", lambda _: openai({**OPENAI_IMAGE, "url": None}), None),
    "URL as data URL": ("openai", lambda _: openai({"url": f"Data:image/png;base64,{_lines(TEXT)}"}), None),
    "text that is a URL": ("openai", lambda url: openai(f"{url}/1.png"), None),
    "usage that is a list": ("openai", lambda _: openai(OPENAI_IMAGE, usage=[1]), None),
    "usage that is no number": ("openai", lambda _: _FULL.replace('"input_tokens": 10', '"input_tokens": NaN'), None),
    "usage that is huge": ("openai", lambda _: _FULL.replace('"input_tokens": 10', '"input_tokens": 1e999'), None),
    "usage that is true": ("openai", lambda _: _FULL.replace('"input_tokens": 10', '"input_tokens": true'), None),
    "cut after the image": ("openai", lambda _: _FULL[: _FULL.index('"usage"') + 3], "the answer is cut off"),
    "cut in a count": ("openai", lambda _: _FULL[:-4], "the answer is cut off"),
    "cut after a count": ("openai", lambda _: _FULL[:-1], "the answer is cut off"),
    "cut in a count of Gemini": ("gemini", lambda _: _FULL_GEMINI[:-4], "the answer is cut off"),
    "cut with two images": (
        "openai",
        lambda _: json.dumps(openai(OPENAI_IMAGE, OPENAI_IMAGE))[:-4],
        "the answer is cut off; images requested: 1",
    ),
    "two answers": ("openai", lambda _: _FULL + _FULL, None),
    "error beside the image": ("openai", lambda _: openai(OPENAI_IMAGE, error={"code": "server_error"}), None),
    "fields of strangers": ("openai", lambda _: openai({**OPENAI_IMAGE, "b64": [1], "id": {"a": 1e308}}), None),
    "null and image of Gemini": ("gemini", lambda _: gemini(part(None), part(TEXT)), "item 1: null is no base64 text"),
    "two images of Gemini": ("gemini", lambda _: gemini(part(TEXT), part(TEXT)), "images requested: 1, received: 2"),
    "parts that are no objects": ("gemini", lambda _: gemini(None, "x", 7, part(TEXT)), None),
    "one part": ("gemini", lambda _: {"candidates": {"content": {"parts": part(TEXT)}}}, None),
    "snake case": (
        "gemini",
        lambda _: {"candidates": [{"content": {"parts": [{"inline_data": {"data": TEXT}}]}, "finish_reason": "STOP"}]},
        None,
    ),
    "type that is a number": ("gemini", lambda _: gemini({"inlineData": {"mimeType": 7, "data": TEXT}}), None),
    "second candidate": (
        "gemini",
        lambda _: {"candidates": [{"content": None}, {"content": {"parts": [part(TEXT)]}}]},
        None,
    ),
    "count that is true": ("gemini", lambda _: gemini(part(TEXT), usageMetadata={"promptTokenCount": True}), None),
    "count that is huge": ("gemini", lambda _: gemini(part(TEXT), usageMetadata={"promptTokenCount": 1e308}), None),
    "counts that are a list": ("gemini", lambda _: gemini(part(TEXT), usageMetadata=[1]), None),
    "reason that nobody knows": (
        "gemini",
        lambda _: {"candidates": [{"content": {"parts": [part(TEXT)]}, "finishReason": 99}], "modelVersion": [1]},
        None,
    ),
}
"""By form: the provider, its answer to one image (given the server's URL), and what the record notes."""
BAD_BODIES: dict[str, tuple[str, Any, str]] = {
    "no items": ("openai", openai(), "the answer has no images"),
    "null": ("openai", {**openai(), "data": None}, "the answer has no images"),
    "nothing": ("openai", {}, "the answer has no images"),
    "only nulls": ("openai", openai(None, None), "item 1: null is no base64 text; item 2: null is no base64 text"),
    "item without an image": ("openai", openai({"revised_prompt": "a"}), "null is no base64 text"),
    "number": ("openai", {"data": 3}, "the number 3 is no base64 text"),
    "number at the top": ("openai", "3", "the number 3 is no base64 text"),
    "url that is a number": ("openai", openai({"url": 7}), "its url is the number 7"),
    "url that is gone": ("openai", openai({"url": "/gone.png?sig=s3cr3t"}), "the answer names its image by URL"),
    "url of a file": ("openai", openai({"url": "file:///1?sig=s3cr3t"}), "file:// is not the server that answered"),
    "page": ("openai", PAGE, "the answer is not from this API; check base_url. It is a web page: 'Sign in'"),
    "nothing at all": ("openai", "", "the answer is not from this API; check base_url. It is empty"),
    "cut": ("openai", _FULL[: len(_FULL) // 2], "null is no base64 text"),
    "nested without end": ("openai", "[" * 5000, "the answer is not JSON"),
    "no candidates": ("gemini", {"candidates": [], "usageMetadata": USAGES["gemini"]}, "the answer has no images"),
    "null candidates": ("gemini", {"candidates": None}, "the answer has no images"),
    "content that is a text": ("gemini", {"candidates": [{"content": "a tree"}]}, "the answer has no images"),
    "words of Gemini": (
        "gemini",
        gemini({"text": "Here is a tree."}),
        "no images; the answer ended with STOP; it says 'Here is a tree.'",
    ),
    "text that is a number": (
        "gemini",
        gemini({"text": 7}),
        "the answer has no images; the answer ended with STOP; it says '7'",
    ),
    "list": ("gemini", "[1, 2]", "the answer has no images"),
    "page of Gemini": ("gemini", PAGE, "the answer is not from this API; check base_url. It is a web page: 'Sign in'"),
    "cut answer of Gemini": ("gemini", json.dumps(gemini(part(TEXT)))[:600], "null is no base64 text"),
    "file of Gemini": ("gemini", gemini({"fileData": {"fileUri": "gs://a/b"}}), "the answer has no images"),
}
"""By form: the provider, an answer without an image, and what is said about it."""
