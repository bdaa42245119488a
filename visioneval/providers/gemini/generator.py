"""Generation and editing with Gemini models that answer with images (``generate_content``)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.genai import types
from pydantic import ValidationError

from visioneval.errors import ProviderError
from visioneval.providers.base import Generation, GenerationRequest, OperationGenerator
from visioneval.providers.gemini.config import GeminiProvider, is_veo
from visioneval.providers.gemini.connection import client_for, paid_errors
from visioneval.providers.gemini.videos import OmniVideos, VeoVideos
from visioneval.providers.image_replies import answer_of, is_image, reading
from visioneval.providers.inputs import accepted_image
from visioneval.providers.masks import mask_use
from visioneval.providers.output_urls import AllowedHosts, read_outputs
from visioneval.providers.refusals import end_of_answer, is_refusing_end

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
        parts = [await asyncio.to_thread(_inline, path) for _, path in request.files.images]
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
            answered = list(_parts(fields))
            items = [{"b64_json": _field(_object(part, "inlineData"), "data")} for part in answered if _has_image(part)]
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


def _has_image(part: Mapping[str, Any]) -> bool:
    return "inlineData" in part or "inline_data" in part


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


def _inline(path: Path) -> types.Part:
    _, data, mime = accepted_image(path)
    return types.Part.from_bytes(data=data, mime_type=mime)
