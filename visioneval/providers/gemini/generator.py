"""Images, edits and judgments of Gemini models (``generate_content``)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from google import genai
from google.genai import types
from pydantic import ValidationError

from visioneval.errors import ProviderError
from visioneval.providers.base import (
    AddressPart,
    CellRef,
    Generation,
    GenerationRequest,
    ImagePart,
    OperationGenerator,
    Question,
    Reply,
    ToolCall,
    Turn,
)
from visioneval.providers.error_replies import beginning
from visioneval.providers.gemini import GeminiJudge, GeminiProvider, is_veo
from visioneval.providers.gemini.connection import client_for, paid_errors
from visioneval.providers.gemini.videos import OmniVideos, VeoVideos
from visioneval.providers.image_replies import AllowedHosts, answer_of, is_image, read_outputs, reading, unusable
from visioneval.providers.inputs import accepted_image, mask_use
from visioneval.providers.refusals import end_of_answer, is_refusing_end
from visioneval.providers.reply_json import read_answer

_NO_HOSTS = AllowedHosts("", ())


class GeminiGenerator:
    """One client per model entry. ``n`` images take ``n`` calls: the API returns one each. Videos are operations."""

    def __init__(self, config: GeminiProvider) -> None:
        self._config = config
        self._client = client_for(config)

    async def begin(self, request: GenerationRequest) -> str | Generation:
        """Begins to generate a video."""
        return await self._videos(request).begin(request)

    async def poll(self, name: str, request: GenerationRequest) -> Generation | None:
        """The generated video, once it has ended."""
        return await self._videos(request).poll(name, request)

    def _videos(self, request: GenerationRequest) -> OperationGenerator:
        if is_veo(request.params["model"]):
            return VeoVideos(self._client, self._config.google)
        return OmniVideos(self._client)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Generates from the prompt alone."""
        return await self._generate(request, [types.Part(text=request.prompt)], dict(request.params))

    async def edit(self, request: GenerationRequest) -> Generation:
        """Sends the input images in order, then the prompt; a mask is an additional image with an instruction."""
        use = mask_use(self._config.mask_mode, request.files)
        parts = []
        for _, path in request.files.images:
            _, data, mime = await asyncio.to_thread(accepted_image, path)
            parts.append(types.Part.from_bytes(data=data, mime_type=mime))
        if use.as_image is not None:
            parts.append(types.Part.from_bytes(data=await asyncio.to_thread(use.image), mime_type="image/png"))
        parts.append(types.Part(text=use.worded(request.prompt, len(parts))))
        masked = {"mask_mode": use.mode} if "editable" in request.files.masks else {}
        return await self._generate(request, parts, {**request.params, **masked})

    async def _generate(
        self, request: GenerationRequest, parts: list[types.Part], sent: Mapping[str, Any]
    ) -> Generation:
        config = config_of({key: value for key, value in request.params.items() if key not in ("model", "n")})
        if config.response_modalities is None:
            config.response_modalities = ["IMAGE"]
        config.should_return_http_response = True  # its own reading fails for one odd number beside the image
        with paid_errors() as replies:
            await self._client.aio.models.generate_content(
                model=str(request.params["model"]), contents=[types.Content(role="user", parts=parts)], config=config
            )
        reply = replies[-1]
        if is_image(reply):
            return Generation(outputs=(reply,), run_params=sent)
        with reading(reply):
            data, is_cut_off = answer_of(reply)
            fields = data if isinstance(data, Mapping) else {}
            items = [
                {"b64_json": _field(_object(part, "inlineData"), "data")}
                for part in _parts(fields)
                if "inlineData" in part or "inline_data" in part
            ]
            outputs, problem = await read_outputs(items, _NO_HOSTS, len(request.samples), is_cut_off=is_cut_off)
            if not outputs:
                _refuse(fields)
                problem = f"{problem}; the answer ended with {_end_of(fields)}"
            usage = None if is_cut_off else token_counts(_object(fields, "usageMetadata")) or None
        return Generation(outputs, usage=usage, run_params=sent, unusable=problem, reply=reply)


