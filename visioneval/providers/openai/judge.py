"""Judges with OpenAI's Responses API, and with chat completions for servers that support only those."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from visioneval.errors import ProviderError
from visioneval.providers.base import CellRef, ImagePart, Part, Question, Reply, Tool, ToolCall, Turn
from visioneval.providers.error_replies import read_error, retry_after
from visioneval.providers.openai import OpenAIJudge
from visioneval.providers.openai.connection import (
    Connection,
    data_url,
    encoded,
    error_in_reply,
    flat_usage,
    kind_of_error,
    parse_errors,
    status_of_error,
)
from visioneval.providers.refusals import end_of_answer, is_refusing_end

_REASONING = "reasoning.encrypted_content"
"""Reasoning that must be sent back between rounds, since nothing is stored."""


class ResponsesJudge:
    """Asks with a strict schema; nothing is stored at the provider unless the suite's params say so."""

    def __init__(self, config: OpenAIJudge, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._reasons = True

    async def ask(self, question: Question, about: CellRef) -> Reply:
        """One round. No judge is told the cell."""
        reasons = self._reasons
        try:
            answer = await self._connection.post("/responses", encoded(self._body(question)))
        except ProviderError as error:
            is_included = question.tools and "include" not in self._config.params
            if error.kind != "invalid" or "ncrypted" not in str(error) or not (is_included and reasons):
                raise
            self._reasons = False  # encrypted reasoning, which the model does not support
            return await self.ask(question, about)
        with parse_errors():
            return _reply(answer)

    def _body(self, question: Question) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._config.model,
            "input": [{"role": "user", "content": [_part(part, question) for part in question.parts]}],
            "store": False,
        }
        for turn in question.turns:  # all items of the judge, including reasoning, and the result of each tool call
            body["input"] += turn.raw
            for call, parts in turn.results:
                output = [_part(part, question) for part in parts]
                body["input"].append({"type": "function_call_output", "call_id": call.id, "output": output})
        if question.schema is not None:
            form = {"type": "json_schema", "name": "answer", "strict": True, "schema": question.schema}
            body["text"] = {"format": form}
        if question.tools:
            body["tools"] = [{"type": "function", "strict": True, **_function(tool)} for tool in question.tools]
            body |= {"include": [_REASONING]} if self._reasons else {}
        body = _with_params(body, self._config.params)
        return {**body, "tool_choice": "none"} if question.must_answer else body


def _part(part: Part, question: Question) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    return {"type": "input_image", "image_url": data_url(part.data, part.mime), "detail": question.detail or "auto"}


def _reply(answer: Mapping[str, Any]) -> Reply:
    output = answer.get("output") or ()
    contents = [part for item in output if item["type"] == "message" for part in item["content"]]
    refusal = next((part["refusal"] for part in contents if part["type"] == "refusal"), None)
    if refusal is not None:
        raise ProviderError(f"the judge refused: {refusal}", kind="refused", may_be_billed=True)
    if answer.get("status") == "failed":
        raise _failure(answer.get("error") or {})
    reason = (answer.get("incomplete_details") or {}).get("reason")
    if is_refusing_end(reason):
        raise ProviderError(f"the judge's answer was blocked: {reason}", kind="refused", may_be_billed=True)
    calls = tuple(
        ToolCall(item["name"], item.get("arguments") or "", item["call_id"])
        for item in output
        if item["type"] == "function_call"
    )
    sent_back = [{name: value for name, value in item.items() if value is not None} for item in output if calls]
    for item in sent_back:
        if "arguments" in item:
            item["arguments"] = _valid_arguments(item["arguments"])
    return Reply(
        text="".join(part["text"] for part in contents if part["type"] == "output_text"),
        model=str(answer.get("model")),
        usage=flat_usage(answer.get("usage")) or None,
        stopped=(reason or "incomplete") if answer.get("status") == "incomplete" else None,
        calls=calls,
        raw=sent_back if calls else None,
    )


def _failure(stated: object) -> ProviderError:
    error = read_error({"error": stated})
    status = status_of_error(error, 400)
    why = error.message if stated else "no reason given"
    wait = retry_after(status, {}, error)
    return ProviderError(f"the answer failed: {why}", kind=kind_of_error(status, error), retry_after=wait)


def open_judge(config: OpenAIJudge) -> ResponsesJudge | ChatJudge:
    """Creates the judge of an entry. Raises ``UsageError`` without its key."""
    connection = Connection(config)
    return ResponsesJudge(config, connection) if config.api == "responses" else ChatJudge(config, connection)


