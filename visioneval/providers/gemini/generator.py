"""Generation and editing with Gemini models that answer with images (``generate_content``)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.genai import types
from pydantic import ValidationError

from visioneval.errors import ProviderError
from visioneval.providers.base import Generation, GenerationRequest, OperationGenerator
from visioneval.providers.gemini.config import GeminiProvider
from visioneval.providers.gemini.connection import client_for, provider_errors
from visioneval.providers.gemini.interactions import OmniVideos
from visioneval.providers.gemini.operations import VeoVideos
from visioneval.providers.gemini.video_params import is_veo
from visioneval.providers.input_images import accepted_image
from visioneval.providers.masks import mask_use
from visioneval.providers.refusals import end_of_answer, is_refusing_end


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
        with provider_errors():
            answer = await self._client.aio.models.generate_content(
                model=str(request.params["model"]), contents=[types.Content(role="user", parts=parts)], config=config
            )
        images = _images(answer)
        if not images:
            refuse(answer)
        usage: dict[str, int] = {}
        add_usage(usage, answer)
        unused = f"the answer has {len(images)} images that are no thoughts: the first one is used" * (len(images) > 1)
        return Generation(
            outputs=tuple(images[:1]),
            usage=usage or None,
            run_params=sent,
            unusable=unused or (None if images else f"the answer ended with {_end_of(answer)}"),
        )


def _images(answer: types.GenerateContentResponse) -> list[bytes]:
    """The images that are not thoughts."""
    data = (part.inline_data.data for part in content_parts(answer) if part.inline_data and not part.thought)
    return list(filter(None, data))


def _end_of(answer: types.GenerateContentResponse) -> str:
    """Why an answer ended and what it says. Of the Developer API, the SDK drops the finish message."""
    candidate = answer.candidates[0] if answer.candidates else types.Candidate()
    reason = candidate.finish_reason.name if candidate.finish_reason else None
    text = " ".join(part.text for part in content_parts(answer) if part.text and not part.thought)
    return end_of_answer(reason, candidate.finish_message, text)


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


def refuse(answer: types.GenerateContentResponse) -> None:
    """Raises a ``ProviderError``: ``refused`` for a blocked prompt or answer, ``transient`` if there is no answer."""
    feedback = answer.prompt_feedback
    if feedback is not None and feedback.block_reason:
        why = f" ({feedback.block_reason_message})" if feedback.block_reason_message else ""
        raise ProviderError(f"the prompt was blocked: {feedback.block_reason.name}{why}", kind="refused")
    if not answer.candidates:
        raise ProviderError("the answer has no candidates", kind="transient", may_be_billed=True)
    if any(is_refusing_end(candidate.finish_reason.name) for candidate in answer.candidates if candidate.finish_reason):
        raise ProviderError(f"the answer was blocked: {_end_of(answer)}", kind="refused", may_be_billed=True)


def content_parts(answer: types.GenerateContentResponse) -> list[types.Part]:
    """The parts of the first candidate; empty if there is no content."""
    candidates = answer.candidates or []
    content = candidates[0].content if candidates else None
    return list(content.parts or []) if content else []


def add_usage(usage: dict[str, int], answer: types.GenerateContentResponse) -> None:
    """Adds the token counts of one answer."""
    counts = answer.usage_metadata.model_dump(exclude_none=True) if answer.usage_metadata else {}
    for name, count in counts.items():
        for kind, tokens in _by_modality(name, count):
            before = usage.get(kind, 0)
            usage[kind] = before + tokens if min(before, tokens) >= 0 else -1  # no sum may hide an impossible count


def _by_modality(name: str, value: object) -> Iterator[tuple[str, int]]:
    """A count, or the parts of one by modality: ``candidates_image_tokens`` of ``candidates_tokens_details``."""
    if isinstance(value, int):
        yield name, value
    for part in value if isinstance(value, list) else ():
        modality, tokens = part.get("modality"), part.get("token_count")
        if modality and isinstance(tokens, int):
            yield f"{name.removesuffix('tokens_details')}{modality.value.lower()}_tokens", tokens


def _inline(path: Path) -> types.Part:
    _, data, mime = accepted_image(path)
    return types.Part.from_bytes(data=data, mime_type=mime)