def _field(fields: Mapping[str, Any], name: str) -> Any:
    """A field, which some gateways name in snake case."""
    return fields.get(name, fields.get(_snake_case(name)))


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A field that is an object; empty if it is not."""
    value = _field(fields, name)
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list, or the one that is there without it."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Mapping)]


def _snake_case(name: str) -> str:
    return re.sub("(?<!^)([A-Z])", r"_\1", name).lower()


def _parts(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of all candidates that are no thoughts."""
    for candidate in _objects(answer.get("candidates")):
        yield from (part for part in _objects(_object(candidate, "content").get("parts")) if not part.get("thought"))


def _refuse(answer: Mapping[str, Any]) -> None:
    """Raises a ``ProviderError`` of the kind ``refused`` for a blocked prompt or answer."""
    feedback = _object(answer, "promptFeedback")
    if reason := _field(feedback, "blockReason"):
        raise blocked_prompt(reason, _field(feedback, "blockReasonMessage"))
    for candidate in _objects(answer.get("candidates")):
        if is_refusing_end(_field(candidate, "finishReason")):
            raise ProviderError(f"the answer was blocked: {_end_of(answer)}", kind="refused", may_be_billed=True)


def _end_of(answer: Mapping[str, Any]) -> str:
    """Why an answer ended and what it says."""
    first = next(iter(_objects(answer.get("candidates"))), {})
    text = " ".join(str(part["text"]) for part in _parts(answer) if part.get("text"))
    return end_of_answer(_field(first, "finishReason"), _field(first, "finishMessage"), text)


def blocked_prompt(reason: object, why: object) -> ProviderError:
    """The error for a prompt that was refused, with the reason that Gemini gives."""
    return ProviderError(f"the prompt was blocked: {reason}{f' ({why})' if why else ''}", kind="refused")


def token_counts(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Token counts by kind, and by modality: ``candidates_image_tokens``. Nothing is checked."""
    usage: dict[str, Any] = {}
    for name, value in counts.items():
        kind = _snake_case(name)
        if not isinstance(value, list):
            usage[kind] = value
        for part in _objects(value) if isinstance(value, list) else ():
            modality = f"{kind.removesuffix('tokens_details')}{str(part.get('modality')).lower()}_tokens"
            tokens, before = _field(part, "tokenCount"), usage.get(modality)
            usage[modality] = tokens if before is None else -1  # counted twice: it cannot be known which is right
    return usage


def config_of(options: Mapping[str, Any]) -> types.GenerateContentConfig:
    """The generation config as the suite wrote it.

    Raises ``ProviderError`` for unknown options, and for ``http_options``, which could send the key anywhere.
    """
    try:
        config = types.GenerateContentConfig.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ProviderError(f"invalid parameter {where}: {first['msg']}", kind="invalid") from None
    if config.http_options is not None:
        raise ProviderError("invalid parameter http_options: set base_url instead", kind="invalid")
    return config


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
        parts = [types.Part(text=part) if isinstance(part, str) else _image(part) for part in question.parts]
        turns = [types.Content(role="user", parts=parts)]
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
        _check(answer)
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


def _check(answer: types.GenerateContentResponse) -> None:
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
    content = answer.candidates[0].content if answer.candidates else None
    return "".join(part.text for part in (content and content.parts) or () if part.text and not part.thought)


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


def _reply(answer: types.GenerateContentResponse, model: str, *, with_tools: bool) -> Reply:
    counts = answer.usage_metadata.model_dump(mode="json", exclude_none=True) if answer.usage_metadata else {}
    candidate = answer.candidates[0] if answer.candidates else None
    reason = candidate.finish_reason if candidate else None
    content = candidate.content if candidate else None
    calls = []
    for call in (part.function_call for part in (content and content.parts) or () if part.function_call):
        arguments = {  # the service has only floats in arguments
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in (call.args or {}).items()
        }
        calls.append(ToolCall(call.name or "", json.dumps(arguments), call.id or ""))
    return Reply(
        text=_text(answer),
        model=answer.model_version or model,
        usage=token_counts(counts) or None,
        stopped=reason.name.lower() if reason and reason.name not in COMPLETE_REASONS else None,
        calls=tuple(calls),
        raw=(content.model_dump(mode="json", exclude_none=True) if content else {}) if with_tools else None,
    )
