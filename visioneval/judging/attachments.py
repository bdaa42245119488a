"""The labeled images that a judge sees: inputs with their roles, masks, and the output, in that order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from visioneval.errors import GraderError, ImageError
from visioneval.judging.shown_images import PASSTHROUGH_FORMATS, Show
from visioneval.media.video import sample_frames
from visioneval.providers.base import AddressPart, ImagePart, Part, VideoPart
from visioneval.types import CaseFiles, Output, TaskType


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


async def load_attachments(context: Shown, judge: str = "default", frames: int = 8) -> list[Attachment]:
    """Calls ``cell_attachments``, in a thread if files must be read. Raises ``GraderError``."""
    generated = context.output
    is_named = generated is None or generated.mime in PASSTHROUGH_FORMATS
    if is_named and not context.files.images and not context.files.masks:
        return cell_attachments(context, judge, frames)
    return await asyncio.to_thread(cell_attachments, context, judge, frames)


def cell_attachments(context: Shown, judge: str = "default", frames: int = 8) -> list[Attachment]:
    """All images of a cell in their fixed order. A judge that cannot watch a video gets frames of it.

    Raises ``GraderError`` if an image does not decode.
    """
    is_edit = context.task_type == "image_editing"
    attachments: list[Attachment] = []
    roles = [role for role, _ in context.files.images]
    for number, (role, path) in enumerate(context.files.images, 1):
        base = " (the image to edit)" if is_edit and number == 1 else ""
        aliases = (role,) if roles.count(role) == 1 else ()
        attachments.append(Attachment(f"ref_{number}", f"input image, role: {role}{base}", context.show(path), aliases))
    for name, path in context.files.masks.items():
        description = f"mask {name}: white is inside" + (", where changes are allowed" if name == "editable" else "")
        attachments.append(Attachment(f"mask_{name}", description, context.show(path, mask=True)))
    return [*attachments, *output_attachments(context, judge, frames)]


def output_attachments(context: Shown, judge: str, frames: int) -> list[Attachment]:
    """The image or video to judge; empty if the cell has none. Raises ``GraderError``."""
    generated = context.output
    if generated is None:
        return []
    medium = "video" if generated.is_video else "image"
    if judge in context.watching:
        if generated.uri is not None:
            return [Attachment("output", f"the {medium} to judge", AddressPart(b"", generated.mime, generated.uri))]
        if generated.is_video:
            return [Attachment("output", "the video to judge", _video_part(generated))]
    if not generated.is_video:
        return [Attachment("output", "the image to judge", context.show(generated.path))]
    try:
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


def _video_part(video: Output) -> VideoPart:
    try:
        return VideoPart(video.path.read_bytes(), video.mime)
    except OSError as error:
        raise GraderError(f"{video.path.name}: {error}") from None


def as_parts(attachments: Sequence[Attachment]) -> list[Part]:
    """The parts of a question: each image directly after its label."""
    parts: list[Part] = []
    for attachment in attachments:
        parts += [f"{attachment.id}: {attachment.description}", attachment.part]
    return parts
