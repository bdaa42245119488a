"""The pictures of a drawing call, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visioneval import images
from visioneval.errors import ImageError


@dataclass(frozen=True, slots=True)
class Made:
    """One picture: its bytes, digest, mime type and size in pixels; or ``fault``, why there is none."""

    data: bytes | None = None
    sha256: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    fault: str | None = None


def made(data: object) -> Made:
    """Decodes a picture whole, so that a damaged one is known before anybody is asked about it."""
    if not isinstance(data, bytes):
        return Made(fault=f"a picture is handed over as bytes, not as {type(data).__name__}")
    try:
        picture = images.picture_at(Path(), data)
    except ImageError as error:
        return Made(fault=str(error))
    return Made(data, picture.sha256, picture.mime, picture.width, picture.height)
