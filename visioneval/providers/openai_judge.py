"""A judge behind OpenAI's Responses API, or behind chat completions for servers that speak only those."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from openai.types.chat import ChatCompletion
from openai.types.responses import Response
from pydantic import BaseModel

from visioneval.errors import ProviderError, ProviderErrorKind
from visioneval.providers.base import CellRef, ImagePart, Part, Question, Reply, Tool
from visioneval.providers.openai import Connection, flat_usage, whole
from visioneval.suite.judges import OpenAIJudge

Shape = Literal["schema", "json", "text"]
SHAPES: tuple[Shape, ...] = ("schema", "json", "text")
SPARE_ROUNDS = 2
"""Rounds after the last crop in which a judge may still ask for one, and is told that none is left."""

_THOUGHT = "reasoning.encrypted_content"
"""What a reasoning model must be handed back between rounds, where nothing is stored."""
_FAILED: Mapping[str, ProviderErrorKind] = {
    "server_error": "transient",
    "rate_limit_exceeded": "rate_limit",
    "invalid_prompt": "refused",
    "image_content_policy_violation": "refused",
}


class ResponsesJudge:
    """Asks with a strict schema; nothing is stored at the provider unless the suite's params say so."""

    def __init__(self, config: OpenAIJudge, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._thinks = True

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002 - no judge is told the cell
        """One question, with as many rounds as its tools are used."""
        body = self._body(question)
        rounds = Rounds(question)
        while True:
            answer = await self._answer(body)
            rounds.add_usage(answer.usage)
            calls = [item for item in answer.output or () if item.type == "function_call"]
            if not calls:
                return _response_reply(answer, rounds)
            body["input"] += [_sent_back(item) for item in answer.output]
            for call in calls:
                told = [_response_part(part, question) for part in called(question.tools, call.name, call.arguments)]
                body["input"].append({"type": "function_call_output", "call_id": call.call_id, "output": told})
            rounds.next(body, len(calls))

    def _body(self, question: Question) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._config.model,
            "input": [{"role": "user", "content": [_response_part(part, question) for part in question.parts]}],
            "store": False,
        }
        if question.schema is not None:
            form = {"type": "json_schema", "name": "answer", "strict": True, "schema": question.schema}
            body["text"] = {"format": form}
        if question.tools:
            body["tools"] = [{"type": "function", "strict": True, **_function(tool)} for tool in question.tools]
            body["include"] = [_THOUGHT]
        return with_params(body, self._config.params)

    async def _answer(self, body: dict[str, Any]) -> Response:
        """One round. A model that does not reason has no thoughts to hand back, and says so with a 400."""
        if not self._thinks and body.get("include") == [_THOUGHT]:
            del body["include"]
        try:
            async with self._connection.call() as client:
                return whole(await client.responses.create(extra_body=body), Response)
        except ProviderError as error:
            if error.kind != "invalid" or "ncrypted" not in str(error) or body.get("include") != [_THOUGHT]:
                raise
        self._thinks = False
        return await self._answer(body)


class Rounds:
    """What the rounds of one question used, and when the last tool call was."""

    def __init__(self, question: Question) -> None:
        self._most = question.max_tool_calls + SPARE_ROUNDS
        self._usage: dict[str, int] = {}
        self.calls = 0

    @property
    def usage(self) -> dict[str, int] | None:
        """Tokens of all rounds together, where the provider told them."""
        return self._usage or None

    def add_usage(self, told: Any) -> None:
        """Adds the token counts of one round."""
        for name, tokens in flat_usage(told).items():
            self._usage[name] = self._usage.get(name, 0) + tokens

    def next(self, body: dict[str, Any], calls: int) -> None:
        """Counts a round's tool calls, and forbids more in the next one where there were too many."""
        if self.calls >= self._most:
            raise ProviderError(f"the judge goes on calling tools after {self.calls} calls", kind="invalid")
        self.calls += calls
        if self.calls >= self._most:
            body["tool_choice"] = "none"


