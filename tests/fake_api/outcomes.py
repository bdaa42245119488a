"""Turns a request, the script and a fault into the model's outcome, before a provider formats it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from . import json_schema
from .faults import STATUS, WIRE, Fault, ModelRequest
from .http1 import ApiError, HttpRequest, Reply
from .images import encoded
from .script import GenerationRequest, JudgeRequest, Script, ToolCall

REFUSAL = "I'm sorry, but I can't help with that request."


@dataclass(frozen=True, slots=True)
class Images:
    """Images as base64 texts; ``words`` is the text of a model that answers without an image."""

    base64: tuple[str, ...]
    words: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A judge's answer; ``cut`` if the token limit ended it."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str | None
    message: str


Outcome = Images | Answer | Refused


class Endpoint(Protocol):
    """One operation of one provider. ``read`` raises ``ApiError`` for what the real service would reject."""

    name: str

    def read(self, request: HttpRequest) -> ModelRequest: ...

    def write(self, asked: ModelRequest, outcome: Outcome) -> Reply: ...


class Provider(Protocol):
    """A provider: its error format, its key, and its endpoints by path."""

    def authenticate(self, request: HttpRequest) -> None: ...

    def endpoint(self, request: HttpRequest) -> Endpoint: ...

    def error(self, error: ApiError) -> Reply: ...

    def fault(self, fault: Fault, asked: ModelRequest) -> ApiError: ...


class ScriptError(Exception):
    """A script's answer that the real service could not give."""


def decide(script: Script, asked: ModelRequest, fault: Fault | None) -> Outcome | Fault:
    """The outcome of a request. A ``Fault`` is returned when the script asked for an HTTP error or a transport fault."""
    if fault and fault.kind in STATUS | WIRE:
        return fault
    answer = None if fault and fault.kind == "refusal" else _scripted(script, asked)
    if isinstance(answer, Fault):
        fault, answer = answer, None
        if not fault.fits(asked):
            raise ScriptError(f"{fault.kind} cannot happen to this call")
        if fault.kind in STATUS | WIRE:
            return fault
    if fault and fault.kind == "refusal":
        return Refused(fault.reason, fault.text or REFUSAL)
    if isinstance(asked, GenerationRequest):
        generated = answer if isinstance(answer, tuple) else script.generated(asked)
        return _images(generated, fault)
    return _damaged(_answer(asked, answer), fault)


def _scripted(script: Script, asked: ModelRequest) -> object:
    return script.generated(asked) if isinstance(asked, GenerationRequest) else script.judged(asked)


def _images(generated: object, fault: Fault | None) -> Images:
    assert isinstance(generated, tuple)
    texts = tuple(encoded(data) for data in generated)
    kind = fault.kind if fault else None
    if kind == "truncated_base64":
        return Images(tuple(text[: len(text) // 8 * 4 + 1] for text in texts))
    if kind == "empty_base64":
        return Images(tuple("" for _ in texts))
    if kind == "not_an_image":
        return Images(tuple(encoded(b"these bytes are not an image") for _ in texts))
    if kind == "no_image":
        return Images((), (fault.text if fault else None) or "Here is a description of it instead.")
    return Images(texts[:-1] if kind == "fewer_images" else texts)


def _answer(asked: JudgeRequest, answer: object) -> Answer:
    if isinstance(answer, tuple):
        names = {tool.name for tool in asked.tools}
        stray = [call.name for call in answer if call.name not in names]
        if stray:
            raise ScriptError(f"the script calls {stray[0]}, which is not among the tools {sorted(names)}")
        return Answer("", answer)
    if isinstance(answer, Mapping):
        problem = json_schema.instance_error(answer, asked.schema) if asked.strict and asked.schema else None
        if problem:
            raise ScriptError(f"the script's answer breaks a strict schema: {problem}")
        return Answer(json.dumps(answer))
    if isinstance(answer, str):
        return Answer(answer)
    if asked.schema is not None:
        return Answer(json_schema.example_text(json.dumps(asked.schema)))
    return Answer('{"answer": "As asked."}' if asked.json_mode else "As asked.")


def _damaged(answer: Answer, fault: Fault | None) -> Answer:
    if fault is None or fault.kind not in _DAMAGE:
        return answer
    text = fault.text if fault.text is not None else _DAMAGE[fault.kind].format(text=answer.text)
    if fault.kind == "mangled":
        text = fault.text or answer.text.rstrip("}") + ",}"
    if fault.kind == "max_tokens":
        return replace(answer, text=answer.text[: len(answer.text) // 2], calls=(), cut=True)
    return Answer(text)


_DAMAGE = {
    "off_schema": '{{"unexpected": ["shape"]}}',
    "fenced": "```json\n{text}\n```",
    "prose": "Here is what I found when I looked closely.\n\n{text}\n\nLet me know if anything is unclear.",
    "mangled": "{text}",
    "empty": "",
    "max_tokens": "{text}",
}
