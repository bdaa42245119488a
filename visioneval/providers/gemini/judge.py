"""A Gemini model as a judge, with a JSON schema and tool calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from google import genai
from google.genai import types
from pydantic import ValidationError

from visioneval.errors import ProviderError
from visioneval.providers.base import AddressPart, CellRef, ImagePart, Part, Question, Reply, ToolCall, Turn
from visioneval.providers.error_replies import beginning
from visioneval.providers.gemini.config import GeminiJudge
from visioneval.providers.gemini.connection import client_for, paid_errors
from visioneval.providers.gemini.generator import blocked_prompt, config_of, token_counts
from visioneval.providers.image_replies import reading, unusable
from visioneval.providers.refusals import end_of_answer, is_refusing_end
from visioneval.providers.reply_json import read_answer

COMPLETE_REASONS = ("STOP", "FINISH_REASON_UNSPECIFIED")
_USAGE = (("usageMetadata",), ("usage_metadata",))
_ROUNDS = 5
"""The most times that the rest of an answer is read without what is invalid in it."""


class GeminiJudgeClient:
    """Asks with a JSON schema. It cannot be combined with tools, so the last round sends it."""

    def __init__(self, config: GeminiJudge) -> None:
        self._config = config
        self._client: genai.Client = client_for(config)

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002 - no judge is told the cell
        """One round. A question with tools has an additional last round, for the answer in the schema."""
        turns = [types.Content(role="user", parts=[_part(part) for part in question.parts])]
        for turn in question.turns:
            turns += _turns(turn)
        with_tools = bool(question.tools) and not question.must_answer
        answer = await self._send(turns, self._options(question, tools=with_tools))
        return _reply(answer, self._config.model, with_tools=with_tools)

    def _options(self, question: Question, *, tools: bool) -> dict[str, Any]:
        options: dict[str, Any] = dict(self._config.params)
        if tools:
            declared = [
                types.FunctionDeclaration(
                    name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters)
                )
                for tool in question.tools
            ]
            options["tools"] = [types.Tool(function_declarations=declared)]
            options["automatic_function_calling"] = types.AutomaticFunctionCallingConfig(disable=True)
        elif question.schema is not None:
            options["response_mime_type"] = "application/json"
            options["response_json_schema"] = dict(question.schema)
        if question.detail in ("low", "high"):
            level = "MEDIA_RESOLUTION_LOW" if question.detail == "low" else "MEDIA_RESOLUTION_HIGH"
            options.setdefault("media_resolution", level)
        return options

    async def _send(self, turns: Sequence[types.Content], options: dict[str, Any]) -> types.GenerateContentResponse:
        config = config_of(options)
        config.should_return_http_response = True  # its own reading fails for one odd number beside the answer
        with paid_errors() as replies:
            await self._client.aio.models.generate_content(
                model=self._config.model, contents=list(turns), config=config
            )
        with reading(replies[-1]):
            answer = _read(replies[-1])
        refuse(answer)
        return answer


def _read(reply: bytes) -> types.GenerateContentResponse:
    """The answer, without fields that are unknown or have no valid value. An invalid count makes all counts unknown."""
    try:
        data = read_answer(reply)
    except ValueError as error:
        raise unusable(
            f"the answer is not JSON: {error}; it {beginning(reply.decode('utf-8', 'replace'))}", reply
        ) from None
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    for _ in range(_ROUNDS):
        try:
            return types.GenerateContentResponse.model_validate(data)
        except ValidationError as error:
            for problem in error.errors(include_url=False, include_input=False):
                path = problem["loc"]
                _remove(data, path[:1] if problem["type"] != "extra_forbidden" and path[:1] in _USAGE else path)
    raise ValueError("it has another form")


def _remove(data: Any, path: Sequence[Any]) -> None:
    """Removes a field, or what is in an item of a list."""
    *parents, last = path or (0,)
    for key in parents:
        if isinstance(data, dict) and key not in data:
            return
        data = data[key]
    if isinstance(data, dict):
        data.pop(last, None)
    elif isinstance(data, list):
        data[last] = {}


def refuse(answer: types.GenerateContentResponse) -> None:
    """Raises a ``ProviderError``: ``refused`` for a blocked prompt or answer, ``unusable`` if there is no answer."""
    feedback = answer.prompt_feedback
    if feedback is not None and feedback.block_reason:
        raise blocked_prompt(feedback.block_reason.name, feedback.block_reason_message)
    if not answer.candidates:
        raise ProviderError("the answer has no candidates", kind="unusable", may_be_billed=True)
    for candidate in answer.candidates:
        if candidate.finish_reason and is_refusing_end(candidate.finish_reason.name):
            end = end_of_answer(candidate.finish_reason.name, candidate.finish_message, _text(answer))
            raise ProviderError(f"the answer was blocked: {end}", kind="refused", may_be_billed=True)


def _text(answer: types.GenerateContentResponse) -> str:
    """What an answer says, without thoughts."""
    return "".join(part.text for part in content_parts(answer) if part.text and not part.thought)


def content_parts(answer: types.GenerateContentResponse) -> list[types.Part]:
    """The parts of the first candidate; empty if there is no content."""
    candidates = answer.candidates or []
    content = candidates[0].content if candidates else None
    return list(content.parts or []) if content else []


def _part(part: Part) -> types.Part:
    return types.Part(text=part) if isinstance(part, str) else _image(part)


def _image(part: ImagePart) -> types.Part:
    if isinstance(part, AddressPart):
        return types.Part.from_uri(file_uri=part.uri, mime_type=part.mime)
    return types.Part.from_bytes(data=part.data, mime_type=part.mime)


def _turns(turn: Turn) -> list[types.Content]:
    """The judge's turn unchanged; then a response with text per call, and the images in the same order."""
    turns = [types.Content.model_validate_json(json.dumps(turn.raw))] if turn.raw.get("parts") else []
    responses: list[types.Part] = []
    images: list[types.Part] = []
    for call, parts in turn.results:
        result = {"result": "\n".join(part for part in parts if isinstance(part, str))}
        response = types.FunctionResponse(id=call.id or None, name=call.name, response=result)
        responses.append(types.Part(function_response=response))
        images += [_image(part) for part in parts if isinstance(part, ImagePart)]
    reply_parts = responses + images or [types.Part(text="Now give your answer.")]
    return [*turns, types.Content(role="user", parts=reply_parts)]


def _call(call: types.FunctionCall) -> ToolCall:
    """Converts integral floats to integers: the service has only floats in arguments."""
    arguments = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in (call.args or {}).items()
    }
    return ToolCall(call.name or "", json.dumps(arguments), call.id or "")


def _reply(answer: types.GenerateContentResponse, model: str, *, with_tools: bool) -> Reply:
    counts = answer.usage_metadata.model_dump(mode="json", exclude_none=True) if answer.usage_metadata else {}
    candidate = answer.candidates[0] if answer.candidates else None
    reason = candidate.finish_reason if candidate else None
    content = candidate.content if candidate else None
    return Reply(
        text=_text(answer),
        model=answer.model_version or model,
        usage=token_counts(counts) or None,
        stopped=reason.name.lower() if reason and reason.name not in COMPLETE_REASONS else None,
        calls=tuple(_call(part.function_call) for part in content_parts(answer) if part.function_call),
        raw=(content.model_dump(mode="json", exclude_none=True) if content else {}) if with_tools else None,
    )
