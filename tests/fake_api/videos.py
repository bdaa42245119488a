"""Video models: Veo's operations on Vertex, interactions, and ``/v1/videos``. A job is created, polled and downloaded."""

from __future__ import annotations

import base64
import re
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .gemini_wire import VERTEX
from .http1 import ApiError, HttpRequest, Reply, json_reply, parse_form
from .video_bytes import video_bytes

_INTERACTION: Final = re.compile(r"/v1(beta1?|alpha)?/(projects/[^/]+/locations/[^/]+/)?interactions(/(?P<id>[^/:]+))?")
_FILE: Final = re.compile(r"/v1beta/files/(?P<id>[a-z0-9]+)(?P<download>:download)?")
_JOB: Final = re.compile(r"/v1/videos(/(?P<id>[^/]+)(?P<content>/content)?)?")
_VEO_PARAMETERS: Final = frozenset({
    "aspectRatio", "compressionQuality", "durationSeconds", "enhancePrompt", "fps", "generateAudio", "negativePrompt",
    "personGeneration", "resizeMode", "resolution", "sampleCount", "seed", "storageUri",
})  # fmt: skip
_VEO_INSTANCE: Final = frozenset({"prompt", "image", "lastFrame", "referenceImages"})
_INTERACTION_FIELDS: Final = frozenset({
    "model", "input", "response_format", "generation_config", "system_instruction", "background", "store", "stream",
})  # fmt: skip


@dataclass(slots=True)
class VideoJob:
    """A created video. ``body`` is what was sent: JSON, or the fields of a form."""

    id: str
    kind: str
    model: str
    prompt: str
    body: Mapping[str, Any]
    images: tuple[bytes, ...] = ()
    polls: int = 0
    """How often it was asked for."""

    @property
    def name(self) -> str:
        """What the client calls it."""
        return str(self.body.get("name") or self.id)


Step = Reply | ApiError
"""What one request gets instead of its answer."""


