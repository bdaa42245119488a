"""The image that is changed, and the result of a change."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from visioneval.errors import ImageError
from visioneval.graders.text.layout import Corners
from visioneval.media.images import opened
from visioneval.suite.case import Expect

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
"""``(height, width, 3)`` RGB or ``(height, width, 4)`` RGBA, 0 to 255."""
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Box = tuple[int, int, int, int]
"""Left, top, width and height, in pixels."""

Random = np.random.Generator

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/bmp": "BMP", "image/tiff": "TIFF"}
"""The formats in which a changed image can be stored without other changes than the format's own."""
JPEG_QUALITY = 95


class CannotPerturbError(Exception):
    """This change does not apply to this image. The message says why."""


@dataclass(frozen=True, slots=True)
class Perturbed:
    """A changed image. ``box`` is where it changed; ``None`` means everywhere."""

    image: Pixels
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class PerturbedFile:
    """A changed file. ``box`` is where it changed; ``None`` means everywhere."""

    data: bytes
    mime: str
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of copy in the image, as read by OCR, with the four corners of its box in pixels."""

    text: str
    corners: Corners


@dataclass(frozen=True, slots=True)
class Subject:
    """An output that passes, decoded. ``region`` is True where local perturbations may lie, such as outside a mask.

    ``line`` is the line of copy that perturbations of copy change, and ``no_line`` says why there is none. ``lines``
    are the boxes of all text, and ``others`` the other lines of copy.
    """

    image: Pixels
    data: bytes
    mime: str
    region: Mask
    expect: Expect = field(default_factory=Expect)
    line: TextLine | None = None
    no_line: str = "no text grader read a line of its copy"
    lines: tuple[Corners, ...] = ()
    others: tuple[TextLine, ...] = ()

    @property
    def is_transparent(self) -> bool:
        """Whether any pixel is not fully opaque."""
        return self.image.shape[2] == 4 and int(self.image[..., 3].min()) < 255

    @property
    def copy_line(self) -> TextLine:
        """The line that perturbations of copy change. Raises ``CannotPerturbError``."""
        if self.line is None:
            raise CannotPerturbError(self.no_line)
        return self.line


def seeded(seed: str, name: str) -> Random:
    """A generator of a name's own: what else is perturbed does not change it."""
    return np.random.default_rng(int.from_bytes(sha256(f"{seed}\0{name}".encode()).digest()[:8]))


def decode(data: bytes) -> Pixels:
    """The first frame upright, RGBA if it is transparent, else RGB. Raises ``ImageError``."""
    with opened(data) as handle:
        handle.load()
        if handle.mode[0] == "I" or handle.mode == "F":
            raise ImageError("it has 16 bits per channel")
        image = ImageOps.exif_transpose(handle)
        rgba = np.asarray(image.convert("RGBA"))
        return np.ascontiguousarray(rgba if int(rgba[..., 3].min()) < 255 else rgba[..., :3])


def encode(image: Pixels, mime: str) -> bytes:
    """The image in a format of ``FORMATS``: lossless where the format can be, else JPEG of high quality."""
    buffer = io.BytesIO()
    options: dict[str, Any] = {
        "image/jpeg": {"quality": JPEG_QUALITY, "subsampling": 0},
        "image/webp": {"lossless": True, "quality": 50, "method": 2, "exact": True},
        "image/png": {"compress_level": 3},
    }.get(mime, {})
    shown = Image.fromarray(image)
    shown.convert("RGB" if mime == "image/jpeg" else shown.mode).save(buffer, FORMATS[mime], **options)
    return buffer.getvalue()
