"""The labeled images that a judge sees: inputs with their roles, masks, the reference and the output."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from visioneval.errors import GraderError, ImageError
from visioneval.media import images
from visioneval.media.animation import ANIMATION_TYPES
from visioneval.media.video import check_whole, sample_frames
from visioneval.providers.base import AddressPart, ImagePart, Part, VideoPart
from visioneval.suite.case import shown_role
from visioneval.suite.entries.judges import ASKED, DEFAULT_PARTS, ShownPart
from visioneval.types import CaseFiles, Output, TaskType

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


class Shown(Protocol):
    """The parts of a cell that a judge may see."""

    @property
    def task_type(self) -> TaskType: ...
    @property
    def output(self) -> Output | None: ...
    @property
    def files(self) -> CaseFiles: ...
    @property
    def show(self) -> Show: ...
    @property
    def watching(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Attachment:
    """A labeled image. ``id`` is the name that the judge uses for it."""

    id: str
    description: str
    part: ImagePart
    aliases: tuple[str, ...] = ()
    shows: ShownPart = "output"
    """What the option ``show`` calls it."""


async def load_attachments(
    context: Shown, judge: str = "default", frames: int = 8, parts: Sequence[ShownPart] = DEFAULT_PARTS
) -> list[Attachment]:
    """Calls ``cell_attachments``, in a thread if files must be read. Raises ``GraderError``."""
    generated, files = context.output, context.files
    is_named = generated is None or generated.mime in PASSTHROUGH_FORMATS
    if is_named and not files.images and not files.masks and "reference" not in parts:
        return cell_attachments(context, judge, frames, parts)
    return await asyncio.to_thread(cell_attachments, context, judge, frames, parts)


def cell_attachments(
    context: Shown, judge: str = "default", frames: int = 8, parts: Sequence[ShownPart] = DEFAULT_PARTS
) -> list[Attachment]:
    """The images of a cell among ``parts``, in their order. A judge that cannot watch a video gets frames of it.

    Raises ``GraderError`` if an image does not decode.
    """
    attachments: list[Attachment] = []
    for part in parts:
        if part == "inputs":
            attachments += _input_attachments(context)
        elif part == "masks":
            for name, path in context.files.masks.items():
                what = f"mask {name}: white is inside{', where changes are allowed' * (name == 'editable')}"
                attachments.append(Attachment(f"mask_{name}", what, context.show(path, mask=True), shows=part))
        elif part == "reference" and context.files.reference is not None:
            image = context.show(context.files.reference)
            attachments.append(Attachment("reference", "the expected result", image, shows=part))
        elif part == "output":
            attachments += output_attachments(context, judge, frames)
    return attachments


def _input_attachments(context: Shown) -> list[Attachment]:
    is_edit = context.task_type == "image_editing"
    attachments: list[Attachment] = []
    roles = [role for role, _ in context.files.images]
    for number, (role, path) in enumerate(context.files.images, 1):
        base = " (the image to edit)" if is_edit and number == 1 else ""
        aliases = (role,) if roles.count(role) == 1 else ()
        label = f"input image, role: {shown_role(number - 1, role)}{base}"
        attachments.append(Attachment(f"ref_{number}", label, context.show(path), aliases, "inputs"))
    return attachments


def output_attachments(context: Shown, judge: str, frames: int) -> list[Attachment]:
    """The image or video to judge; empty if the cell has none. Raises ``GraderError``."""
    generated = context.output
    if generated is None:
        return []
    if judge in context.watching and generated.uri is not None:
        medium = "video" if generated.is_video else "image"
        return [Attachment("output", f"the {medium} to judge", AddressPart(b"", generated.mime, generated.uri))]
    if not generated.is_video:
        return [Attachment("output", "the image to judge", context.show(generated.path))]
    is_watched = judge in context.watching and generated.mime not in ANIMATION_TYPES.values()
    try:
        if is_watched:  # whole: a judge would answer about a part of a video as if it were all of it
            check_whole(generated.path)
            whole = VideoPart(generated.path.read_bytes(), generated.mime)
            return [Attachment("output", "the video to judge", whole)]
        frame_images = sample_frames(generated.path, frames)
    except (OSError, ImageError) as error:
        raise GraderError(f"{generated.path.name}: {error}") from None
    return [
        Attachment(
            f"output_{number}",
            f"frame {number} of {len(frame_images)} of the video to judge, at {frame.seconds:.2f} s",
            ImagePart(frame.jpeg, "image/jpeg"),
        )
        for number, frame in enumerate(frame_images, 1)
    ]


def message_parts(instructions: str, attachments: Sequence[Attachment], parts: Sequence[ShownPart]) -> tuple[Part, ...]:
    """A message in the order of ``parts``: the instructions, which name the prompt and the criteria, are at the first
    of these two, or first if neither is shown."""
    text_at = min((parts.index(name) for name in ASKED if name in parts), default=0)
    before = [attachment for attachment in attachments if parts.index(attachment.shows) < text_at]
    return (*as_parts(before), instructions, *as_parts(attachments[len(before) :]))


def as_parts(attachments: Sequence[Attachment]) -> list[Part]:
    """The parts of a question: each image directly after its label."""
    parts: list[Part] = []
    for attachment in attachments:
        parts += [f"{attachment.id}: {attachment.description}", attachment.part]
    return parts
