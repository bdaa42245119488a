"""Checks the images and videos of a generation call."""

from __future__ import annotations

from dataclasses import dataclass

from visioneval.errors import ImageError
from visioneval.media.formats import artifact
from visioneval.providers.base import Address
from visioneval.types import TaskType


@dataclass(frozen=True, slots=True)
class CheckedMedia:
    """One image or video: its bytes, digest, MIME type and size in pixels; or ``fault``, the reason why it is unusable.

    Media that stays at a remote address (``uri``) has no bytes here.
    """

    data: bytes | None = None
    kept: str | None = None
    """The cached file, instead of ``data``."""
    sha256: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    uri: str | None = None
    fault: str | None = None
    decoded: bool = False
    """Whether the bytes were fully decoded; false for cache entries of older versions."""


def check_media(data: object, task: TaskType) -> CheckedMedia:
    """Decodes an image fully, so that a damaged one is detected before any judge sees it."""
    if isinstance(data, Address):
        return CheckedMedia(mime=data.mime, uri=data.uri)
    if not isinstance(data, bytes):
        return CheckedMedia(fault=f"the provider must return an image as bytes, not {type(data).__name__}")
    try:
        image = artifact(data, task)
    except ImageError as error:
        return CheckedMedia(fault=str(error))
    return CheckedMedia(data, None, image.sha256, image.mime, image.width, image.height, decoded=True)
