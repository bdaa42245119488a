"""``/v1/responses``: questions with images, strict schemas, tool calls and their outputs."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from openai.types.responses import response_create_params as create
from openai.types.responses.easy_input_message_param import EasyInputMessageParam
from openai.types.responses.function_tool_param import FunctionToolParam
from openai.types.responses.response_format_text_json_schema_config_param import (
    ResponseFormatTextJSONSchemaConfigParam,
)
from openai.types.responses.response_function_tool_call_param import ResponseFunctionToolCallParam
from openai.types.responses.response_input_image_param import ResponseInputImageParam
from openai.types.responses.response_input_param import FunctionCallOutput
from openai.types.responses.response_input_text_param import ResponseInputTextParam
from openai.types.responses.response_output_message_param import ResponseOutputMessageParam
from openai.types.responses.response_output_refusal_param import ResponseOutputRefusalParam
from openai.types.responses.response_output_text_param import ResponseOutputTextParam
from openai.types.responses.response_reasoning_item_param import ResponseReasoningItemParam
from openai.types.responses.response_text_config_param import ResponseTextConfigParam
from openai.types.shared_params.reasoning import Reasoning

from .faults import ModelRequest
from .http1 import ApiError, HttpRequest, Reply, json_reply
from .openai_checks import (
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

BY_HAND: Final = frozenset({"input", "tools", "tool_choice", "text", "model", "prompt", "include"})


class Responses:
    name = "responses"

    def __init__(self, models: frozenset[str]) -> None:
        self._models = models
        self._stored_items: dict[str, list[Any]] = {}
        """Items of answers that called a tool, for ``previous_response_id``."""

    def read(self, request: HttpRequest) -> JudgeRequest:
        body = check_keys(json_body(request.body), create.ResponseCreateParamsNonStreaming, "", ("model", "input"))
        model = check_model(body["model"], self._models)
        check_values(body, create.ResponseCreateParamsNonStreaming, BY_HAND)
        _check_unsupported(body)
        reasoning = check_keys(body.get("reasoning") or {}, Reasoning, "reasoning")
        if reasoning and not REASONING.match(model):
            words = f"Unsupported parameter: 'reasoning.effort' is not supported with this model."  # noqa: F541
            raise bad(words, "reasoning.effort", "unsupported_parameter")
        check_sampling(body, reasoning.get("effort"))
        items = self._items(body)
        reader = _Items(store=body.get("store") is not False)
        reader.read(items)
        tools = _tools(body.get("tools") or [])
        choice = body.get("tool_choice")
        check_tool_choice(choice, choice.get("name") if isinstance(choice, dict) else None, tools)
        parts = (*([body["instructions"]] if body.get("instructions") else []), *reader.parts)
        schema, schema_name, strict, mode = _format(body, parts)
        return JudgeRequest("openai", self.name, model, parts, schema, schema_name, strict, mode, tools,
                            tuple(reader.results), reader.turns, body)  # fmt: skip

    def _items(self, body: Mapping[str, Any]) -> list[Any]:
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not items:
            raise bad("Invalid 'input': expected a string or a non-empty array of items.", "input", "invalid_type")
        previous = body.get("previous_response_id")
        if previous is None:
            return items
        if previous not in self._stored_items:
            words = f"Previous response with id '{previous}' not found."
            raise bad(words, "previous_response_id", "previous_response_not_found")
        return [*self._stored_items[previous], *items]

    def write(self, asked: ModelRequest, outcome: Outcome) -> Reply:
        assert isinstance(asked, JudgeRequest)
        if isinstance(outcome, Refused) and outcome.reason == "invalid_prompt":
            words = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
            raise ApiError(400, words, code="invalid_prompt")
        body = asked.params
        output, status, incomplete = _output(asked, outcome)
        text = "".join(json.dumps(item.get("content", item.get("arguments", ""))) for item in output)
        identity = f"resp_{uuid.uuid4().hex}"
        if body.get("store") is not False and any(item["type"] == "function_call" for item in output):
            self._stored_items[identity] = [*self._items(body), *output]
        return json_reply(200, {
            "id": identity, "object": "response", "created_at": int(time.time()), "status": status,
            "background": False, "error": None, "incomplete_details": incomplete,
            "instructions": body.get("instructions"), "max_output_tokens": body.get("max_output_tokens"),
            "model": asked.model, "output": output, "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": {"effort": (body.get("reasoning") or {}).get("effort"), "summary": None},
            "store": body.get("store", True), "temperature": body.get("temperature", 1.0),
            "text": body.get("text") or {"format": {"type": "text"}}, "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools", []), "top_p": body.get("top_p", 1.0), "truncation": "disabled",
            "usage": _usage(asked, text), "metadata": body.get("metadata") or {},
        }, (("x-request-id", f"req_{uuid.uuid4().hex}"),))  # fmt: skip


def _check_unsupported(body: Mapping[str, Any]) -> None:
    for key in ("stream", "background", "conversation", "prompt"):
        if body.get(key):
            raise bad(f"This server does not support '{key}'.", key, "unsupported_value")


def _tools(specs: list[Any]) -> tuple[Tool, ...]:
    tools = []
    for position, spec in enumerate(specs):
        where = f"tools[{position}]"
        if not isinstance(spec, dict) or spec.get("type") != "function":
            raise bad(f"Invalid value for '{where}.type': this server has function tools only.", where,
                      "invalid_value")  # fmt: skip
        tools.append(check_tool(check_keys(spec, FunctionToolParam, where, ("name",)), where))
    return tuple(tools)


def _format(
    body: Mapping[str, Any], parts: tuple[str | SentImage | SentFile, ...]
) -> tuple[Mapping[str, Any] | None, str | None, bool, bool]:
    """Schema, its name, whether it is strict, and whether the answer must be JSON."""
    config = check_keys(body.get("text") or {}, ResponseTextConfigParam, "text")
    if config.get("verbosity") not in (None, "low", "medium", "high"):
        raise bad(f"Invalid value: '{config['verbosity']}'.", "text.verbosity", "invalid_value")
    spec = config.get("format") or {"type": "text"}
    kind = spec.get("type") if isinstance(spec, dict) else None
    if kind == "json_schema":
        check_keys(spec, ResponseFormatTextJSONSchemaConfigParam, "text.format", ("name", "schema"))
        return (*check_schema_format(spec, "text.format"), True)
    if kind not in ("text", "json_object"):
        words = f"Invalid value: '{kind}'. Supported values are: 'json_object', 'json_schema', and 'text'."
        raise bad(words, "text.format.type", "invalid_value")
    if kind == "json_object" and not any("json" in part.lower() for part in parts if isinstance(part, str)):
        words = (
            "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
            "'json_object'."
        )
        raise bad(words, "input", None)
    return None, None, False, kind == "json_object"


class _Items:
    """Reads input items in order, and checks which items must go together."""

    def __init__(self, *, store: bool) -> None:
        self.parts: list[str | SentImage | SentFile] = []
        self.results: list[ToolResult] = []
        self.turns = 0
        self._store = store
        self._open: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._reasoned: set[str] = set()
        self._last = ""

    def read(self, items: list[Any]) -> None:
        for position, item in enumerate(items):
            self._item(item, f"input[{position}]")
            self._last = item.get("type", "message")
        if self._last == "reasoning":
            words = f"Item '{items[-1]['id']}' of type 'reasoning' was provided without its required following item."
            raise bad(words, "input", None)
        if self._open:
            raise bad(f"No tool output found for function call {next(iter(self._open))}.", "input", None)

    def _item(self, item: Any, where: str) -> None:
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "message":
            self._message(item, where)
        elif kind == "reasoning":
            self._reasoning(item, where)
        elif kind == "function_call":
            self._call(item, where)
        elif kind == "function_call_output":
            self._output(item, where)
        else:
            raise bad(f"Invalid value: '{kind}'.", f"{where}.type", "invalid_value")

    def _message(self, item: dict[str, Any], where: str) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in ("user", "assistant", "system", "developer"):
            words = f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
            raise bad(words, f"{where}.role", "invalid_value")
        shape = ResponseOutputMessageParam if "id" in item else EasyInputMessageParam
        check_keys(item, shape, where, ("role", "content"))
        if role == "assistant":
            self.turns += self._last in ("message", "function_call_output", "reasoning")
        if isinstance(content, str):
            self.parts.append(content)
            return
        if not isinstance(content, list):
            raise bad(f"Invalid type for '{where}.content'.", f"{where}.content", "invalid_type")
        for number, part in enumerate(content):
            spot = f"{where}.content[{number}]"
            self.parts.append(_assistant_text(part, spot) if role == "assistant" else content_part(part, spot))

    def _reasoning(self, item: dict[str, Any], where: str) -> None:
        check_keys(item, ResponseReasoningItemParam, where, ("id",))
        if "summary" not in item:
            raise bad(f"Missing required parameter: '{where}.summary'.", where, "missing_required_parameter")
        if not self._store and not item.get("encrypted_content"):
            words = (
                f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false. "
                "Try again with `store` set to true, or remove this item from your input."
            )
            raise ApiError(404, words, param="input")
        self._reasoned.add(item["id"])

    def _call(self, item: dict[str, Any], where: str) -> None:
        check_keys(item, ResponseFunctionToolCallParam, where, ("call_id", "name", "arguments"))
        check_arguments(item["arguments"], f"{where}.arguments")
        self.turns += self._last != "function_call"
        identity = str(item.get("id") or "")
        pair = f"rs_{identity.removeprefix('fc_').partition('_')[0]}"
        if identity.startswith("fc_") and identity.count("_") == 3 and pair not in self._reasoned:
            words = (
                f"Item '{identity}' of type 'function_call' was provided without its required 'reasoning' item: "
                f"'{pair}'."
            )
            raise bad(words, "input", None)
        self._open[item["call_id"]] = self._names[item["call_id"]] = item["name"]

    def _output(self, item: dict[str, Any], where: str) -> None:
        check_keys(item, FunctionCallOutput, where, ("call_id",))
        name = self._open.pop(item["call_id"], None)
        if name is None:
            words = f"No tool call found for function call output with call_id {item['call_id']}."
            raise bad(words, "input", None)
        output = item.get("output")
        if isinstance(output, str):
            result: list[str | SentImage | SentFile] = [output]
        elif isinstance(output, list):
            result = [content_part(part, f"{where}.output[{number}]") for number, part in enumerate(output)]
        else:
            raise bad(f"Invalid type for '{where}.output'.", f"{where}.output", "invalid_type")
        self.parts.extend(result)
        text = "\n".join(part for part in result if isinstance(part, str))
        images = tuple(part for part in result if isinstance(part, SentImage))
        self.results.append(ToolResult(name, item["call_id"], text, images))


def content_part(part: Any, where: str) -> str | SentImage | SentFile:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "input_text":
        check_keys(part, ResponseInputTextParam, where)
        if not isinstance(part.get("text"), str):
            raise bad(f"Missing required parameter: '{where}.text'.", f"{where}.text", "missing_required_parameter")
        return str(part["text"])
    if kind == "input_image":
        check_keys(part, ResponseInputImageParam, where)
        if part.get("file_id"):
            return SentFile(str(part["file_id"]), None)
        return image_from_url(part.get("image_url"), f"{where}.image_url", part.get("detail"))
    words = f"Invalid value: '{kind}'. Supported values are: 'input_text' and 'input_image'."
    raise bad(words, f"{where}.type", "invalid_value")


def _assistant_text(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "output_text":
        return str(check_keys(part, ResponseOutputTextParam, where, ("text",))["text"])
    if kind == "refusal":
        return str(check_keys(part, ResponseOutputRefusalParam, where, ("refusal",))["refusal"])
    words = f"Invalid value: '{kind}'. Supported values are: 'output_text' and 'refusal'."
    raise bad(words, f"{where}.type", "invalid_value")


def _output(asked: JudgeRequest, outcome: Outcome) -> tuple[list[dict[str, Any]], str, dict[str, str] | None]:
    """Output items, the status, and why it is incomplete. A reasoning model's first item is its reasoning."""
    token = uuid.uuid4().hex
    output: list[dict[str, Any]] = []
    thinks = _thinks(asked)
    if thinks:
        output.append({"id": f"rs_{token}", "type": "reasoning", "summary": [], "encrypted_content": f"gAAAA{token}"})
    if isinstance(outcome, Refused):
        if outcome.reason == "content_filter":
            return output, "incomplete", {"reason": "content_filter"}
        return [*output, _message(token, {"type": "refusal", "refusal": outcome.message})], "completed", None
    assert isinstance(outcome, Answer)
    for number, call in enumerate(outcome.calls):
        # the reasoning item's token within the id is what ties the two together in the next request
        identity = f"fc_{token}_{number}_r" if thinks else f"fc_{token}{number}"
        arguments = json.dumps(call.arguments)
        output.append({"id": identity, "type": "function_call", "status": "completed", "call_id":
                       f"call_{uuid.uuid4().hex[:24]}", "name": call.name, "arguments": arguments})  # fmt: skip
    if outcome.cut and not outcome.text:
        return output, "incomplete", {"reason": "max_output_tokens"}
    if not outcome.calls:
        printed = {"type": "output_text", "text": outcome.text, "annotations": [], "logprobs": []}
        output.append(_message(token, printed, "incomplete" if outcome.cut else "completed"))
    return output, *(("incomplete", {"reason": "max_output_tokens"}) if outcome.cut else ("completed", None))


def _thinks(asked: JudgeRequest) -> bool:
    return bool(REASONING.match(asked.model)) and (asked.params.get("reasoning") or {}).get("effort") != "none"


def _message(token: str, content: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    return {"id": f"msg_{token}", "type": "message", "role": "assistant", "status": status, "content": [content]}


def _usage(asked: JudgeRequest, output: str) -> dict[str, Any]:
    came, went, thought = judge_usage(asked.text, len(asked.images), output, reasoning=_thinks(asked))
    return {
        "input_tokens": came,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": went,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": came + went,
    }
