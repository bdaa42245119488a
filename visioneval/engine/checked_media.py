"""The images of a generation call, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visioneval.errors import ImageError
from visioneval.media.formats import artifact
from visioneval.providers.base import Address
from visioneval.types import TaskType


@dataclass(frozen=True, slots=True)
class CheckedMedia:
    """One image or video: its bytes, digest, mime type and size in pixels; or ``fault``, why there is none.

    One that stays at its address (``uri``) has no bytes here.
    """

    data: bytes | None = None
    kept: Path | None = None
    """The file that holds it already, instead of ``data``."""
    sha256: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    uri: str | None = None
    fault: str | None = None
    decoded: bool = False
    """Whether these bytes were decoded whole; not so of what an older version put into a cache."""


def check_media(data: object, task: TaskType) -> CheckedMedia:
    """Decodes an image whole, so that a damaged one is known before anybody is asked about it."""
    if isinstance(data, Address):
        return CheckedMedia(mime=data.mime, uri=data.uri)
    if not isinstance(data, bytes):
        return CheckedMedia(fault=f"an image is handed over as bytes, not as {type(data).__name__}")
    try:
        image = artifact(data, task)
    except ImageError as error:
        return CheckedMedia(fault=str(error))
    return CheckedMedia(data, None, image.sha256, image.mime, image.width, image.height, decoded=True)
