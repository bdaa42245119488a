"""Generation and editing with OpenAI's Images API, or with a compatible server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import httpx2
import openai

from visioneval.providers.base import Download, Generation, GenerationRequest
from visioneval.providers.error_replies import read_error
from visioneval.providers.image_replies import is_image, reading
from visioneval.providers.inputs import Upload, uploads
from visioneval.providers.masks import mask_use
from visioneval.providers.openai.connection import (
    BASE_URL,
    Connection,
    Server,
    data_url,
    encoded,
    flat_usage,
    paid_answer,
    provider_errors,
)
from visioneval.providers.openai.videos import OpenAIVideos
from visioneval.providers.output_urls import AllowedHosts, read_output, read_outputs
from visioneval.providers.refusals import moderated, moderated_images
from visioneval.suite.remote import MaskMode


class ImageOptions(Server, Protocol):
    """What images are asked of, and how."""

    @property
    def allowed_hosts(self) -> tuple[str, ...]: ...

    @property
    def mask_mode(self) -> MaskMode: ...

    @property
    def edit_body(self) -> Literal["form", "json"]: ...


class OpenAIGenerator:
    """One client per model entry; parameters are passed through as the suite wrote them."""

    def __init__(
        self,
        config: ImageOptions,
        connection: Connection | None = None,
        videos: OpenAIVideos | None = None,
        own_url: str = BASE_URL,
    ) -> None:
        """Raises ``UsageError`` without a usable key. ``own_url`` is the server of an entry that names none."""
        self._config = config
        self._connection = connection or Connection(config)
        self._videos = videos or OpenAIVideos(self._connection)
        self._allowed = AllowedHosts(config.base_url or own_url, config.allowed_hosts)

    async def begin(self, request: GenerationRequest) -> str | Generation:
        """Begins to generate a video."""
        return await self._videos.begin(request)

    async def poll(self, name: str, request: GenerationRequest) -> Generation | None:
        """The generated video, once its job has ended."""
        return await self._videos.poll(name, request)

    async def download(self, url: str) -> bytes | Download | str:
        """Reads an image that an earlier answer named by URL."""
        return await read_output({"url": url}, self._allowed)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Generates ``n`` images with one call."""
        body = {**request.params, "prompt": request.prompt}
        answer = await self._connection.send("/images/generations", encoded(body))
        return await self._generation(answer, request, request.params)

    async def edit(self, request: GenerationRequest) -> Generation:
        """Edits the first image; the others are references, in order."""
        use = mask_use(self._config.mask_mode, request.files)
        images, mask = await asyncio.to_thread(uploads, request, use)
        prompt = use.worded(request.prompt, len(images))
        masked = {"mask_mode": use.mode} if "editable" in request.files.masks else {}
        sent = {**request.params, **masked}
        if self._config.edit_body == "json":
            body = await asyncio.to_thread(_json_edit, request.params, prompt, images, mask)
            return await self._generation(await self._connection.send("/images/edits", body), request, sent)
        client = await self._connection.client()
        with provider_errors(client):
            raw = await client.images.with_raw_response.edit(
                image=images,
                prompt=prompt,
                mask=mask if mask is not None else openai.omit,
                extra_body={**request.params, "prompt": prompt},
            )
        return await self._generation(raw.http_response, request, sent)

    async def _generation(
        self, response: httpx2.Response, request: GenerationRequest, sent: Mapping[str, Any]
    ) -> Generation:
        reply = response.content
        if is_image(reply, response.headers.get("content-type", "")):
            return Generation(outputs=(reply,), run_params=sent)
        with reading(reply):
            data, is_cut_off = paid_answer(response)
            fields = data if isinstance(data, dict) else {"data": data}
            usage = None if is_cut_off else flat_usage(fields.get("usage")) or None
            if why := moderated(fields) or moderated_images(fields.get("data")):
                return Generation(refused=why, usage=usage, run_params=sent)
            outputs, problem = await read_outputs(
                fields.get("data"), self._allowed, len(request.samples), is_cut_off=is_cut_off
            )
            if fields.get("error") and len(outputs) < len(request.samples):
                words = read_error(fields).message
                problem = "; ".join(filter(None, (problem, f"the answer has an error: {words}")))
        return Generation(outputs, usage=usage, run_params=sent, unusable=problem, reply=reply)


def _json_edit(params: Mapping[str, Any], prompt: str, images: list[Upload], mask: Upload | None) -> bytes:
    """The body of an edit in xAI's form: ``image`` for one image, ``images`` for several."""
    parts = [_image(image) for image in images]
    body = {**params, "prompt": prompt, **({"images": parts} if len(parts) > 1 else {"image": parts[0]})}
    return encoded({**body, "mask": _image(mask)} if mask is not None else body)


def _image(upload: Upload) -> dict[str, Any]:
    _, data, mime = upload
    return {"type": "image_url", "url": data_url(data, mime)}
