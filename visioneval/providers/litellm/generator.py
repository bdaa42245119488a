"""Generation and editing with LiteLLM's image functions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from pybase64 import b64encode_as_string

from visioneval.providers.base import Download, Generation, GenerationRequest
from visioneval.providers.litellm.config import LiteLLMProvider
from visioneval.providers.litellm.process import LiteLLMConnection
from visioneval.providers.masks import mask_use
from visioneval.providers.openai.connection import flat_usage
from visioneval.providers.output_urls import AllowedHosts, read_output, read_outputs
from visioneval.providers.uploads import uploads

_NO_HOST = "https://litellm.invalid"
"""Stands for the provider's API, whose address only LiteLLM knows: outputs come from other hosts."""


class LiteLLMGenerator:
    """One image per call; parameters are passed to LiteLLM as the suite wrote them."""

    def __init__(self, config: LiteLLMProvider) -> None:
        self._config = config
        self._connection = LiteLLMConnection(config)
        self._allowed = AllowedHosts(config.base_url or _NO_HOST, config.allowed_hosts)

    async def generate(self, request: GenerationRequest) -> Generation:
        """Generates from the prompt alone."""
        answer = await self._connection.call("generate", prompt=request.prompt, params=dict(request.params))
        return await self._generation(answer, request, request.params)

    async def edit(self, request: GenerationRequest) -> Generation:
        """Edits the first image; the others are references, in order."""
        use = mask_use(self._config.mask_mode, request.files)
        images, mask = await asyncio.to_thread(uploads, request, use)
        answer = await self._connection.call(
            "edit",
            prompt=use.worded(request.prompt, len(images)),
            params=dict(request.params),
            images=[b64encode_as_string(data) for _, data, _ in images],
            mask=b64encode_as_string(mask[1]) if mask is not None else None,
        )
        masked = {"mask_mode": use.mode} if "editable" in request.files.masks else {}
        return await self._generation(answer, request, {**request.params, **masked})

    async def download(self, url: str) -> bytes | Download | str:
        """Reads an image that an earlier answer named by URL."""
        return await read_output({"url": url}, self._allowed)

    async def _generation(
        self, answer: Mapping[str, Any], request: GenerationRequest, sent: Mapping[str, Any]
    ) -> Generation:
        outputs, problem = await read_outputs(answer["data"], self._allowed, len(request.samples))
        usage = {name: count for name, count in flat_usage(answer["usage"]).items() if count}  # zeros are LiteLLM's
        reply = orjson.dumps(answer)
        return Generation(outputs, usage=usage or None, run_params=sent, unusable=problem, reply=reply)
