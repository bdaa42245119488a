"""What a video is generated from: the part of each input image, and the parameters that a model may have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from visioneval.suite.case import TestCase
from visioneval.suite.messages import explain

LAST_FRAME, REFERENCE, STYLE = "last_frame", "reference", "style"
"""The roles of images that are not the first frame of a video."""


@dataclass(frozen=True, slots=True)
class VideoInputs:
    """The images of a case by what they are for a video."""

    first_frame: Path | None
    last_frame: Path | None
    references: tuple[Path, ...]
    styles: tuple[Path, ...]

    @classmethod
    def of(cls, images: Iterable[tuple[str, Path]]) -> VideoInputs:
        """Of images and roles: the first image without such a role is the first frame; the others are references."""
        by_role: dict[str, list[Path]] = {LAST_FRAME: [], REFERENCE: [], STYLE: []}
        others: list[Path] = []
        for role, path in images:
            by_role.get(role, others).append(path)
        references = (*others[1:], *by_role[REFERENCE])
        last_frame = next(iter(by_role[LAST_FRAME]), None)
        return cls(others[0] if others else None, last_frame, references, tuple(by_role[STYLE]))

    @classmethod
    def of_case(cls, case: TestCase) -> VideoInputs:
        """Of the images that a case names, whose files need not exist."""
        return cls.of((image.role, Path(image.path)) for image in case.images)


def model_problems(model: type[BaseModel], params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each parameter that does not fit a model of all parameters, with the reason."""
    try:
        model.model_validate(dict(params))
    except ValidationError as error:
        schema = model.model_json_schema()
        for entry in error.errors(include_url=False):
            yield str(entry["loc"][0]), explain(entry, schema)
