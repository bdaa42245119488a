"""Videos of Veo, a long-running operation of Vertex AI, and of Gemini Omni, an interaction; both are polled.

An answer may name a video by address: a file of the Developer API, or an object in a bucket of Google.
"""

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
from google.genai import types
from google.genai.interactions import Interaction

from visioneval.errors import OperationError, ProviderError, ProviderErrorKind, UsageError
from visioneval.media.images import MAX_BYTES
from visioneval.media.urls import fetch, is_denied
from visioneval.providers.base import VIDEO_MS, Generation, GenerationRequest, OutputFile
from visioneval.providers.error_replies import is_quota_spent, read_error
from visioneval.providers.gemini import veo_inputs_problem
from visioneval.providers.gemini.connection import operation_errors, paid_errors, raw_replies
from visioneval.providers.image_replies import UnusableImageError, decoded_media, unusable
from visioneval.providers.inputs import accepted_image
from visioneval.providers.refusals import is_refusal
from visioneval.suite.entries.providers import VideoInputs
from visioneval.suite.remote import GoogleCloud

_NAME = re.compile(
    r"projects/(?P<project>[a-z0-9-]+)/locations/(?P<location>[a-z0-9-]+)"
    r"/publishers/google/models/[A-Za-z0-9._@-]+/operations/[A-Za-z0-9_-]+"
)
_KINDS: Mapping[int, ProviderErrorKind] = {4: "transient", 8: "rate_limit", 10: "transient", 13: "transient",
                                           14: "transient", 16: "auth"}  # fmt: skip
"""By the codes of google.rpc; any other is an invalid request."""
_STATUSES = {7: 403, 8: 429}
"""The HTTP status of the codes with which words can mean a spent quota."""
_MAX_MESSAGE = 500


class VeoVideos:
    """Begins and polls operations."""

    def __init__(self, client: genai.Client, cloud: GoogleCloud | None) -> None:
        self._client = client
        self._cloud = cloud

    async def begin(self, request: GenerationRequest) -> str:
        """Sends the prompt, the first frame, and the last frame or references."""
        inputs = VideoInputs.of(request.files.images)
        if problem := veo_inputs_problem(inputs):
            raise ProviderError(problem, kind="invalid")
        source, config = await asyncio.to_thread(_request, request, inputs)
        with paid_errors() as replies:
            operation = await self._client.aio.models.generate_videos(
                model=str(request.params["model"]), source=source, config=config
            )
        if not operation.name:
            raise unusable("the answer names no operation", replies[-1])
        return operation.name

    async def poll(self, name: str, request: GenerationRequest) -> Generation | None:
        """The video, once the operation has ended. Raises ``OperationError`` if it has none."""
        match = _NAME.fullmatch(name)
        project = self._cloud.project if self._cloud is not None else None
        if match is None or not (match["project"] == project or match["project"].isdecimal()):
            raise OperationError(f"{name!r:.200} is no operation of Veo in this project", kind="invalid")
        with raw_replies() as replies, operation_errors(name):
            operation = await self._client.aio.operations.get(
                types.GenerateVideosOperation.model_validate({"name": name})
            )
        if operation.error:
            raise operation_error(name, operation.error.get("code"), operation.error.get("message"))
        if not operation.done:
            return None
        answer = operation.response or types.GenerateVideosResponse()
        videos = [video.video for video in answer.generated_videos or () if video.video is not None]
        if not videos and (answer.rai_media_filtered_count or answer.rai_media_filtered_reasons):
            reasons = "; ".join(answer.rai_media_filtered_reasons or ()) or "no reason is given"
            raise OperationError(f"the video was filtered: {reasons}"[:_MAX_MESSAGE], kind="refused")
        folder = request.params.get("output_gcs_uri")
        outputs = [
            (video.video_bytes or b"")
            if video.video_bytes or not video.uri
            else await bucket_video(name, video.uri, folder)
            for video in videos[: len(request.samples)]
        ]
        seconds = request.params.get("duration_seconds")
        usage = {VIDEO_MS: 1000 * seconds * len(outputs)} if isinstance(seconds, int) and outputs else None
        reply = None if outputs else replies[-1]
        return Generation(outputs=tuple(outputs), usage=usage, run_params=dict(request.params), reply=reply)


def operation_error(name: str, code: object, message: object) -> OperationError:
    """The error of an operation that has failed, by its code of google.rpc, or a name of its own, and its words."""
    text = " ".join(str(message or "no message").split())[:_MAX_MESSAGE]
    kind = _KINDS.get(code, "invalid") if isinstance(code, int) else "invalid"
    reply = read_error({"error": {"code": code, "message": text}})
    if is_refusal(400 if kind == "invalid" else 500, reply):
        return OperationError(text, kind="refused")
    if is_quota_spent(_STATUSES.get(code, 400) if isinstance(code, int) else 429, reply):
        kind = "quota"
    return OperationError(f"the operation {name} has failed: {text}", kind=kind)


