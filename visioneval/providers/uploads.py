"""The images of an edit as files of a form: name, bytes and type."""

from __future__ import annotations

from pathlib import Path

from visioneval.media import images
from visioneval.providers.base import GenerationRequest
from visioneval.providers.masks import MaskUse

Upload = tuple[str, bytes, str]


def uploads(request: GenerationRequest, use: MaskUse) -> tuple[list[Upload], Upload | None]:
    """The input images in order, with a mask that is sent as an image at the end, and the mask argument."""
    outputs = [_upload(path) for _, path in request.files.images]
    if use.as_image is not None:
        outputs.append(("mask.png", use.image(), "image/png"))
    return outputs, ("mask.png", use.argument(), "image/png") if use.sent is not None else None


def _upload(path: Path) -> Upload:
    data = path.read_bytes()
    mime, _, _ = images.inspect(data)
    if mime in ("image/png", "image/jpeg", "image/webp"):
        return path.name, data, mime
    return f"{path.stem}.png", images.encode_png(images.load_image(data)), "image/png"
