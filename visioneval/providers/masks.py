"""How a call uses an editable mask: as an argument, as an additional image with an instruction, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visioneval.media import images
from visioneval.suite.remote import MaskMode
from visioneval.types import CaseFiles


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
