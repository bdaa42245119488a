"""What a judge is shown: the case's inputs with their roles, its masks and the output, each labeled, in that order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from visioneval.errors import GraderError, ImageError
from visioneval.judging.shown_images import SHOWN_AS_IT_IS, Show
from visioneval.media.video import sample_frames
from visioneval.providers.base import AddressPart, ImagePart, Part, VideoPart
from visioneval.types import CaseFiles, Output, TaskType


class Shown(Protocol):
    """As much of a cell as a judge may be shown."""

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
class Exhibit:
    """One labeled image. ``id`` is what a judge calls it by."""

    id: str
    description: str
    part: ImagePart
    aliases: tuple[str, ...] = ()


async def laid_out(subject: Shown, judge: str = "default", frames: int = 8) -> list[Exhibit]:
    """``exhibits``, in a thread where a file has to be read for them. Raises ``GraderError``."""
    generated = subject.output
    is_named = generated is None or generated.mime in SHOWN_AS_IT_IS
    if is_named and not subject.files.images and not subject.files.masks:
        return exhibits(subject, judge, frames)
    return await asyncio.to_thread(exhibits, subject, judge, frames)


def exhibits(subject: Shown, judge: str = "default", frames: int = 8) -> list[Exhibit]:
    """All images of a cell in their fixed order, for one of the judges; of a video, where it watches none, frames.

    Raises ``GraderError`` for one that does not decode.
    """
    editing = subject.task_type == "image_editing"
    shown: list[Exhibit] = []
    roles = [role for role, _ in subject.files.images]
    for number, (role, path) in enumerate(subject.files.images, 1):
        base = " (the image to edit)" if editing and number == 1 else ""
        aliases = (role,) if roles.count(role) == 1 else ()
        shown.append(Exhibit(f"ref_{number}", f"input image, role: {role}{base}", subject.show(path), aliases))
    for name, path in subject.files.masks.items():
        about = f"mask {name}: white is inside" + (", where changes are allowed" if name == "editable" else "")
        shown.append(Exhibit(f"mask_{name}", about, subject.show(path, mask=True)))
    return [*shown, *output(subject, judge, frames)]


def output(subject: Shown, judge: str, frames: int) -> list[Exhibit]:
    """The image or video to judge; nothing where the cell has none. Raises ``GraderError``."""
    generated = subject.output
    if generated is None:
        return []
    what = "video" if generated.is_video else "image"
    if judge in subject.watching:
        if generated.uri is not None:
            return [Exhibit("output", f"the {what} to judge", AddressPart(b"", generated.mime, generated.uri))]
        if generated.is_video:
            return [Exhibit("output", "the video to judge", _video_part(generated))]
    if not generated.is_video:
        return [Exhibit("output", "the image to judge", subject.show(generated.path))]
    try:
        sampled = sample_frames(generated.path, frames)
    except (OSError, ImageError) as error:
        raise GraderError(f"{generated.path.name}: {error}") from None
    return [
        Exhibit(
            f"output_{number}",
            f"frame {number} of {len(sampled)} of the video to judge, at {frame.seconds:.2f} s",
            ImagePart(frame.jpeg, "image/jpeg"),
        )
        for number, frame in enumerate(sampled, 1)
    ]


def _video_part(video: Output) -> VideoPart:
    try:
        return VideoPart(video.path.read_bytes(), video.mime)
    except OSError as error:
        raise GraderError(f"{video.path.name}: {error}") from None


def as_parts(shown: Sequence[Exhibit]) -> list[Part]:
    """Each image right after its label."""
    parts: list[Part] = []
    for exhibit in shown:
        parts += [f"{exhibit.id}: {exhibit.description}", exhibit.part]
    return parts
