"""A judge with chat completions, for servers that support only those."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from visioneval.errors import ProviderError
from visioneval.providers.base import CellRef, ImagePart, Part, Question, Reply, Tool, ToolCall, Turn
from visioneval.providers.openai.connection import data_url, encoded, error_in_reply, flat_usage, parse_errors
from visioneval.providers.refusals import end_of_answer, is_refusing_end

Shape = Literal["schema", "json", "text"]
_TEXTS = ("text", "output_text")
"""The types of the parts that are the answer itself."""
_PART = frozenset({"type", "text", "content"})
"""The names of the fields of a part."""
SHAPES: tuple[Shape, ...] = ("schema", "json", "text")


class ChatConfig(Protocol):
    """What a judge asks: a model, with parameters that are sent as written."""

    @property
    def model(self) -> str: ...

    @property
    def params(self) -> Mapping[str, Any]: ...


class ChatConnection(Protocol):
    """Sends a JSON body and returns the answer's. Raises ``ProviderError``."""

    async def post(self, path: str, body: bytes) -> dict[str, Any]: ...


class ChatJudge:
    """Chat completions. If a server does not support schemas, requests a JSON object, and otherwise plain text.

    The supported shape is remembered, and part of each reply (``Reply.shape``).
    """

    def __init__(self, config: ChatConfig, connection: ChatConnection) -> None:
        self._config = config
        self._connection = connection
        self._shape: Shape = "schema"

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002 - no judge is told the cell
        """One round, in the strictest shape that the server supports."""
        while True:
            shape = self._shape
            try:
                answer = await self._connection.post("/chat/completions", encoded(self._body(question, shape)))
                with parse_errors():
                    return _reply(answer, shape)
            except ProviderError as error:
                weaker = SHAPES.index(shape) + 1
                if not _is_unsupported_shape(error) or question.schema is None or weaker == len(SHAPES):
                    raise
                self._shape = max(self._shape, SHAPES[weaker], key=SHAPES.index)

    def _body(self, question: Question, shape: Shape) -> dict[str, Any]:
        parts = [*question.parts]
        if question.schema is not None and shape != "schema":
            parts.append(f"Reply with one JSON object of this JSON Schema:\n{json.dumps(question.schema)}")
        messages: list[dict[str, Any]] = [{"role": "user", "content": [_part(part, question) for part in parts]}]
        for turn in question.turns:
            messages += _turn(turn, question)
        body: dict[str, Any] = {"model": self._config.model, "messages": messages}
        if question.schema is not None and shape != "text":
            body["response_format"] = _response_format(question.schema, shape)
        if question.tools:
            body["tools"] = [{"type": "function", "function": function(tool)} for tool in question.tools]
        body = with_params(body, self._config.params)
        return {**body, "tool_choice": "none"} if question.must_answer else body


def with_params(body: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the suite's parameters into a body; they win, but ``text: {verbosity: low}`` keeps ``text.format``."""
    merged = dict(body)
    for name, value in params.items():
        default = body.get(name)
        merged[name] = {**default, **value} if isinstance(default, Mapping) and isinstance(value, Mapping) else value
    return merged


def valid_arguments(arguments: str) -> str:
    """Replaces invalid JSON arguments with ``{}``: they would fail the whole next request."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}"
    return arguments


def function(tool: Tool) -> dict[str, Any]:
    """A tool as both APIs declare it."""
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


def _is_unsupported_shape(error: ProviderError) -> bool:
    message = str(error).lower()
    names = ("response_format", "json_schema", "json_object", "structured output", "grammar")
    return error.kind == "invalid" and any(word in message for word in names)


def _response_format(schema: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    if shape == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def _part(part: Part, question: Question) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {
        "type": "image_url",
        "image_url": {"url": data_url(part.data, part.mime), "detail": question.detail or "auto"},
    }


def _turn(turn: Turn, question: Question) -> list[dict[str, Any]]:
    """The judge's turn, one tool message per call, and one user message with the images: tools can only send text."""
    messages: list[dict[str, Any]] = [turn.raw]
    image_parts: list[dict[str, Any]] = []
    for call, parts in turn.results:
        text = "\n".join(part for part in parts if isinstance(part, str))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if any(isinstance(part, ImagePart) for part in parts):
            image_parts += [_part(part, question) for part in parts]
    return [*messages, {"role": "user", "content": image_parts}] if image_parts else messages


def _parts_of(content: object) -> list[Mapping[str, Any]]:
    """The parts of a message: some servers send a text, others a list of chunks, among them Mistral's thoughts."""
    if isinstance(content, Mapping) and not _PART.intersection(content):
        content = json.dumps(content)  # the answer itself
    chunks = content if isinstance(content, list) else [content]
    parts = [{"type": "text", "text": chunk} if isinstance(chunk, str) else chunk for chunk in chunks]
    return [_plain_part(part) for part in parts if isinstance(part, Mapping)]


def _plain_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part with its type and its text where OpenAI has them; one without a type is a text."""
    kind = str(part.get("type") or "text").lower()
    if kind not in _TEXTS:
        return part
    text = part.get("text") or part.get("content")
    return {**part, "type": kind, "text": text.get("value") if isinstance(text, Mapping) else text}


def _first_choice(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice, which may be there without a list, and with a ``text`` as its message."""
    choices = answer.get("choices")
    if not choices:
        raise ProviderError("the answer has no choices", kind="unusable", may_be_billed=True)
    choice: Mapping[str, Any] = choices if isinstance(choices, Mapping) else choices[0]
    message = choice.get("message") or ({"content": choice["text"]} if choice.get("text") else {})
    if answer.get("error") and not any(message.get(name) for name in ("content", "tool_calls", "refusal")):
        raise error_in_reply(answer["error"])
    return {**choice, "message": message}


def _reply(answer: Mapping[str, Any], shape: Shape) -> Reply:
    choice = _first_choice(answer)
    if choice.get("error"):  # sent by routers that forward errors of a model's host
        raise error_in_reply(choice["error"])
    reasons = (choice.get("finish_reason"), choice.get("native_finish_reason"))
    message = choice.get("message") or {}
    parts = _parts_of(message.get("content"))
    text = "".join(str(part.get("text") or "") for part in parts if part.get("type") in _TEXTS)
    refusal = message.get("refusal") or next((part["refusal"] for part in parts if part.get("refusal")), None)
    if refusal:
        raise ProviderError(f"the judge refused: {refusal}", kind="refused", may_be_billed=True)
    if reason := next(filter(is_refusing_end, reasons), None):
        why = end_of_answer(reason, None, text)
        raise ProviderError(f"the judge's answer was blocked: {why}", kind="refused", may_be_billed=True)
    if not message:
        raise ProviderError("the answer has no message", kind="unusable", may_be_billed=True)
    tool_calls = message.get("tool_calls") or ()
    calls = tuple(ToolCall(c["function"]["name"], c["function"].get("arguments") or "", c["id"]) for c in tool_calls)
    sent_back = [
        {**c, "function": {**c["function"], "arguments": valid_arguments(c["function"].get("arguments", ""))}}
        for c in tool_calls
    ]
    return Reply(
        text=text,
        model=str(answer.get("model")),
        shape=shape,
        usage=flat_usage(answer.get("usage")) or None,
        stopped="max_tokens" if choice.get("finish_reason") == "length" else None,
        calls=calls,
        raw={"role": "assistant", "content": message.get("content"), "tool_calls": sent_back} if calls else None,
    )
