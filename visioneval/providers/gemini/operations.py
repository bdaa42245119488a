"""Videos of Veo on Vertex AI: a long-running operation, which is polled."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google import genai
from google.genai import types

from visioneval.errors import OperationError, ProviderError, ProviderErrorKind
from visioneval.providers.base import VIDEO_MS, Generation, GenerationRequest
from visioneval.providers.error_replies import read_error
from visioneval.providers.gemini.connection import operation_errors, paid_errors, raw_replies
from visioneval.providers.gemini.video_files import bucket_video
from visioneval.providers.gemini.video_params import veo_inputs_problem
from visioneval.providers.image_replies import unusable
from visioneval.providers.input_images import accepted_image
from visioneval.providers.quota import is_quota_spent
from visioneval.providers.refusals import is_refusal
from visioneval.providers.video_inputs import VideoInputs
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
        outputs = [await _bytes_of(name, video, folder) for video in videos[: len(request.samples)]]
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


async def _bytes_of(name: str, video: types.Video, folder: object) -> bytes:
    """The bytes in an answer, or those behind the address in a bucket that it names."""
    if video.video_bytes or not video.uri:
        return video.video_bytes or b""
    return await bucket_video(name, video.uri, folder)
