"""The input images of a case as providers take them: files and forms."""

from __future__ import annotations

from pathlib import Path

from visioneval.media import images
from visioneval.providers.base import GenerationRequest
from visioneval.providers.masks import MaskUse

Upload = tuple[str, bytes, str]
"""A file to send: its name, its bytes and their MIME type."""
_ACCEPTED_TYPES = ("image/png", "image/jpeg", "image/webp")


def accepted_image(path: Path) -> Upload:
    """An image to send; a PNG of it if it is not of a type that all providers take."""
    data = path.read_bytes()
    mime, _, _ = images.inspect(data)
    if mime in _ACCEPTED_TYPES:
        return path.name, data, mime
    return f"{path.stem}.png", images.encode_png(images.load_image(data)), "image/png"


def uploads(request: GenerationRequest, use: MaskUse) -> tuple[list[Upload], Upload | None]:
    """The input images in order, with a mask that is sent as an image at the end, and the mask argument."""
    files = [accepted_image(path) for _, path in request.files.images]
    if use.as_image is not None:
        files.append(("mask.png", use.image(), "image/png"))
    return files, ("mask.png", use.argument(), "image/png") if use.sent is not None else None
