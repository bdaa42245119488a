"""Videos of servers that speak OpenAI's ``/v1/videos``: create a job, poll it, download its content."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import httpx2
import openai

from visioneval.errors import OperationError, ProviderError, StorageError
from visioneval.media.images import MAX_BYTES
from visioneval.providers.base import MOST_VIDEO_MS, VIDEO_MS, Generation, GenerationRequest, OutputFile
from visioneval.providers.error_replies import read_error
from visioneval.providers.image_replies import unusable
from visioneval.providers.inputs import Upload, accepted_image
from visioneval.providers.openai.config import inputs_problem
from visioneval.providers.openai.connection import (
    Connection,
    kind_of_error,
    paid_answer,
    provider_errors,
    read_json,
    status_of_error,
)
from visioneval.providers.refusals import moderated
from visioneval.providers.video_inputs import VideoInputs

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,1000}")
_RUNNING = ("queued", "in_progress", "pending", "processing", "running")
_WEB_TYPES = ("text/", "application/json", "application/xhtml")
_MAX_MESSAGE = 500


class OpenAIVideos:
    """Begins and polls the jobs of a server."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def begin(self, request: GenerationRequest) -> str | Generation:
        """Sends the prompt and the first frame as a form."""
        inputs = VideoInputs.of(request.files.images)
        if problem := inputs_problem(inputs):
            raise ProviderError(problem, kind="invalid")
        frame = None if inputs.first_frame is None else await asyncio.to_thread(accepted_image, inputs.first_frame)
        client = await self._connection.client()
        with provider_errors(client):
            answer = await self._create(client, request, frame)
        job = paid_answer(answer).data
        name = job.get("id") if isinstance(job, dict) else None
        if not name or not isinstance(name, str):
            raise unusable("the answer names no video", answer.content)
        if not _is_id(name):
            raise unusable(f"{name!r:.200} is no video", answer.content)
        return name

    async def _create(
        self, client: openai.AsyncOpenAI, request: GenerationRequest, frame: Upload | None
    ) -> httpx2.Response:
        params = dict(request.params)
        body = {**{name: str(value) for name, value in params.items() if name != "extra"}, **_texts(params)}
        return await client.post(
            "/videos",
            body={**body, "prompt": request.prompt},
            files={} if frame is None else {"input_reference": frame},
            options={"headers": {"Content-Type": "multipart/form-data"}},
            cast_to=httpx2.Response,
        )

    async def poll(self, name: str, request: GenerationRequest) -> Generation | None:
        """The video, once its job has ended. Raises ``OperationError`` if it has none."""
        if not _is_id(name):
            raise OperationError(f"{name!r:.200} is no video", kind="invalid")
        client = await self._connection.client()
        with _job_errors(client, name):
            job = read_json(await client.get(f"/videos/{name}", cast_to=httpx2.Response))
        status = job.get("status")
        if status in _RUNNING:
            return None
        if status != "completed":
            raise _failure(name, job)
        if why := moderated(job) or moderated(job.get("video")):
            raise OperationError(why, kind="refused")
        path = Path(request.scratch or ".") / "video"
        with _job_errors(client, name):
            await _download(client, name, path)
        return Generation(outputs=(OutputFile(path),), usage=_usage(job), run_params=dict(request.params))


def _is_id(name: str) -> bool:
    """Whether a name is a part of a URL's path."""
    return _ID.fullmatch(name) is not None and set(name) != {"."}


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters that only one server knows, as fields of the form."""
    return {
        str(name): str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (params.get("extra") or {}).items()
    }


@contextmanager
def _job_errors(client: openai.AsyncOpenAI, name: str) -> Iterator[None]:
    """Like ``provider_errors``, for a job that the server may have forgotten."""
    with provider_errors(client):
        try:
            yield
        except openai.APIStatusError as error:
            if error.status_code not in (404, 410):
                raise
            reason = read_error(error.response.text).message[:200]
            raise OperationError(
                f"the video {name} has expired or is unknown: {error.status_code}: {reason}", kind="invalid"
            ) from None


def _failure(name: str, job: Mapping[str, Any]) -> OperationError:
    error = read_error({"error": job.get("error")})
    text = (error.message if job.get("error") else "no reason is given")[:_MAX_MESSAGE]
    kind = kind_of_error(status_of_error(error, 400), error)
    if kind == "refused":
        return OperationError(text, kind="refused")
    return OperationError(f"the video {name} ended as {job.get('status')!r:.40}: {text}", kind=kind)


async def _download(client: openai.AsyncOpenAI, name: str, path: Path) -> None:
    """Streams the video to a file of at most ``MAX_BYTES``."""
    with warnings.catch_warnings():  # of OpenAI's own service, which has ended
        warnings.simplefilter("ignore", DeprecationWarning)
        download = client.videos.with_streaming_response.download_content(name)
    async with download as response:
        kind = response.headers.get("content-type", "")
        if kind.startswith(_WEB_TYPES):
            raise ProviderError(
                f"the server sends {kind.split(';')[0]!r:.60} instead of the video {name}",
                kind="invalid",
                may_be_billed=True,
            )
        size = 0
        with path.open("wb") as file:
            async for data in response.iter_bytes(1 << 20):
                size += len(data)
                if size > MAX_BYTES:
                    raise ProviderError(
                        f"the video {name} is over the limit of {MAX_BYTES:,} bytes", kind="invalid", may_be_billed=True
                    )
                _write(file, data, path)


def _write(file: BinaryIO, data: bytes, path: Path) -> None:
    try:
        file.write(data)
    except OSError as error:
        raise StorageError(f"{path}: cannot write a video: {error.strerror or error}") from error


def _usage(job: Mapping[str, Any]) -> dict[str, int] | None:
    seconds = str(job.get("seconds") or "")
    try:
        return (
            {VIDEO_MS: round(1000 * float(seconds))} if seconds and 0 < 1000 * float(seconds) <= MOST_VIDEO_MS else None
        )
    except ValueError:
        return None
