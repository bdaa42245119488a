"""The images of an edit as files of a form: name, bytes and type."""

from __future__ import annotations

from visioneval.providers.base import GenerationRequest
from visioneval.providers.input_images import Upload, accepted_image
from visioneval.providers.masks import MaskUse


def uploads(request: GenerationRequest, use: MaskUse) -> tuple[list[Upload], Upload | None]:
    """The input images in order, with a mask that is sent as an image at the end, and the mask argument."""
    files = [accepted_image(path) for _, path in request.files.images]
    if use.as_image is not None:
        files.append(("mask.png", use.image(), "image/png"))
    return files, ("mask.png", use.argument(), "image/png") if use.sent is not None else None
