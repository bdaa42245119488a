"""What a judge is shown: the case's inputs with their roles, its masks and the output, each labelled, in that order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from visioneval.errors import GraderError, ImageError
from visioneval.judging.shown_images import SHOWN_AS_IT_IS, Show
from visioneval.media.video import sample_frames
from visioneval.providers.base import AddressPart, ImagePart, Part, VideoPart
from visioneval.types import CaseFiles, Picture, TaskType


class Shown(Protocol):
    """As much of a cell as a judge may be shown."""

    @property
    def task_type(self) -> TaskType: ...
    @property
    def picture(self) -> Picture | None: ...
    @property
    def files(self) -> CaseFiles: ...
    @property
    def show(self) -> Show: ...
    @property
    def watching(self) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One labelled picture. ``id`` is what a judge calls it by."""

    id: str
    about: str
    part: ImagePart
    aliases: tuple[str, ...] = ()


async def laid_out(subject: Shown, judge: str = "default", frames: int = 8) -> list[Exhibit]:
    """``exhibits``, in a thread where a file has to be read for them. Raises ``GraderError``."""
    drawn = subject.picture
    is_named = drawn is None or drawn.mime in SHOWN_AS_IT_IS
    if is_named and not subject.files.images and not subject.files.masks:
        return exhibits(subject, judge, frames)
    return await asyncio.to_thread(exhibits, subject, judge, frames)


def exhibits(subject: Shown, judge: str = "default", frames: int = 8) -> list[Exhibit]:
    """All pictures of a cell in their fixed order, for one of the judges; of a video, where it watches none, frames.

    Raises ``GraderError`` for one that does not decode.
    """
    editing = subject.task_type == "image_editing"
    shown: list[Exhibit] = []
    roles = [role for role, _ in subject.files.images]
    for number, (role, path) in enumerate(subject.files.images, 1):
        base = " (the picture to edit)" if editing and number == 1 else ""
        aliases = (role,) if roles.count(role) == 1 else ()
        shown.append(Exhibit(f"ref_{number}", f"input picture, role: {role}{base}", subject.show(path), aliases))
    for name, path in subject.files.masks.items():
        about = f"mask {name}: white is inside" + (", where changes are allowed" if name == "editable" else "")
        shown.append(Exhibit(f"mask_{name}", about, subject.show(path, mask=True)))
    return [*shown, *output(subject, judge, frames)]


def output(subject: Shown, judge: str, frames: int) -> list[Exhibit]:
    """The picture or video to judge; nothing where the cell has none. Raises ``GraderError``."""
    drawn = subject.picture
    if drawn is None:
        return []
    what = "video" if drawn.is_video else "picture"
    if judge in subject.watching:
        if drawn.uri is not None:
            return [Exhibit("output", f"the {what} to judge", AddressPart(b"", drawn.mime, drawn.uri))]
        if drawn.is_video:
            return [Exhibit("output", "the video to judge", _video_part(drawn))]
    if not drawn.is_video:
        return [Exhibit("output", "the picture to judge", subject.show(drawn.path))]
    try:
        sampled = sample_frames(drawn.path, frames)
    except (OSError, ImageError) as error:
        raise GraderError(f"{drawn.path.name}: {error}") from None
    return [
        Exhibit(
            f"output_{number}",
            f"frame {number} of {len(sampled)} of the video to judge, at {frame.seconds:.2f} s",
            ImagePart(frame.jpeg, "image/jpeg"),
        )
        for number, frame in enumerate(sampled, 1)
    ]


def _video_part(video: Picture) -> VideoPart:
    try:
        return VideoPart(video.path.read_bytes(), video.mime)
    except OSError as error:
        raise GraderError(f"{video.path.name}: {error}") from None


def as_parts(shown: Sequence[Exhibit]) -> list[Part]:
    """Each picture right after its label."""
    parts: list[Part] = []
    for exhibit in shown:
        parts += [f"{exhibit.id}: {exhibit.about}", exhibit.part]
    return parts
