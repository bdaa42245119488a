"""Servers that are compatible with OpenAI's, each with what its documentation says that it takes, ignores and answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fake_api.http1 import FormPart, parse_form
from http_server import QuietHandler, serving

GENERATE, EDIT, CHAT = "/v1/images/generations", "/v1/images/edits", "/v1/chat/completions"


@dataclass(frozen=True)
class ServerForm:
    """What a server does. ``url`` is how it names an image: ``absolute``, ``path``, or not at all."""

    endpoints: frozenset[str]
    edits: str = "form"
    """The type of an edit's body: ``form`` or ``json``."""
    mask: str | None = None
    """The field of the mask; others are ignored."""
    url: str | None = None
    no_response_format: bool = False
    """Whether it answers with a URL where the request asks for nothing."""
    decodes: tuple[bytes, ...] = (b"\x89PNG", b"\xff\xd8", b"RIFF")
    """How the images begin that its chat can decode."""


FORMS = {
    "xAI": ServerForm(frozenset({GENERATE, EDIT, CHAT}), edits="json", url="absolute", no_response_format=True),
    "vLLM": ServerForm(frozenset({CHAT})),
    "vLLM-Omni": ServerForm(frozenset({GENERATE, EDIT}), mask="mask_image"),
    "SGLang": ServerForm(frozenset({GENERATE, EDIT, CHAT}), mask="mask", url="path"),
    "Ollama": ServerForm(frozenset({GENERATE, CHAT})),
    "llama.cpp": ServerForm(frozenset({CHAT}), decodes=(b"\x89PNG", b"\xff\xd8")),
}


@dataclass
class CompatibleServer:
    """A running server: its URL, and what it used of each request."""

    url: str
    used: list[dict[str, Any]] = field(default_factory=list)


class _RefusedError(Exception):
    """The status and the message of an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def compatible(form: ServerForm, image: bytes) -> Iterator[CompatibleServer]:
    """A server that answers with ``image``, and in chat with yes to every question of its schema."""
    server = CompatibleServer("")

    class CompatibleHandler(QuietHandler):
        def get(self) -> None:
            self.reply(image, kind="image/png")

        def post(self) -> None:
            try:
                used = _used(form, self.path, self.headers.get("content-type", ""), self.body())
                server.used.append(used)
                answer = _chat(used, form) if self.path == CHAT else _generated(used, form, image, server.url)
            except _RefusedError as error:
                self.reply(json.dumps({"error": {"message": str(error)}}).encode(), error.status)
            else:
                self.reply(json.dumps(answer).encode())

    with serving(CompatibleHandler) as url:
        server.url = f"{url}/v1"
        yield server


def _used(form: ServerForm, path: str, kind: str, body: bytes) -> dict[str, Any]:
    """What a server uses of a request."""
    if path not in form.endpoints:
        raise _RefusedError(404, f"there is no {path}")
    if path == EDIT and form.edits == "form":
        return _edit(parse_form(kind, body), form)
    if kind != "application/json":
        raise _RefusedError(415, "the body must be application/json")
    used: dict[str, Any] = json.loads(body)
    if path == EDIT:
        given = used["images"] if "images" in used else [used["image"]]
        urls = [image["url"] for image in given if image["type"] == "image_url"]
        used["images"] = [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]
    return used


def _generated(used: dict[str, Any], form: ServerForm, image: bytes, base_url: str) -> dict[str, Any]:
    response_format = used.get("response_format")
    is_url = response_format == "url" or (response_format is None and form.no_response_format)
    if is_url and form.url is None:
        raise _RefusedError(400, "response_format must be b64_json")
    path = "/v1/images/1/content"
    url = path if form.url == "path" else base_url.removesuffix("/v1") + path
    inline = {"b64_json": base64.b64encode(image).decode(), "url": None, "revised_prompt": None}
    return {"created": 1, "data": [{"url": url} if is_url else inline]}


def _edit(parts: list[FormPart], form: ServerForm) -> dict[str, Any]:
    """What an edit uses of its form: other fields are ignored."""
    images = [part.data for part in parts if part.name in ("image", "image[]")]
    fields = {part.name: part.data.decode() for part in parts if part.filename is None}
    if not images or "prompt" not in fields:
        raise _RefusedError(422, "Field 'image' or 'url' is required")
    return {**fields, "images": images, "mask": next((part.data for part in parts if part.name == form.mask), None)}


def _chat(body: dict[str, Any], form: ServerForm) -> dict[str, Any]:
    for message in body["messages"]:
        for part in message["content"]:
            if part["type"] == "image_url":
                header, _, data = part["image_url"]["url"].partition(",")
                assert header.endswith(";base64")
                if not base64.b64decode(data).startswith(form.decodes):
                    raise _RefusedError(400, "Failed to load image or audio file")
    schema = body["response_format"]["json_schema"]["schema"]
    answer = {name: True if kind.get("type") == "boolean" else "yes" for name, kind in schema["properties"].items()}
    message = {"role": "assistant", "content": json.dumps(answer)}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return {"id": "1", "object": "chat.completion", "model": body["model"], "choices": [choice], "usage": usage}
