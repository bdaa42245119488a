"""Finished images and videos: where a dataset's cell says that one is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from visioneval.types import Frozen

ONE_LINE = r"^[^\x00-\x1f\x7f]*$"
FilePath = Annotated[str, StringConstraints(min_length=1, pattern=ONE_LINE)]
FrameCount = Annotated[
    int,
    Field(ge=1, le=64, strict=True, description="Frames of a video that a judge is shown which does not watch videos."),
]
MimeType = Annotated[str, StringConstraints(pattern=r"^[a-z]+/[A-Za-z0-9.+-]+$", max_length=100)]


class ExistingOutput(Frozen):
    """An image or video that exists already. In YAML a plain path is allowed."""

    path: FilePath | None = Field(default=None, description="A path, or a gs://, s3:// or https:// URL.")
    mime: MimeType | None = Field(default=None, description="Its type, where the dataset tells it.")
    row: str | None = Field(default=None, description="The dataset and line that it comes from.")
    problem: str | None = Field(default=None, description="Why the row holds no image: the cell is an ERROR.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.path is None) == (self.problem is None):
            raise ValueError("a finished image has a path")
        return self

    @property
    def params(self) -> dict[str, str]:
        """What a record keeps of it."""
        return {"path": self.path or "", **self.model_dump(include={"mime", "row", "problem"}, exclude_none=True)}


Finished = Mapping[str, Sequence[ExistingOutput | None]]
"""Finished images, whose paths are from the suite's folder, by case id, in sample order."""
RunLabels = Callable[[str], Sequence[str]]
"""Labels of the model runs of a finished run, by RUN; raises a ``VisionEvalError`` where there is no such run."""


def split_run(text: str) -> tuple[str, str | None]:
    """``RUN@label`` as run and label; ``RUN`` alone means all of its model runs."""
    run, _, label = text.partition("@")
    return run, label or None


def _plain_path(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


OutputEntry = Annotated[ExistingOutput, BeforeValidator(_plain_path, json_schema_input_type=FilePath | ExistingOutput)]


def output_of_cell(cell: Any, row: str) -> dict[str, Any]:
    """A dataset's cell as a raw ``ExistingOutput``: a path, a URL, or a Vertex ``contents`` object.

    A cell that names no image gives its ``problem``.
    """
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return {"problem": "the cell is neither a path nor JSON", "row": row}
    if isinstance(cell, Mapping):
        return {**_in_contents(cell), "row": row}
    if cell in (None, ""):
        return {"problem": "the row names no image", "row": row}
    if not isinstance(cell, str) or not cell.isprintable():
        return {"problem": "the cell is no path", "row": row}
    return {"path": cell, "row": row}


def _in_contents(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The first file of ``{"contents": [{"parts": [{"file_data": {"mime_type", "file_uri"}}]}]}``."""
    for data in _file_data(cell):
        uri, mime = (data.get(key) or data.get(other) for key, other in _NAMES)
        if isinstance(uri, str) and uri and uri.isprintable():
            return {"path": uri, **({"mime": mime} if isinstance(mime, str) and mime else {})}
    return {"problem": "the cell holds no contents with a file_uri"}


_NAMES = (("file_uri", "fileUri"), ("mime_type", "mimeType"))


def _file_data(cell: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    contents = cell.get("contents")
    turns = contents if isinstance(contents, list) else [contents]
    parts = [part for turn in turns if isinstance(turn, Mapping) for part in _listed(turn.get("parts"))]
    found = [part.get("file_data") or part.get("fileData") for part in parts if isinstance(part, Mapping)]
    return [data for data in found if isinstance(data, Mapping)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
