"""What a generation call returns: its checked images and videos, operations that end later, and later downloads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from visioneval.errors import ImageError, OperationError, ProviderError
from visioneval.media.video import artifact, seconds_of, video_file
from visioneval.providers.base import (
    VIDEO_MS,
    Address,
    Download,
    Downloader,
    Generation,
    GenerationRequest,
    OperationGenerator,
    OutputFile,
)
from visioneval.records.outputs import MAX_NAME, DownloadFiles, OperationFile, url_digest
from visioneval.records.untrusted import MOST_PIXELS
from visioneval.running.calls import throttle
from visioneval.running.calls.attempts import BrokenCodeError, call_user_code, check_generation
from visioneval.running.calls.cache import Content, content_digest
from visioneval.running.sanitize import Sanitizer
from visioneval.suite.entries.providers import TIMEOUT_S
from visioneval.threads import finish_in_thread
from visioneval.types import TaskType


@dataclass(frozen=True, slots=True)
class CheckedMedia:
    """One image or video: its bytes, digest, MIME type and size in pixels; or ``fault``, the reason why it is unusable.

    What is no fault of the file, such as an extra that is missing here, has its bytes too: it is checked again later.

    Media that stays at a remote address (``uri``) has no bytes here.
    """

    data: bytes | None = None
    file: Path | None = None
    """The cached file, or a file that is still to be cached, instead of ``data``."""
    sha256: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    uri: str | None = None
    fault: str | None = None
    fault_kind: str = "bad_image"
    """The kind of error of a cell that gets it: ``bad_image`` if the file itself is at fault."""
    download: str | None = None
    """The SHA-256 of the URL that it is still to be read from."""
    decoded: bool = False
    """Whether the bytes were fully decoded; false for cache entries of older versions."""

    @property
    def is_checked(self) -> bool:
        """Whether the bytes were decoded, and its size can be one: a cache may be damaged, or a stranger's."""
        sizes = (self.width, self.height)
        return self.decoded and all(type(size) is int and 0 < size <= MOST_PIXELS for size in sizes)

    @property
    def is_bad(self) -> bool:
        """Whether the file itself is at fault, so that no other machine can use it."""
        return self.fault is not None and self.fault_kind == "bad_image"

    @property
    def content(self) -> bytes | Path | None:
        """Its bytes or its file; ``None`` if it is bad or remote."""
        return self.data if self.data is not None or self.file is None else Path(self.file)

    @property
    def cached_fields(self) -> dict[str, Any]:
        """What the cache stores beside the file."""
        return {name: getattr(self, name) for name in _CACHED_FIELDS}

    @classmethod
    def from_cache(cls, stored: Mapping[str, Any]) -> CheckedMedia:
        """What ``cached_fields`` stored. Ignores other keys, so that caches of older versions remain readable."""
        return cls(**{name: stored[name] for name in _CACHED_FIELDS if name in stored})


_LONGEST_PROBLEM = 1000
_CACHED_FIELDS = tuple(item.name for item in fields(CheckedMedia) if item.name not in ("data", "file"))


def check_media(data: object, task: TaskType) -> CheckedMedia:
    """Decodes an image fully, so that a damaged one is detected before any judge sees it."""
    if isinstance(data, Address):
        return CheckedMedia(mime=data.mime, uri=data.uri)
    if isinstance(data, Download):
        return CheckedMedia(fault=data.problem, fault_kind="pending", download=url_digest(data.url))
    content = _content(data)
    if content is None:
        return CheckedMedia(fault=f"the provider must return an image as bytes, not {type(data).__name__}")
    held: dict[str, Any] = {"data": content} if isinstance(content, bytes) else {"file": content}
    try:
        image = artifact(content, task) if isinstance(content, bytes) else video_file(content)
    except ImageError as error:
        fault = CheckedMedia(fault=str(error), fault_kind=error.kind)
        return fault if fault.is_bad else replace(fault, **held, sha256=content_digest(content))
    except OSError as error:
        if isinstance(content, bytes):
            raise
        return CheckedMedia(fault=f"the downloaded file cannot be read: {error.strerror}")
    facts = {name: getattr(image, name) for name in ("sha256", "mime", "width", "height")}
    return CheckedMedia(**held, **facts, decoded=True)


