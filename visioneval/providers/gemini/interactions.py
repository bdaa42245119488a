"""Videos of Gemini Omni: interactions, which run in the background and are polled, or answer at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pybase64
from google import genai
from google.genai.interactions import Interaction

from visioneval.errors import OperationError, ProviderError
from visioneval.providers.base import VIDEO_MS, Generation, GenerationRequest
from visioneval.providers.gemini.connection import operation_errors, paid_errors, raw_replies
from visioneval.providers.gemini.operations import operation_error
from visioneval.providers.gemini.video_files import bucket_video, developer_video
from visioneval.providers.image_replies import UnusableImageError, decoded_media
from visioneval.providers.input_images import accepted_image
from visioneval.providers.video_inputs import VideoInputs

_RUNNING = ("in_progress", "queued")
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,500}")


class OmniVideos:
    """Creates and polls interactions. One that runs in the background is an operation named by its id."""

    def __init__(self, client: genai.Client) -> None:
        self._client = client

    async def begin(self, request: GenerationRequest) -> str | Generation:
        """Sends the images and the prompt."""
        body = await asyncio.to_thread(_body, request)
        with paid_errors() as replies, _interaction_errors("that is to begin"):
            interaction: Interaction = await self._client.aio.interactions.create(**body)
        if interaction.status in _RUNNING and interaction.id:
            return interaction.id
        generation = await self._generation(interaction, request, replies[-1])
        return generation if generation is not None else str(interaction.id)

    async def poll(self, name: str, request: GenerationRequest) -> Generation | None:
        """The video, once the interaction has ended. Raises ``OperationError`` if it has none."""
        if not _ID.fullmatch(name):
            raise OperationError(f"{name!r:.200} is no interaction", kind="invalid")
        with raw_replies() as replies, _interaction_errors(name):
            interaction = await self._client.aio.interactions.get(name)
        if interaction.status in _RUNNING:
            return None
        return await self._generation(interaction, request, replies[-1])

    async def _generation(
        self, interaction: Interaction, request: GenerationRequest, reply: bytes
    ) -> Generation | None:
        """What an interaction has generated; ``None`` while its file is being prepared."""
        name = str(interaction.id)
        if interaction.status != "completed":
            raise _failure(name, interaction)
        video = interaction.output_video
        generation: Generation | None = Generation(reply=reply)
        if video is not None and video.data:
            try:
                generation = Generation(outputs=(decoded_media(video.data),))
            except UnusableImageError as error:
                generation = Generation(unusable=f"the video: {error}", reply=reply)
        elif video is not None and video.uri:
            generation = await self._download(name, video.uri, request)
        if generation is None:
            return None
        usage = _usage(interaction)
        seconds = request.params.get("duration_seconds")
        if generation.outputs and isinstance(seconds, int):
            usage[VIDEO_MS] = 1000 * seconds
        return replace(generation, usage=usage or None, run_params=dict(request.params))

    async def _download(self, name: str, uri: str, request: GenerationRequest) -> Generation | None:
        if uri.startswith("gs://"):
            return Generation(outputs=(await bucket_video(name, uri, request.params.get("output_gcs_uri")),))
        if request.scratch is None:
            raise ProviderError("a video by address needs a folder for it", kind="invalid")
        return await developer_video(self._client, name, uri, Path(request.scratch) / "video")


def _body(request: GenerationRequest) -> dict[str, Any]:
    params = dict(request.params)
    inputs = VideoInputs.of(request.files.images)
    paths = [path for path in (inputs.first_frame, inputs.last_frame, *inputs.references, *inputs.styles) if path]
    parts: list[dict[str, Any]] = [_image(path) for path in paths]
    task = "image_to_video" if inputs.first_frame else "reference_to_video" if paths else None
    duration = params.get("duration_seconds")
    video_format = {
        "type": "video",
        "aspect_ratio": params.get("aspect_ratio"),
        "resolution": params.get("resolution"),
        "duration": None if duration is None else f"{duration}s",
        "delivery": params.get("delivery"),
        "gcs_uri": params.get("output_gcs_uri"),
    }
    config = {
        "seed": params.get("seed"),
        "max_output_tokens": params.get("max_output_tokens"),
        "video_config": None if task is None else {"task": task},
    }
    background = params.get("background", True)
    body = {
        "model": params["model"],
        "input": [*parts, {"type": "text", "text": request.prompt}],
        "response_format": _stated(video_format),
        "generation_config": _stated(config) or None,
        "system_instruction": params.get("system_instruction"),
        "background": background,
        "store": background,
    }
    return _stated(body)


def _stated(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _image(path: Path) -> dict[str, Any]:
    _, data, mime = accepted_image(path)
    return {"type": "image", "data": pybase64.b64encode(data).decode(), "mime_type": mime}


@contextmanager
def _interaction_errors(name: str) -> Iterator[None]:
    """Like ``operation_errors``. The SDK wraps what its transport raises in errors that are not public."""
    with operation_errors(name):
        try:
            yield
        except Exception as error:
            cause = error.__cause__
            if isinstance(cause, (ProviderError, httpx2.HTTPError, ValueError)):
                raise cause from None
            raise


def _failure(name: str, interaction: Interaction) -> OperationError:
    """Why an interaction has not completed."""
    texts = [f"{error.code or ''} {error.message or ''}".strip() for error in interaction.errors or ()]
    steps = (getattr(step, "error", None) for step in interaction.steps or ())
    statuses = [error for error in steps if error is not None]
    texts += [str(error.message or "") for error in statuses]
    message = "; ".join(filter(None, texts)) or f"its status is {interaction.status}"
    codes = [status.code for status in statuses] or [error.code for error in interaction.errors or ()]
    return operation_error(name, next(iter(codes), None), message)


def _usage(interaction: Interaction) -> dict[str, int]:
    """Token counts by kind, such as ``output_video_tokens``."""
    usage = interaction.usage
    if usage is None:
        return {}
    counts: dict[str, int | None] = {
        "input_tokens": usage.total_input_tokens,
        "output_tokens": usage.total_output_tokens,
        "thoughts_token_count": usage.total_thought_tokens,
    }
    for direction, parts in (("input", usage.input_tokens_by_modality), ("output", usage.output_tokens_by_modality)):
        for part in parts or ():
            counts[f"{direction}_{str(part.modality).lower()}_tokens"] = part.tokens
    return {name: count for name, count in counts.items() if count}
