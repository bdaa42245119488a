"""Generation and editing with OpenAI's Images API, and videos with ``/v1/videos``, or with a compatible server."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import httpx2
import openai

from visioneval.errors import OperationError, ProviderError, StorageError
from visioneval.media.images import MAX_BYTES
from visioneval.providers.base import MOST_VIDEO_MS, VIDEO_MS, Download, Generation, GenerationRequest, OutputFile
from visioneval.providers.error_replies import read_error
from visioneval.providers.image_replies import AllowedHosts, is_image, read_output, read_outputs, reading, unusable
from visioneval.providers.inputs import Upload, accepted_image, mask_use, uploads
from visioneval.providers.openai import inputs_problem
from visioneval.providers.openai.connection import (
    BASE_URL,
    Connection,
    Server,
    data_url,
    encoded,
    flat_usage,
    kind_of_error,
    paid_answer,
    provider_errors,
    read_json,
    status_of_error,
)
from visioneval.providers.refusals import moderated, moderated_images
from visioneval.suite.entries.providers import VideoInputs
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
            count = len(request.samples)
            outputs, problem = await read_outputs(fields.get("data"), self._allowed, count, is_cut_off=is_cut_off)
            if fields.get("error") and len(outputs) < count:
                words = read_error(fields).message
                problem = "; ".join(filter(None, (problem, f"the answer has an error: {words}")))
        return Generation(outputs, usage=usage, run_params=sent, unusable=problem, reply=reply)


def _json_edit(params: Mapping[str, Any], prompt: str, images: list[Upload], mask: Upload | None) -> bytes:
    """The body of an edit in xAI's form: ``image`` for one image, ``images`` for several."""
    files = [*images, *((mask,) if mask is not None else ())]
    parts = [{"type": "image_url", "url": data_url(data, mime)} for _, data, mime in files]
    masks = {"mask": parts.pop()} if mask is not None else {}
    return encoded(
        {**params, "prompt": prompt, **({"images": parts} if len(parts) > 1 else {"image": parts[0]}), **masks}
    )


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
        texts = {name: str(value) for name, value in request.params.items() if name != "extra"}
        for name, value in (request.params.get("extra") or {}).items():  # what only one server knows
            texts[str(name)] = str(value).lower() if isinstance(value, bool) else str(value)
        return await client.post(
            "/videos",
            body={**texts, "prompt": request.prompt},
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
            error = read_error({"error": job.get("error")})
            text = (error.message if job.get("error") else "no reason is given")[:_MAX_MESSAGE]
            kind = kind_of_error(status_of_error(error, 400), error)
            message = text if kind == "refused" else f"the video {name} ended as {status!r:.40}: {text}"
            raise OperationError(message, kind=kind)
        if why := moderated(job) or moderated(job.get("video")):
            raise OperationError(why, kind="refused")
        path = Path(request.scratch or ".") / "video"
        with _job_errors(client, name):
            await _download(client, name, path)
        return Generation(outputs=(OutputFile(path),), usage=_usage(job), run_params=dict(request.params))


def _is_id(name: str) -> bool:
    """Whether a name is a part of a URL's path."""
    return _ID.fullmatch(name) is not None and set(name) != {"."}


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


async def _download(client: openai.AsyncOpenAI, name: str, path: Path) -> None:
    """Streams the video to a file of at most ``MAX_BYTES``."""
    with warnings.catch_warnings():  # of OpenAI's own service, which has ended
        warnings.simplefilter("ignore", DeprecationWarning)
        download = client.videos.with_streaming_response.download_content(name)
    async with download as response:
        kind = response.headers.get("content-type", "")
        if kind.startswith(_WEB_TYPES):
            message = f"the server sends {kind.split(';')[0]!r:.60} instead of the video {name}"
            raise ProviderError(message, kind="invalid", may_be_billed=True)
        size = 0
        with path.open("wb") as file:
            async for data in response.iter_bytes(1 << 20):
                size += len(data)
                if size > MAX_BYTES:
                    message = f"the video {name} is over the limit of {MAX_BYTES:,} bytes"
                    raise ProviderError(message, kind="invalid", may_be_billed=True)
                try:
                    file.write(data)
                except OSError as error:
                    raise StorageError(f"{path}: cannot write a video: {error.strerror or error}") from error


def _usage(job: Mapping[str, Any]) -> dict[str, int] | None:
    seconds = str(job.get("seconds") or "")
    try:
        milliseconds = 1000 * float(seconds)
    except ValueError:
        return None
    return {VIDEO_MS: round(milliseconds)} if 0 < milliseconds <= MOST_VIDEO_MS else None
