"""Input images of a case as providers take them, and their part in the generation of a video."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from visioneval.media import images
from visioneval.types import CaseFiles

Upload = tuple[str, bytes, str]
"""A file to send: its name, its bytes and their MIME type."""
_ACCEPTED_TYPES = ("image/png", "image/jpeg", "image/webp")
LAST_FRAME, REFERENCE, STYLE = "last_frame", "reference", "style"
"""The roles of images that are not the first frame of a video."""


def accepted_image(path: Path) -> Upload:
    """An image to send; a PNG of it if it is not of a type that all providers take."""
    data = path.read_bytes()
    mime, _, _ = images.inspect(data)
    if mime in _ACCEPTED_TYPES:
        return path.name, data, mime
    return f"{path.stem}.png", images.encode_png(images.load_image(data)), "image/png"


@dataclass(frozen=True, slots=True)
class VideoInputs:
    """The images of a case by what they are for a video."""

    first_frame: Path | None
    last_frame: Path | None
    references: tuple[Path, ...]
    styles: tuple[Path, ...]

    @classmethod
    def of(cls, files: CaseFiles) -> VideoInputs:
        """By their roles. The first image without such a role is the first frame; the others are references."""
        by_role: dict[str, list[Path]] = {LAST_FRAME: [], REFERENCE: [], STYLE: []}
        others: list[Path] = []
        for role, path in files.images:
            by_role.get(role, others).append(path)
        references = (*others[1:], *by_role[REFERENCE])
        last_frame = next(iter(by_role[LAST_FRAME]), None)
        return cls(others[0] if others else None, last_frame, references, tuple(by_role[STYLE]))