Shape = Literal["schema", "json", "text"]
_TEXTS = ("text", "output_text")
"""The types of the parts that are the answer itself."""
_PART = frozenset({"type", "text", "content"})
"""The names of the fields of a part."""
_SHAPES: tuple[Shape, ...] = ("schema", "json", "text")
_FORMATS = ("response_format", "json_schema", "json_object", "structured output", "grammar")
"""In the words of an error about a shape that a server does not support."""


class ChatConfig(Protocol):
    """What a judge asks: a model, with parameters that are sent as written."""

    @property
    def model(self) -> str: ...

    @property
    def params(self) -> Mapping[str, Any]: ...


class ChatJudge:
    """Chat completions. If a server does not support schemas, requests a JSON object, and otherwise plain text.

    The supported shape is remembered, and part of each reply (``Reply.shape``).
    """

    def __init__(self, config: ChatConfig, connection: Connection) -> None:
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
                    return _chat_reply(answer, shape)
            except ProviderError as error:
                weaker = _SHAPES.index(shape) + 1
                is_unsupported = error.kind == "invalid" and any(name in str(error).lower() for name in _FORMATS)
                if not is_unsupported or question.schema is None or weaker == len(_SHAPES):
                    raise
                self._shape = max(self._shape, _SHAPES[weaker], key=_SHAPES.index)

    def _body(self, question: Question, shape: Shape) -> dict[str, Any]:
        parts = [*question.parts]
        if question.schema is not None and shape != "schema":
            parts.append(f"Reply with one JSON object of this JSON Schema:\n{json.dumps(question.schema)}")
        messages: list[dict[str, Any]] = [{"role": "user", "content": [_chat_part(part, question) for part in parts]}]
        for turn in question.turns:
            messages += _chat_turn(turn, question)
        body: dict[str, Any] = {"model": self._config.model, "messages": messages}
        if question.schema is not None and shape != "text":
            strict = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": question.schema},
            }
            body["response_format"] = strict if shape == "schema" else {"type": "json_object"}
        if question.tools:
            body["tools"] = [{"type": "function", "function": _function(tool)} for tool in question.tools]
        body = _with_params(body, self._config.params)
        return {**body, "tool_choice": "none"} if question.must_answer else body


def _with_params(body: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the suite's parameters into a body; they win, but ``text: {verbosity: low}`` keeps ``text.format``."""
    merged = dict(body)
    for name, value in params.items():
        default = body.get(name)
        merged[name] = {**default, **value} if isinstance(default, Mapping) and isinstance(value, Mapping) else value
    return merged


def _valid_arguments(arguments: str) -> str:
    """Replaces invalid JSON arguments with ``{}``: they would fail the whole next request."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return "{}"
    return arguments


def _function(tool: Tool) -> dict[str, Any]:
    """A tool as both APIs declare it."""
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


def _chat_part(part: Part, question: Question) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {
        "type": "image_url",
        "image_url": {"url": data_url(part.data, part.mime), "detail": question.detail or "auto"},
    }


def _chat_turn(turn: Turn, question: Question) -> list[dict[str, Any]]:
    """The judge's turn, one tool message per call, and one user message with the images: tools can only send text."""
    messages: list[dict[str, Any]] = [turn.raw]
    image_parts: list[dict[str, Any]] = []
    for call, parts in turn.results:
        text = "\n".join(part for part in parts if isinstance(part, str))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if any(isinstance(part, ImagePart) for part in parts):
            image_parts += [_chat_part(part, question) for part in parts]
    return [*messages, {"role": "user", "content": image_parts}] if image_parts else messages


def _parts_of(content: object) -> list[Mapping[str, Any]]:
    """The parts of a message, each with its type and its text where OpenAI has them.

    Some servers send a text, others a list of chunks, among them Mistral's thoughts.
    """
    if isinstance(content, Mapping) and not _PART.intersection(content):
        content = json.dumps(content)  # the answer itself
    chunks = content if isinstance(content, list) else [content]
    parts: list[Mapping[str, Any]] = []
    for chunk in chunks:
        part = {"type": "text", "text": chunk} if isinstance(chunk, str) else chunk
        if not isinstance(part, Mapping):
            continue
        kind = str(part.get("type") or "text").lower()  # one without a type is a text
        if kind in _TEXTS:
            text = part.get("text") or part.get("content")
            part = {**part, "type": kind, "text": text.get("value") if isinstance(text, Mapping) else text}
        parts.append(part)
    return parts


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


def _chat_reply(answer: Mapping[str, Any], shape: Shape) -> Reply:
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
        {**c, "function": {**c["function"], "arguments": _valid_arguments(c["function"].get("arguments", ""))}}
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
