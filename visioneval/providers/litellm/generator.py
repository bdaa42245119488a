"""Images, edits, videos and judgements by LiteLLM, whose process speaks OpenAI's API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from visioneval.providers.base import GenerationRequest
from visioneval.providers.inputs import Upload
from visioneval.providers.litellm.config import LiteLLMJudge, LiteLLMProvider
from visioneval.providers.litellm.process import LiteLLMConnection
from visioneval.providers.openai.chat_judge import ChatJudge
from visioneval.providers.openai.connection import data_url, encoded
from visioneval.providers.openai.generator import OpenAIGenerator
from visioneval.providers.openai.videos import OpenAIVideos

_NO_HOST = "https://litellm.invalid"
"""Stands for the provider's API, whose address only LiteLLM knows: outputs come from other hosts."""


class LiteLLMGenerator(OpenAIGenerator):
    """One output per call; parameters are passed to LiteLLM as the suite wrote them."""

    def __init__(self, config: LiteLLMProvider) -> None:
        """Raises ``UsageError`` without LiteLLM or a variable."""
        connection = LiteLLMConnection(config)
        super().__init__(config, connection, LiteLLMVideos(connection), _NO_HOST)


class LiteLLMVideos(OpenAIVideos):
    """Videos of any provider: parameters keep their types, which a form would not."""

    async def _create(
        self, client: openai.AsyncOpenAI, request: GenerationRequest, frame: Upload | None
    ) -> httpx2.Response:
        body: Mapping[str, Any] = {**request.params, "prompt": request.prompt}
        if frame is not None:
            body = {**body, "input_reference": await asyncio.to_thread(data_url, frame[1], frame[2])}
        return await client.post("/videos", content=encoded(body), cast_to=httpx2.Response)


def open_judge(config: LiteLLMJudge) -> ChatJudge:
    """Creates the judge of an entry. Raises ``UsageError`` without LiteLLM or a variable."""
    return ChatJudge(config, LiteLLMConnection(config))
