"""What a judge is shown: the case's inputs with their roles, its masks and the output, each labelled, in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from visioneval.graders.base import Subject
from visioneval.providers.base import ImagePart, Part


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One labelled picture. ``id`` is what a judge calls it by."""

    id: str
    about: str
    part: ImagePart
    aliases: tuple[str, ...] = ()


def exhibits(subject: Subject) -> list[Exhibit]:
    """All pictures of a cell in their fixed order, less its own where it has none.

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
    if subject.picture is not None:
        shown.append(Exhibit("output", "the picture to judge", subject.show(subject.picture.path)))
    return shown


def as_parts(shown: Sequence[Exhibit]) -> list[Part]:
    """Each picture right after its label."""
    parts: list[Part] = []
    for exhibit in shown:
        parts += [f"{exhibit.id}: {exhibit.about}", exhibit.part]
    return parts