@dataclass(frozen=True, slots=True)
class CheckedOutputs:
    """The outputs of a call, in order and at most as many as asked for; and what of its answer is not used.

    They are usable, or would be on another machine.
    """

    media: tuple[CheckedMedia, ...] = ()
    problem: str | None = None
    reply: bytes | Path | None = None
    """The raw answer, or else the first output that is not used."""


def check_outputs(generation: Generation, task: TaskType, count: int) -> CheckedOutputs:
    """Checks the outputs of a call until there are ``count`` whose files are not at fault."""
    media: list[CheckedMedia] = []
    problems = [generation.unusable] if generation.unusable is not None else []
    unused: list[Content | None] = []
    total = len(generation.outputs)
    for number, output in enumerate(generation.outputs, 1):
        if len(media) == count:
            problems.append(f"images requested: {count}, received: {total}")
            unused.append(_content(output))
            break
        checked = check_media(output, task)
        if checked.is_bad:
            problems.append(f"image {number}: {checked.fault}" if total > 1 else str(checked.fault))
            unused.append(_content(output))
        else:
            media.append(checked)
    if len(media) < count and not problems and generation.refused is None:
        problems.append(f"images requested: {count}, received: {len(media)}")
    if not problems and not any(item.download for item in media):
        return CheckedOutputs(tuple(media))
    return CheckedOutputs(
        tuple(media),
        "; ".join(problems)[:_LONGEST_PROBLEM] or None,
        next(iter(unused), None) if generation.reply is None else generation.reply,
    )


def _content(output: object) -> Content | None:
    return output.path if isinstance(output, OutputFile) else output if isinstance(output, bytes) else None


@dataclass(frozen=True, slots=True)
class Downloads:
    """The downloads of a case on a model run."""

    provider: Any
    files: DownloadFiles
    task: TaskType
    sanitizer: Sanitizer

    async def write(self, generation: Generation) -> None:
        """Writes down what could not be read. Not a URL with a key: no file has one."""
        for output in generation.outputs:
            if isinstance(output, Download) and not self.sanitizer.hides(output.url):
                await finish_in_thread(self.files.write, output.url)

    async def read(self, outputs: Sequence[CheckedMedia]) -> tuple[CheckedMedia, ...]:
        """The outputs after another attempt to read those that could not be read."""
        return tuple(await asyncio.gather(*map(self._read, outputs)))

    async def _read(self, output: CheckedMedia) -> CheckedMedia:
        """An output that can be read, or never can, is no download any more."""
        if output.download is None or not isinstance(self.provider, Downloader):
            return output
        url = await asyncio.to_thread(self.files.read, output.download)
        if url is None:
            fault = f"{output.fault}; its URL is only in the run that paid for it: resume that one"
            return replace(output, fault=fault, fault_kind="bad_image")
        data = await self.provider.download(url)
        if isinstance(data, str):
            return CheckedMedia(fault=data)
        return await asyncio.to_thread(check_media, data, self.task)


FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
WAIT_GROWTH = 1.5
"""Waits between polls: each is longer than the one before, up to the longest."""
MAX_FAILURES = 8
"""Polls in a row without an answer after which an operation is left for the resumed run."""
_RETRYABLE = ("rate_limit", "transient")


