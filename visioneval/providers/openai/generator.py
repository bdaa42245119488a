"""Generation and editing with OpenAI's Images API, or with a compatible server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import openai

from visioneval.providers.base import Generation, GenerationRequest
from visioneval.providers.input_images import Upload
from visioneval.providers.masks import mask_use
from visioneval.providers.openai.client import BASE_URL
from visioneval.providers.openai.config import OpenAIProvider
from visioneval.providers.openai.connection import (
    Connection,
    data_url,
    encoded,
    flat_usage,
    parse_errors,
    provider_errors,
    read_json,
)
from visioneval.providers.openai.videos import OpenAIVideos
from visioneval.providers.output_urls import AllowedHosts, read_outputs
from visioneval.providers.refusals import moderated, moderated_images
from visioneval.providers.uploads import uploads


class OpenAIGenerator:
    """One client per model entry; parameters are passed through as the suite wrote them."""

    def __init__(self, config: OpenAIProvider) -> None:
        self._config = config
        self._connection = Connection(config)
        self._allowed = AllowedHosts(config.base_url or BASE_URL, config.output_hosts)
        self._videos = OpenAIVideos(self._connection)

    async def begin(self, request: GenerationRequest) -> str | Generation:
        """Begins to generate a video."""
        return await self._videos.begin(request)

    async def poll(self, name: str, request: GenerationRequest) -> Generation | None:
        """The generated video, once its job has ended."""
        return await self._videos.poll(name, request)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Generates ``n`` images with one call."""
        body = {**request.params, "prompt": request.prompt}
        return await self._generation(await self._connection.post("/images/generations", encoded(body)), request.params)

    async def edit(self, request: GenerationRequest) -> Generation:
        """Edits the first image; the others are references, in order."""
        use = mask_use(self._config.mask_mode, request.files)
        images, mask = await asyncio.to_thread(uploads, request, use)
        prompt = use.worded(request.prompt, len(images))
        masked = {"mask_mode": use.mode} if "editable" in request.files.masks else {}
        sent = {**request.params, **masked}
        if self._config.edit_body == "json":
            body = await asyncio.to_thread(_json_edit, request.params, prompt, images, mask)
            return await self._generation(await self._connection.post("/images/edits", body), sent)
        client = await self._connection.client()
        with provider_errors(client):
            raw = await client.images.with_raw_response.edit(
                image=images,
                prompt=prompt,
                mask=mask if mask is not None else openai.omit,
                extra_body={**request.params, "prompt": prompt},
            )
            answer = read_json(raw.http_response)
        return await self._generation(answer, sent)

    async def _generation(self, answer: Mapping[str, Any], sent: Mapping[str, Any]) -> Generation:
        with parse_errors():
            images = [dict(image) for image in answer.get("data") or ()]
        usage = flat_usage(answer.get("usage")) or None
        if why := moderated(answer) or moderated_images(images):
            return Generation(refused=why, usage=usage, run_params=sent)
        outputs = await read_outputs([{} if moderated(image) else image for image in images], self._allowed)
        why = next(filter(None, map(moderated, images)), None)
        return Generation(outputs=outputs, usage=usage, run_params=sent, unusable=why)


def _json_edit(params: Mapping[str, Any], prompt: str, images: list[Upload], mask: Upload | None) -> bytes:
    """The body of an edit in xAI's form: ``image`` for one image, ``images`` for several."""
    parts = [_image(image) for image in images]
    body = {**params, "prompt": prompt, **({"images": parts} if len(parts) > 1 else {"image": parts[0]})}
    return encoded({**body, "mask": _image(mask)} if mask is not None else body)


def _image(upload: Upload) -> dict[str, Any]:
    _, data, mime = upload
    return {"type": "image_url", "url": data_url(data, mime)}
