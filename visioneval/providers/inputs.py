"""The input images and the mask of a case as providers take them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visioneval.media import images
from visioneval.providers.base import GenerationRequest
from visioneval.suite.remote import MaskMode
from visioneval.types import CaseFiles

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


@dataclass(frozen=True, slots=True)
class MaskUse:
    """How a call uses the case's mask; at most one of ``sent`` and ``as_image`` is set."""

    mode: MaskMode
    sent: Path | None = None
    as_image: Path | None = None

    def argument(self) -> bytes:
        """The mask as a PNG with an alpha channel, as required for a mask argument, whatever its file format."""
        from PIL import Image

        assert self.sent is not None
        data = self.sent.read_bytes()
        with images.header(data) as handle:
            if handle.format == "PNG" and handle.mode in ("RGBA", "LA"):
                return data
        alpha = images.mask_alpha(self.sent)
        opaque = Image.new("RGBA", alpha.size, (0, 0, 0, 255))
        opaque.putalpha(alpha)
        return images.encode_png(opaque)

    def image(self) -> bytes:
        """The mask as a visible PNG: white may change, black must not."""
        assert self.as_image is not None
        return images.encode_png(images.load_mask(self.as_image))

    def worded(self, prompt: str, outputs: int) -> str:
        """The prompt, with an instruction about the mask if it is sent as the last of ``outputs`` images."""
        if self.as_image is None:
            return prompt
        return (
            f"{prompt}\n\nImage {outputs} is a mask for image 1: change only what is white in it,"
            " and keep everything that is black exactly as it is."
        )


def mask_use(mode: MaskMode, files: CaseFiles) -> MaskUse:
    """How to use the editable mask of a case, if it has one."""
    mask = files.masks.get("editable")
    if mask is None or mode == "ignore":
        return MaskUse("ignore")
    return MaskUse(mode, sent=mask) if mode == "send" else MaskUse(mode, as_image=mask)