@dataclass(slots=True)
class Videos:
    """The jobs of all three kinds (``veo``, ``omni``, ``videos``), and what goes wrong with them.

    A job runs for ``running`` polls; while ``held`` is set, it runs on. ``ends`` replaces the end of a job: it is merged
    into the operation, the interaction or the job. The steps in ``create``, ``poll`` and ``content`` are used up one by
    one, each by a request of that sort. ``by_address`` makes interactions answer with a file's address.
    """

    running: int = 1
    seconds: float = 1.0
    jobs: dict[str, VideoJob] = field(default_factory=dict)
    ends: Mapping[str, Any] | None = None
    by_prompt: dict[str, bytes] = field(default_factory=dict)
    """A video by prompt, instead of a generated one."""
    create: deque[Step] = field(default_factory=deque)
    poll: deque[Step] = field(default_factory=deque)
    content: deque[Step] = field(default_factory=deque)
    by_address: bool = False
    held: threading.Event = field(default_factory=threading.Event)

    @property
    def created(self) -> list[VideoJob]:
        """All jobs, in order."""
        return list(self.jobs.values())

    @property
    def prompts(self) -> list[str]:
        """The prompts of all jobs, in order: each was paid for."""
        return [job.prompt for job in self.created]

    def endpoint(self, request: HttpRequest) -> str | None:
        """The name of the endpoint in the log; ``None`` for a request that is not about videos."""
        vertex = VERTEX.fullmatch(request.path)
        if vertex and vertex["method"] in ("predictLongRunning", "fetchPredictOperation"):
            return "veo" if vertex["method"] == "predictLongRunning" else "veo.poll"
        if _INTERACTION.fullmatch(request.path):
            return "omni" if request.method == "POST" else "omni.poll"
        if match := _FILE.fullmatch(request.path):
            return "files.download" if match["download"] else "files"
        if match := _JOB.fullmatch(request.path):
            return "videos.content" if match["content"] else "videos.poll" if match["id"] else "videos"
        return None

    def answer(self, request: HttpRequest, endpoint: str, body: Any) -> Reply:
        """Raises ``ApiError``."""
        sort = {"veo": "create", "omni": "create", "videos": "create"}.get(endpoint, "poll")
        steps: deque[Step] = self.content if endpoint in ("videos.content", "files.download") else getattr(self, sort)
        if steps:
            step = steps.popleft()
            if isinstance(step, ApiError):
                raise step
            return step
        return getattr(self, "_" + endpoint.replace(".", "_"))(request, body)  # type: ignore[no-any-return]

    def _bytes_of(self, job: VideoJob) -> bytes:
        if job.prompt in self.by_prompt:
            return self.by_prompt[job.prompt]
        return video_bytes(self.seconds, list(self.jobs).index(job.id) % 16)

    def _add(self, job: VideoJob) -> VideoJob:
        self.jobs[job.id] = job
        return job

    def _job(self, identifier: str) -> VideoJob:
        if identifier not in self.jobs:
            raise ApiError(404, f"Video {identifier!r} not found.", code="NOT_FOUND")
        return self.jobs[identifier]

    def _is_running(self, job: VideoJob) -> bool:
        job.polls += 1
        return self.held.is_set() or job.polls <= self.running

    def _veo(self, request: HttpRequest, body: Any) -> Reply:
        match = VERTEX.fullmatch(request.path)
        assert match is not None
        (instance,) = body["instances"]
        for unknown in (*(instance.keys() - _VEO_INSTANCE), *(body.get("parameters", {}).keys() - _VEO_PARAMETERS)):
            raise ApiError(400, f"Unknown name {unknown!r}: Cannot find field.", code="INVALID_ARGUMENT")
        if "referenceImages" in instance and "image" in instance:
            raise ApiError(400, "Reference images and an image cannot be combined.", code="INVALID_ARGUMENT")
        images = tuple(base64.b64decode(image["bytesBase64Encoded"]) for image in _veo_images(instance))
        identifier = str(uuid.uuid4())
        resource = request.path.split("/", 2)[2].removesuffix(":predictLongRunning")
        name = f"{resource}/operations/{identifier}"
        self._add(VideoJob(identifier, "veo", match["model"], instance["prompt"], {**body, "name": name}, images))
        return json_reply(200, {"name": name})

    def _veo_poll(self, request: HttpRequest, body: Any) -> Reply:
        name = body["operationName"]
        job = self._job(name.rpartition("/")[2])
        if self._is_running(job):
            return json_reply(200, {"name": name})
        if self.ends is not None:
            return json_reply(200, {"name": name, "done": True, **self.ends})
        count = job.body.get("parameters", {}).get("sampleCount", 1)
        data = base64.b64encode(self._bytes_of(job)).decode()
        videos = [{"bytesBase64Encoded": data, "mimeType": "video/mp4"}] * count
        kind = "type.googleapis.com/cloud.ai.large_models.vision.GenerateVideoResponse"
        response = {"@type": kind, "raiMediaFilteredCount": 0, "videos": videos}
        return json_reply(200, {"name": name, "done": True, "response": response})

    def _omni(self, request: HttpRequest, body: Any) -> Reply:
        for unknown in body.keys() - _INTERACTION_FIELDS:
            raise ApiError(400, f"Unknown name {unknown!r}: Cannot find field.", code="INVALID_ARGUMENT")
        if (body.get("response_format") or {}).get("type") != "video":
            raise ApiError(400, "This model only answers with videos.", code="INVALID_ARGUMENT")
        parts = [part for step in body["input"] for part in step.get("content", [step])]
        prompt = "".join(part["text"] for part in parts if part["type"] == "text")
        images = tuple(base64.b64decode(part["data"]) for part in parts if part["type"] == "image")
        job = self._add(VideoJob(f"v1_{uuid.uuid4().hex}", "omni", body["model"], prompt, body, images))
        return self._interaction(job, is_running=bool(body.get("background")))

    def _omni_poll(self, request: HttpRequest, body: Any) -> Reply:
        match = _INTERACTION.fullmatch(request.path)
        assert match is not None
        job = self._job(match["id"])
        return self._interaction(job, is_running=self._is_running(job))

    def _interaction(self, job: VideoJob, *, is_running: bool) -> Reply:
        times = {"created": "2026-11-22T10:00:00Z", "updated": "2026-11-22T10:00:00Z"}
        answer: dict[str, Any] = {"id": job.id, "model": job.model, "object": "interaction", **times}
        if is_running:
            return json_reply(200, {**answer, "status": "in_progress"})
        if self.ends is not None:
            return json_reply(200, {**answer, "status": "completed", **self.ends})
        address = f"https://generativelanguage.googleapis.com/v1beta/files/{job.id[3:15]}:download?alt=media"
        data = {"uri": address} if self.by_address else {"data": base64.b64encode(self._bytes_of(job)).decode()}
        content = {"type": "video", "mime_type": "video/mp4", **data}
        tokens = round(5792 * self.seconds)
        usage = {
            "total_input_tokens": 20,
            "total_output_tokens": tokens,
            "total_tokens": tokens + 20,
            "input_tokens_by_modality": [{"modality": "text", "tokens": 20}],
            "output_tokens_by_modality": [{"modality": "video", "tokens": tokens}],
        }
        steps = [{"type": "model_output", "content": [content]}]
        return json_reply(200, {**answer, "status": "completed", "steps": steps, "usage": usage})

    def _files(self, request: HttpRequest, body: Any) -> Reply:
        job = self._of_file(request)
        return json_reply(200, {"name": f"files/{job.id[3:15]}", "mimeType": "video/mp4", "state": "ACTIVE"})

    def _files_download(self, request: HttpRequest, body: Any) -> Reply:
        return Reply(200, self._bytes_of(self._of_file(request)), content_type="video/mp4")

    def _of_file(self, request: HttpRequest) -> VideoJob:
        match = _FILE.fullmatch(request.path)
        assert match is not None
        job = next((job for job in self.created if job.id[3:15] == match["id"]), None)
        if job is None:
            raise ApiError(404, "Requested entity was not found.", code="NOT_FOUND")
        return job

    def _videos(self, request: HttpRequest, body: Any) -> Reply:
        fields: dict[str, str] = {}
        images = []
        for part in parse_form(request.headers.get("content-type", ""), request.body):
            if part.filename is None:
                fields[part.name] = part.data.decode()
            elif part.name == "input_reference":
                images.append(part.data)
            else:
                raise ApiError(400, f"Unknown file: {part.name}", param=part.name)
        if not fields.get("prompt"):
            raise ApiError(400, "Missing required parameter: 'prompt'.", param="prompt")
        identifier = f"video_{uuid.uuid4().hex}"
        job = self._add(VideoJob(identifier, "videos", fields["model"], fields["prompt"], fields, tuple(images)))
        return json_reply(200, self._resource(job, "queued"))

    def _videos_poll(self, request: HttpRequest, body: Any) -> Reply:
        match = _JOB.fullmatch(request.path)
        assert match is not None
        job = self._job(match["id"])
        if self._is_running(job):
            return json_reply(200, self._resource(job, "in_progress"))
        return json_reply(200, {**self._resource(job, "completed"), **(self.ends or {})})

    def _videos_content(self, request: HttpRequest, body: Any) -> Reply:
        match = _JOB.fullmatch(request.path)
        assert match is not None
        return Reply(200, self._bytes_of(self._job(match["id"])), content_type="video/mp4")

    def _resource(self, job: VideoJob, status: str) -> dict[str, Any]:
        return {
            "id": job.id,
            "object": "video",
            "model": job.model,
            "status": status,
            "progress": 100 if status == "completed" else 10,
            "created_at": 1_790_000_000,
            "prompt": job.prompt,
            "seconds": str(job.body.get("seconds", "4")),
            "size": job.body.get("size", "1280x720"),
        }


def _veo_images(instance: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("image", "lastFrame"):
        if name in instance:
            yield instance[name]
    for reference in instance.get("referenceImages", ()):
        yield reference["image"]