def _request(
    request: GenerationRequest, inputs: VideoInputs
) -> tuple[types.GenerateVideosSource, types.GenerateVideosConfig]:
    options: dict[str, Any] = {name: value for name, value in request.params.items() if name != "model"}
    references = [*((path, "ASSET") for path in inputs.references), *((path, "STYLE") for path in inputs.styles)]
    if references:
        options["reference_images"] = [
            types.VideoGenerationReferenceImage(
                image=_image(path), reference_type=types.VideoGenerationReferenceType(kind)
            )
            for path, kind in references
        ]
    if inputs.last_frame is not None:
        options["last_frame"] = _image(inputs.last_frame)
    first_frame = None if inputs.first_frame is None else _image(inputs.first_frame)
    source = types.GenerateVideosSource(prompt=request.prompt, image=first_frame)
    return source, types.GenerateVideosConfig(number_of_videos=len(request.samples), **options)


def _image(path: Path) -> types.Image:
    _, data, mime = accepted_image(path)
    return types.Image(image_bytes=data, mime_type=mime)


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
        elif video is not None and video.uri and video.uri.startswith("gs://"):
            folder = request.params.get("output_gcs_uri")
            generation = Generation(outputs=(await bucket_video(name, video.uri, folder),))
        elif video is not None and video.uri:
            if request.scratch is None:
                raise ProviderError("a video by address needs a folder for it", kind="invalid")
            generation = await developer_video(self._client, name, video.uri, Path(request.scratch) / "video")
        if generation is None:
            return None
        usage = _usage(interaction)
        seconds = request.params.get("duration_seconds")
        if generation.outputs and isinstance(seconds, int):
            usage[VIDEO_MS] = 1000 * seconds
        return replace(generation, usage=usage or None, run_params=dict(request.params))


def _body(request: GenerationRequest) -> dict[str, Any]:
    params = dict(request.params)
    inputs = VideoInputs.of(request.files.images)
    paths = [path for path in (inputs.first_frame, inputs.last_frame, *inputs.references, *inputs.styles) if path]
    parts = [
        {"type": "image", "data": pybase64.b64encode(data).decode(), "mime_type": mime}
        for _, data, mime in map(accepted_image, paths)
    ]
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
    errors = interaction.errors or ()
    statuses: list[Any] = [
        error for step in interaction.steps or () if (error := getattr(step, "error", None)) is not None
    ]
    texts = [f"{error.code or ''} {error.message or ''}".strip() for error in errors]
    texts += [str(error.message or "") for error in statuses]
    message = "; ".join(filter(None, texts)) or f"its status is {interaction.status}"
    first = next(iter((*statuses, *errors)), None)
    return operation_error(name, first and first.code, message)


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


_FILE = re.compile(r"(^|/)(?P<name>files/[a-z0-9-]+)(:download)?(\?|$)")


async def bucket_video(name: str, uri: str, folder: object) -> bytes:
    """The bytes of an object in ``folder``, of at most ``MAX_BYTES``, with this machine's credentials.

    Raises ``OperationError`` if there is no such object, or if the answer names one elsewhere.
    """
    if not isinstance(folder, str) or not uri.startswith(f"{folder.rstrip('/')}/") or "/../" in uri:
        message = f"the operation {name} names its video by an address that is not below output_gcs_uri"
        raise OperationError(message, kind="invalid")
    try:
        return await asyncio.to_thread(fetch, uri, MAX_BYTES)
    except UsageError as error:
        cause = error.__cause__
        message = f"the video of the operation {name} cannot be read from its bucket: {error}"
        if str(error) == "there is no such file":
            raise OperationError(message, kind="invalid") from None
        is_temporary = isinstance(cause, Exception) and not is_denied(cause)
        raise ProviderError(message, kind="transient" if is_temporary else "invalid", may_be_billed=True) from None


async def developer_video(client: genai.Client, name: str, uri: str, target: Path) -> Generation | None:
    """Downloads a file of the Developer API to ``target``; ``None`` while the service still prepares it.

    The key goes to the service's own host only. Raises ``OperationError`` for another address, and for a file that has
    expired.
    """
    match = _FILE.search(uri)
    if match is None:
        raise OperationError(f"the operation {name} names its video by an address that cannot be read", kind="invalid")
    with operation_errors(name):
        file = await client.aio.files.get(name=match["name"])
        if file.state is types.FileState.PROCESSING:
            return None
        if file.state is types.FileState.FAILED:
            raise OperationError(f"the video of the operation {name} could not be prepared", kind="transient")
        await client.aio.files.download(file=match["name"], destination=target)
    return Generation(outputs=(OutputFile(target),))
