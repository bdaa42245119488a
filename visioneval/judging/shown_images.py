"""Encodes images for judges."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from visioneval.errors import GraderError, ImageError
from visioneval.media import images
from visioneval.providers.base import ImagePart

PASSTHROUGH_FORMATS = {"image/png", "image/jpeg", "image/webp"}


class Show(Protocol):
    """Encodes an image, or a mask in black and white. Raises ``GraderError``."""

    def __call__(self, path: Path, *, mask: bool = False) -> ImagePart: ...


def shown(path: Path, *, mask: bool = False) -> ImagePart:
    """The stored bytes if judges accept the format, else a PNG with the same transparency; a mask is white inside.

    Raises ``GraderError``.
    """
    try:
        if mask:
            return ImagePart(images.encode_png(images.load_mask(path)), "image/png")
        data = path.read_bytes()
        kind, _, _ = images.inspect(data)
        if kind in PASSTHROUGH_FORMATS:
            return ImagePart(data, kind)
        return ImagePart(images.encode_png(images.load_image(data)), "image/png")
    except (OSError, ImageError) as error:
        raise GraderError(f"{path.name}: {error}") from None