def with_params(body: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """A body with the suite's parameters, which win; but ``text: {verbosity: low}`` leaves ``text.format`` alone."""
    merged = dict(body)
    for name, value in params.items():
        own = body.get(name)
        merged[name] = {**own, **value} if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return merged


def _sent_back(item: BaseModel) -> dict[str, Any]:
    """An item of an answer, as it must stand in the next request."""
    sent = item.model_dump(mode="json", exclude_none=True, warnings=False)
    if "arguments" in sent:
        sent["arguments"] = _readable(sent["arguments"])
    return sent


def _readable(arguments: str) -> str:
    """Arguments that are no JSON would fail the whole next request, not only the call."""
    try:
        json.loads(arguments)
    except ValueError:
        return "{}"
    return arguments


def _response_part(part: Part, question: Question) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    return {"type": "input_image", "image_url": data_url(part), "detail": question.detail or "auto"}


def _response_reply(answer: Response, rounds: Rounds) -> Reply:
    contents = [part for item in answer.output or () if item.type == "message" for part in item.content]
    refusal = next((part.refusal for part in contents if part.type == "refusal"), None)
    if refusal is not None:
        raise ProviderError(f"the judge refused: {refusal}", kind="refused")
    if answer.status == "failed":
        code, words = (answer.error.code, answer.error.message) if answer.error else (None, "no reason given")
        raise ProviderError(f"the answer failed: {words}", kind=_FAILED.get(str(code), "invalid"))
    reason = answer.incomplete_details.reason if answer.incomplete_details else None
    if reason == "content_filter":
        raise ProviderError("the judge's answer was blocked by a content filter", kind="refused")
    text = "".join(part.text for part in contents if part.type == "output_text")
    stopped = (reason or "incomplete") if answer.status == "incomplete" else None
    return Reply(text=text, model=str(answer.model), usage=rounds.usage, stopped=stopped, tool_calls=rounds.calls)


class ChatJudge:
    """Chat completions. Where a server knows no schema, a JSON object is asked for, and where not that, plain text.

    What a server took is remembered, and told in every reply (``Reply.shape``).
    """

    def __init__(self, config: OpenAIJudge, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._shape: Shape = "schema"

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002 - no judge is told the cell
        """One question, in the strongest shape that the server takes."""
        while True:
            shape = self._shape
            try:
                return await self._asked(question, shape)
            except ProviderError as error:
                weaker = SHAPES.index(shape) + 1
                if not _knows_no_shape(error) or question.schema is None or weaker == len(SHAPES):
                    raise
                self._shape = max(self._shape, SHAPES[weaker], key=SHAPES.index)

    async def _asked(self, question: Question, shape: Shape) -> Reply:
        parts = [*question.parts]
        if question.schema is not None and shape != "schema":
            parts.append(f"Reply with one JSON object of this JSON Schema:\n{json.dumps(question.schema)}")
        messages: list[dict[str, Any]] = [{"role": "user", "content": [_chat_part(part, question) for part in parts]}]
        body: dict[str, Any] = {"model": self._config.model, "messages": messages}
        if question.schema is not None and shape != "text":
            body["response_format"] = _response_format(question.schema, shape)
        if question.tools:
            body["tools"] = [{"type": "function", "function": _function(tool)} for tool in question.tools]
        body = with_params(body, self._config.params)
        rounds = Rounds(question)
        while True:
            async with self._connection.call() as client:
                given = await client.chat.completions.create(messages=[], model=self._config.model, extra_body=body)
            answer = whole(given, ChatCompletion)
            rounds.add_usage(answer.usage)
            if not answer.choices:
                raise ProviderError("the answer holds no choice", kind="transient")
            message = answer.choices[0].message
            if not message.tool_calls:
                return _chat_reply(answer, shape, rounds)
            messages += _chat_answers(message, question)
            rounds.next(body, len(message.tool_calls))


def _knows_no_shape(error: ProviderError) -> bool:
    said = str(error).lower()
    words = ("response_format", "json_schema", "json_object", "structured output", "grammar")
    return error.kind == "invalid" and any(word in said for word in words)


def _response_format(schema: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    if shape == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def _chat_part(part: Part, question: Question) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": data_url(part), "detail": question.detail or "auto"}}


def _chat_answers(message: Any, question: Question) -> list[dict[str, Any]]:
    """The judge's own turn, one tool message per call, and one user message with the pictures: tools send text."""
    own = [call.model_dump(mode="json", exclude_none=True, warnings=False) for call in message.tool_calls]
    for call in own:
        call["function"]["arguments"] = _readable(call["function"].get("arguments", ""))
    turns: list[dict[str, Any]] = [{"role": "assistant", "content": message.content, "tool_calls": own}]
    shown: list[dict[str, Any]] = []
    for call in message.tool_calls:
        parts = called(question.tools, call.function.name, call.function.arguments)
        words = "\n".join(part for part in parts if isinstance(part, str))
        turns.append({"role": "tool", "tool_call_id": call.id, "content": words})
        if any(isinstance(part, ImagePart) for part in parts):
            shown += [_chat_part(part, question) for part in parts]
    return [*turns, {"role": "user", "content": shown}] if shown else turns


def _chat_reply(answer: ChatCompletion, shape: Shape, rounds: Rounds) -> Reply:
    choice = answer.choices[0]
    if choice.message.refusal:
        raise ProviderError(f"the judge refused: {choice.message.refusal}", kind="refused")
    if choice.finish_reason == "content_filter":
        raise ProviderError("the judge's answer was blocked by a content filter", kind="refused")
    return Reply(
        text=choice.message.content or "",
        model=str(answer.model),
        shape=shape,
        usage=rounds.usage,
        stopped="max_tokens" if choice.finish_reason == "length" else None,
        tool_calls=rounds.calls,
    )


def _function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}


def called(tools: Sequence[Tool], name: str, arguments: str) -> Sequence[Part]:
    """What a tool answers to a judge's call; bad names and bad JSON get an answer that the judge can act on."""
    tool = next((each for each in tools if each.name == name), None)
    if tool is None:
        return [f"There is no tool {name!r}. There are: {', '.join(each.name for each in tools)}."]
    try:
        asked = json.loads(arguments or "{}")
    except ValueError as error:
        return [f"The arguments are not JSON: {error}."]
    return tool.call(asked) if isinstance(asked, dict) else ["The arguments must be a JSON object."]


def data_url(part: ImagePart) -> str:
    """A picture as a ``data:`` URL."""
    return f"data:{part.mime};base64,{base64.b64encode(part.data).decode()}"


def open_judge(config: OpenAIJudge) -> ResponsesJudge | ChatJudge:
    """The judge that a suite's entry stands for. Raises ``UsageError`` without its key."""
    connection = Connection(config)
    return ResponsesJudge(config, connection) if config.api == "responses" else ChatJudge(config, connection)
