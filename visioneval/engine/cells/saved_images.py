"""Stores the images of graders next to the output of their cell."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from visioneval.errors import GraderError, ImageError
from visioneval.media.images import image_at

_IMAGE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.(png|jpg|jpeg|webp)")


@dataclass(frozen=True, slots=True)
class SavedImages:
    """The images that the graders of one cell store. ``write`` takes a name and bytes and returns a path in the run."""

    write: Callable[[str, bytes], str]
    _names: set[str] = field(default_factory=set)

    def save(self, name: str, data: bytes) -> str:
        """Stores an image of a built-in grader."""
        self._names.add(name)
        return self.write(name, data)

    def save_checked(self, name: str, data: bytes) -> str:
        """Stores an image of a custom grader. Raises ``GraderError`` for a bad name, a used name or a broken image."""
        if not isinstance(name, str) or not _IMAGE_NAME.fullmatch(name):
            raise GraderError(
                f"save({name!r:.130}): the name must have only letters, digits, _ - and . (not first), "
                "and end in .png, .jpg, .jpeg or .webp"
            )
        if name in self._names:
            raise GraderError(f"save({name!r}): a grader of this cell has already saved this name")
        if not isinstance(data, bytes):
            raise GraderError(f"save({name!r}): the data must be the bytes of an image, not {type(data).__name__}")
        try:
            image_at(Path(), data)
        except ImageError as error:
            raise GraderError(f"save({name!r}): the data is not a valid image: {error}") from None
        return self.save(name, data)
