"""``/v1/chat/completions``, as OpenAI serves it, or a compatible server with fewer features."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from openai.types.chat.chat_completion_assistant_message_param import ChatCompletionAssistantMessageParam
from openai.types.chat.chat_completion_content_part_image_param import ChatCompletionContentPartImageParam, ImageURL
from openai.types.chat.chat_completion_content_part_text_param import ChatCompletionContentPartTextParam
from openai.types.chat.chat_completion_function_tool_param import ChatCompletionFunctionToolParam
from openai.types.chat.chat_completion_message_function_tool_call_param import (
    ChatCompletionMessageFunctionToolCallParam,
)
from openai.types.chat.chat_completion_system_message_param import ChatCompletionSystemMessageParam
from openai.types.chat.chat_completion_tool_message_param import ChatCompletionToolMessageParam
from openai.types.chat.chat_completion_user_message_param import ChatCompletionUserMessageParam
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.shared_params.function_definition import FunctionDefinition
from openai.types.shared_params.response_format_json_schema import JSONSchema, ResponseFormatJSONSchema

from .faults import ModelRequest
from .http1 import HttpRequest, Reply, json_reply
from .openai_checks import (
    NO_SAMPLING,
    REASONING,
    bad,
    check_arguments,
    check_keys,
    check_model,
    check_sampling,
    check_schema_format,
    check_tool,
    check_tool_choice,
    check_values,
    image_from_url,
    json_body,
    judge_usage,
)
from .outcomes import Answer, Outcome, Refused
from .script import JudgeRequest, SentFile, SentImage, Tool, ToolResult

BY_HAND: Final = frozenset({"messages", "tools", "tool_choice", "response_format", "model", "functions", "stop"})
SHAPES: Final[Mapping[str, type]] = {
    "system": ChatCompletionSystemMessageParam,
    "developer": ChatCompletionSystemMessageParam,
    "user": ChatCompletionUserMessageParam,
    "assistant": ChatCompletionAssistantMessageParam,
    "tool": ChatCompletionToolMessageParam,
}


class Chat:
    """``formats`` are the ``response_format`` types that this server can do; ``tools``: whether it has tools."""

    name = "chat"

    def __init__(self, models: frozenset[str], formats: frozenset[str], *, tools: bool) -> None:
        self._models = models
        self._formats = formats
        self._can_call = tools

    def read(self, request: HttpRequest) -> JudgeRequest:
        body = check_keys(json_body(request.body), CompletionCreateParamsNonStreaming, "", ("model", "messages"))
        model = check_model(body["model"], self._models)
        check_values(body, CompletionCreateParamsNonStreaming, BY_HAND)
        _check_parameters(body, model)
        reader = _Messages()
        reader.read(body["messages"])
        tools = self._tools(body)
        schema, name, strict, mode = self._format(body, reader.parts)
        return JudgeRequest("openai", self.name, model, tuple(reader.parts), schema, name, strict, mode, tools,
                            tuple(reader.results), reader.turns, body)  # fmt: skip

    def _tools(self, body: Mapping[str, Any]) -> tuple[Tool, ...]:
        specs, choice = body.get("tools") or [], body.get("tool_choice")
        if specs and not self._can_call:
            raise bad('"auto" tool choice requires --enable-auto-tool-choice to be set', "tools", None)
        tools = []
        for position, spec in enumerate(specs):
            where = f"tools[{position}]"
            check_keys(spec, ChatCompletionFunctionToolParam, where, ("type", "function"))
            function = check_keys(spec["function"], FunctionDefinition, f"{where}.function", ("name",))
            tools.append(check_tool(function, f"{where}.function"))
        name = (choice.get("function") or {}).get("name") if isinstance(choice, dict) else None
        check_tool_choice(choice, name, tools)
        return tuple(tools)

    def _format(
        self, body: Mapping[str, Any], parts: list[str | SentImage | SentFile]
    ) -> tuple[Mapping[str, Any] | None, str | None, bool, bool]:
        spec = body.get("response_format") or {"type": "text"}
        kind = spec.get("type") if isinstance(spec, dict) else None
        if kind not in ("text", "json_object", "json_schema"):
            words = f"Invalid value: '{kind}'. Supported values are: 'json_object', 'json_schema', and 'text'."
            raise bad(words, "response_format.type", "invalid_value")
        if kind not in self._formats:
            words = f"Invalid parameter: 'response_format' of type '{kind}' is not supported with this model."
            raise bad(words, "response_format", None)
        if kind == "json_schema":
            check_keys(spec, ResponseFormatJSONSchema, "response_format", ("json_schema",))
            inner = check_keys(spec["json_schema"], JSONSchema, "response_format.json_schema", ("name",))
            return (*check_schema_format(inner, "response_format.json_schema"), True)
        if kind == "json_object" and not any("json" in part.lower() for part in parts if isinstance(part, str)):
            words = (
                "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
            )
            raise bad(words, "messages", None)
        return None, None, False, kind == "json_object"

    def write(self, asked: ModelRequest, outcome: Outcome) -> Reply:
        assert isinstance(asked, JudgeRequest)
        message, finish = _message(outcome)
        thinks = bool(REASONING.match(asked.model)) and asked.params.get("reasoning_effort") != "none"
        came, went, thought = judge_usage(asked.text, len(asked.images), json.dumps(message), reasoning=thinks)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        count = asked.params.get("n") or 1
        usage = {
            "prompt_tokens": came,
            "completion_tokens": went * count,
            "total_tokens": came + went * count,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": thought, "audio_tokens": 0},
        }
        body = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": asked.model,
            "choices": [choice | {"index": number} for number in range(count)],
            "usage": usage,
            "service_tier": "default",
            "system_fingerprint": None,
        }
        return json_reply(200, body, (("x-request-id", f"req_{uuid.uuid4().hex}"),))


def _check_parameters(body: Mapping[str, Any], model: str) -> None:
    if body.get("stream"):
        raise bad("This server does not stream.", "stream", "unsupported_value")
    if body.get("max_tokens") is not None and REASONING.match(model):
        words = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        raise bad(words, "max_tokens", "unsupported_parameter")
    effort = body.get("reasoning_effort")
    if effort is not None and not REASONING.match(model):
        words = "Unsupported parameter: 'reasoning_effort' is not supported with this model."
        raise bad(words, "reasoning_effort", "unsupported_parameter")
    if NO_SAMPLING.match(model) and body.get("temperature") not in (None, 1, 1.0):
        words = (
            f"Unsupported value: 'temperature' does not support {body['temperature']:g} with this model. "
            "Only the default (1) value is supported."
        )
        raise bad(words, "temperature", "unsupported_value")
    check_sampling(body, effort)


class _Messages:
    """Reads messages in order; a turn of tool calls must be answered, whole, by the messages right after it."""

    def __init__(self) -> None:
        self.parts: list[str | SentImage | SentFile] = []
        self.results: list[ToolResult] = []
        self.turns = 0
        self._open: dict[str, str] = {}

    def read(self, messages: object) -> None:
        if not isinstance(messages, list) or not messages:
            raise bad("Invalid 'messages': expected a non-empty array.", "messages", "invalid_type")
        for position, message in enumerate(messages):
            self._message(message, f"messages[{position}]")
        self._answered()

    def _answered(self) -> None:
        if self._open:
            words = (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(self._open)}"
            )
            raise bad(words, "messages", None)

    def _message(self, message: Any, where: str) -> None:
        role = str(message.get("role")) if isinstance(message, dict) else ""
        if role not in SHAPES:
            words = f"Invalid value: '{role}'. Supported values are: {', '.join(map(repr, SHAPES))}."
            raise bad(words, f"{where}.role", "invalid_value")
        check_keys(message, SHAPES[role], where)
        if role == "tool":
            self._result(message, where)
            return
        self._answered()
        if role == "assistant":
            self._assistant(message, where)
        elif message.get("content") is None:
            raise bad(f"Invalid value for 'content': expected a string, got null.", f"{where}.content", None)  # noqa: F541
        self.parts.extend(_contents(message.get("content"), f"{where}.content", images=role == "user"))

    def _assistant(self, message: Mapping[str, Any], where: str) -> None:
        self.turns += 1
        calls = message.get("tool_calls")
        if calls == []:
            raise bad(f"Invalid '{where}.tool_calls': empty array.", f"{where}.tool_calls", "empty_array")
        if message.get("content") is None and not calls and not message.get("refusal"):
            raise bad("Invalid value for 'content': expected a string, got null.", f"{where}.content", None)
        for number, call in enumerate(calls or ()):
            spot = f"{where}.tool_calls[{number}]"
            check_keys(call, ChatCompletionMessageFunctionToolCallParam, spot, ("id", "type", "function"))
            check_arguments(call["function"].get("arguments"), f"{spot}.function.arguments")
            self._open[call["id"]] = call["function"]["name"]

    def _result(self, message: Mapping[str, Any], where: str) -> None:
        name = self._open.pop(message.get("tool_call_id") or "", None)
        if name is None:
            words = (
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                "'tool_calls'."
            )
            raise bad(words, f"{where}.role", None)
        result = _contents(message.get("content"), f"{where}.content", images=False)
        self.parts.extend(result)
        text = "\n".join(part for part in result if isinstance(part, str))
        self.results.append(ToolResult(name, message["tool_call_id"], text))


def _contents(content: object, where: str, *, images: bool) -> list[str | SentImage | SentFile]:
    if content is None or isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, list):
        raise bad(f"Invalid type for '{where}'.", where, "invalid_type")
    result: list[str | SentImage | SentFile] = []
    for number, part in enumerate(content):
        spot = f"{where}[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            result.append(str(check_keys(part, ChatCompletionContentPartTextParam, spot, ("text",))["text"]))
        elif kind == "image_url" and images:
            check_keys(part, ChatCompletionContentPartImageParam, spot, ("image_url",))
            link = check_keys(part["image_url"], ImageURL, f"{spot}.image_url", ("url",))
            result.append(image_from_url(link["url"], f"{spot}.image_url", link.get("detail")))
        else:
            raise bad(f"Invalid value: '{kind}' for a part of this message.", f"{spot}.type", "invalid_value")
    return result


def _message(outcome: Outcome) -> tuple[dict[str, Any], str]:
    """The assistant's message and the reason why it ended."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    if isinstance(outcome, Refused):
        filtered = outcome.reason == "content_filter"
        return message | ({} if filtered else {"refusal": outcome.message}), "content_filter" if filtered else "stop"
    assert isinstance(outcome, Answer)
    if outcome.calls:
        calls = [
            {
                "id": f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in outcome.calls
        ]
        return message | {"tool_calls": calls}, "tool_calls"
    return message | {"content": outcome.text}, "length" if outcome.cut else "stop"
