"""Checks the images and videos of a generation call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from visioneval.errors import ImageError
from visioneval.media.formats import artifact
from visioneval.media.video import video_file
from visioneval.providers.base import Address, Generation, OutputFile
from visioneval.records.fields import MOST_PIXELS
from visioneval.types import TaskType


@dataclass(frozen=True, slots=True)
class CheckedMedia:
    """One image or video: its bytes, digest, MIME type and size in pixels; or ``fault``, the reason why it is unusable.

    Media that stays at a remote address (``uri``) has no bytes here.
    """

    data: bytes | None = None
    file: str | None = None
    """The cached file, or a file that is still to be cached, instead of ``data``."""
    sha256: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    uri: str | None = None
    fault: str | None = None
    fault_kind: str = "bad_image"
    """The kind of error of a cell that gets it."""
    decoded: bool = False
    """Whether the bytes were fully decoded; false for cache entries of older versions."""

    @property
    def is_checked(self) -> bool:
        """Whether the bytes were decoded, and its size can be one: a cache may be damaged, or a stranger's."""
        sizes = (self.width, self.height)
        return self.decoded and all(type(size) is int and 0 < size <= MOST_PIXELS for size in sizes)

    @property
    def content(self) -> bytes | Path | None:
        """Its bytes or its file; ``None`` if it is unusable or remote."""
        if self.fault is not None:
            return None
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
    if isinstance(data, OutputFile):
        return _check_file(data.path)
    if not isinstance(data, bytes):
        return CheckedMedia(fault=f"the provider must return an image as bytes, not {type(data).__name__}")
    try:
        image = artifact(data, task)
    except ImageError as error:
        return CheckedMedia(fault=str(error), fault_kind=error.kind)
    return CheckedMedia(data, None, image.sha256, image.mime, image.width, image.height, decoded=True)


def _check_file(path: Path) -> CheckedMedia:
    """Checks a downloaded video in a file."""
    try:
        video = video_file(path)
    except ImageError as error:
        return CheckedMedia(fault=str(error))
    except OSError as error:
        return CheckedMedia(fault=f"the downloaded file cannot be read: {error.strerror}")
    return CheckedMedia(None, str(path), video.sha256, video.mime, video.width, video.height, decoded=True)


@dataclass(frozen=True, slots=True)
class CheckedOutputs:
    """The usable outputs of a call, in order and at most as many as asked for; and what of its answer is not used."""

    media: tuple[CheckedMedia, ...] = ()
    problem: str | None = None
    reply: bytes | Path | None = None
    """The raw answer, or else the first output that is not used."""
    problem_kind: str = "bad_image"
    """The kind of the error of a cell without an output, if no provider was paid for it."""


def check_outputs(generation: Generation, task: TaskType, count: int) -> CheckedOutputs:
    """Checks the outputs of a call until there are ``count`` that can be used."""
    media: list[CheckedMedia] = []
    problems = [generation.unusable] if generation.unusable is not None else []
    unused: list[object] = []
    kinds: list[str] = []
    total = len(generation.outputs)
    for number, output in enumerate(generation.outputs, 1):
        if len(media) == count:
            problems.append(f"images requested: {count}, received: {total}")
            unused.append(output)
            break
        checked = check_media(output, task)
        if checked.fault is None:
            media.append(checked)
        else:
            problems.append(f"image {number}: {checked.fault}" if total > 1 else checked.fault)
            unused.append(output)
            kinds.append(checked.fault_kind)
    if len(media) < count and not problems and generation.refused is None:
        problems.append(f"images requested: {count}, received: {len(media)}")
    if not problems:
        return CheckedOutputs(tuple(media))
    first = unused[0] if unused else None
    content = first.path if isinstance(first, OutputFile) else first if isinstance(first, bytes) else None
    return CheckedOutputs(
        tuple(media),
        "; ".join(problems)[:_LONGEST_PROBLEM],
        content if generation.reply is None else generation.reply,
        problem_kind=kinds[0] if kinds else "bad_image",
    )