@dataclass(frozen=True, slots=True)
class OperationCall:
    """One call of a provider that works by operations.

    ``limit_s`` is the longest time for which it is awaited. ``hides`` says whether a text contains a secret.
    """

    provider: OperationGenerator
    request: GenerationRequest
    file: OperationFile
    limit_s: float
    hides: Callable[[str], bool]

    async def run(self) -> Generation:
        """Begins the operation unless it has begun, and returns its result. Raises ``ProviderError``."""
        name = await asyncio.to_thread(self.file.read)
        if name is None:
            begun = await self._begin()
            if isinstance(begun, Generation):
                return await with_video_length(begun)
            name = begun
        try:
            return await with_video_length(await self._end_of(name))
        except OperationError as error:
            if error.kind != "refused":
                await asyncio.to_thread(self.file.end, name)
            raise

    async def forget(self) -> None:
        """Notes that the result cannot be used, so that resuming the run begins another operation."""
        name = await asyncio.to_thread(self.file.read)
        if name is not None:
            await asyncio.to_thread(self.file.end, name)

    async def _begin(self) -> str | Generation:
        """The operation is written down even if the call is cut off right after the provider's answer."""
        begin = partial(
            call_user_code, object, self.provider.begin, self.request, subject="begin()", check=self._check_begun
        )
        begun: str | Generation = await _timed(begin, may_be_billed=True)
        if isinstance(begun, str):
            await finish_in_thread(self.file.begin, begun)
        return begun

    def _check_begun(self, begun: object) -> None:
        """Raises ``BrokenCodeError`` unless it is a name that can be written down, or a result."""
        if isinstance(begun, Generation):
            check_generation(begun)
        elif not isinstance(begun, str):
            raise BrokenCodeError(f"begin() returned {type(begun).__name__}, not the name of an operation")
        elif not 0 < len(begun) <= MAX_NAME:
            raise BrokenCodeError(
                f"begin() returned a name of {len(begun):,} characters: it must have 1 to {MAX_NAME:,}"
            )
        elif self.hides(begun):
            raise BrokenCodeError("begin() returned a name that contains a key: it cannot be written down")

    async def _end_of(self, name: str) -> Generation:
        ends_at, wait, failures = monotonic() + self.limit_s, FIRST_WAIT_S, 0
        while True:
            try:
                generation: Generation | None = await _timed(partial(self._poll, name))
            except ProviderError as error:
                if isinstance(error, OperationError):
                    raise
                if error.kind == "unusable":  # what ended the operation can be asked for again, at no cost
                    error.kind = "invalid"
                if error.kind not in _RETRYABLE:
                    error.may_be_billed = True
                    raise
                failures += 1
                backoff = min(throttle.LONGEST_BACKOFF_S, throttle.BACKOFF_S * 2 ** (failures - 1))
                pause = max(error.retry_after or 0.0, backoff * random.uniform(0.5, 1))  # noqa: S311
                problem = f"cannot be asked for: {error}"
                if failures >= MAX_FAILURES:
                    raise pending(name, problem) from None
            else:
                if generation is not None:
                    return generation
                failures, pause = 0, wait * random.uniform(0.8, 1)  # noqa: S311
                problem = f"has not ended within {self.limit_s:g} s (timeout_s)"
                wait = min(LONGEST_WAIT_S, wait * WAIT_GROWTH)
            if monotonic() + pause > ends_at:
                raise pending(name, problem)
            await asyncio.sleep(pause)

    async def _poll(self, name: str) -> Generation | None:
        generation = await call_user_code(object, self.provider.poll, name, self.request)
        if generation is None:
            return None
        if not isinstance(generation, Generation):
            raise BrokenCodeError(f"poll() returned {type(generation).__name__}, not Generation or None")
        check_generation(generation)
        return generation


def pending(name: str, problem: str) -> ProviderError:
    """The error for an operation whose end is unknown."""
    return ProviderError(
        f"the operation {name} {problem}; it is paid for, and --resume asks for it again",
        kind="pending",
        may_be_billed=True,
    )


async def _timed(work: Callable[[], Awaitable[Any]], *, may_be_billed: bool = False) -> Any:
    limit = asyncio.timeout(TIMEOUT_S)
    try:
        async with limit:
            return await work()
    except TimeoutError as error:
        message = f"no answer within {TIMEOUT_S:g} s" if limit.expired() else f"TimeoutError: {error}"
        raise ProviderError(message, kind="transient", may_be_billed=may_be_billed) from None


async def with_video_length(generation: Generation) -> Generation:
    """A generation with the length of its videos in its usage: the provider's, or else that of the files."""
    usage: Mapping[str, int] = generation.usage or {}
    if VIDEO_MS in usage or not generation.outputs:
        return generation
    videos = [video for video in map(_content, generation.outputs) if video is not None]
    try:
        lengths = await asyncio.to_thread(lambda: [seconds_of(video) for video in videos])
    except ImageError:  # which its cell reports
        return generation
    return replace(generation, usage={**usage, VIDEO_MS: round(1000 * sum(lengths))}) if lengths else generation
