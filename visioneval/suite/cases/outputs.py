"""Existing images and videos that a suite or dataset names."""

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
    Field(ge=1, le=64, strict=True, description="Number of video frames for a judge that does not accept videos."),
]
MimeType = Annotated[str, StringConstraints(pattern=r"^[a-z]+/[A-Za-z0-9.+-]+$", max_length=100)]


class ExistingOutput(Frozen):
    """An existing image or video. YAML also accepts a plain path."""

    path: FilePath | None = Field(default=None, description="A path, or a gs://, s3:// or https:// URL.")
    mime: MimeType | None = Field(default=None, description="Its MIME type, if the dataset has one.")
    row: str | None = Field(default=None, description="The dataset and line of its row.")
    problem: str | None = Field(default=None, description="Why the row has no image; the cell becomes an ERROR.")

    @model_validator(mode="after")
    def _path_or_problem(self) -> Self:
        if (self.path is None) == (self.problem is None):
            raise ValueError("an existing output needs a 'path'")
        return self

    @property
    def params(self) -> dict[str, str]:
        """Its fields in a record."""
        return {"path": self.path or "", **self.model_dump(include={"mime", "row", "problem"}, exclude_none=True)}


class RecordedOutput(ExistingOutput):
    """An output of another run. A file with another hash is not the one that the run generated."""

    sha256: str
    """Empty if its record has none."""

    @property
    def params(self) -> dict[str, str]:
        return {**super().params, "sha256": self.sha256}


Finished = Mapping[str, Sequence[ExistingOutput | None]]
"""Existing outputs by case id, in sample order, with paths relative to the suite's folder."""
RunLabels = Callable[[str], Sequence[str]]
"""Returns the labels of the model runs of another run; raises ``VisionEvalError`` if there is no such run."""


def split_run(text: str) -> tuple[str, str | None]:
    """Splits ``RUN@label`` into run and label; ``RUN`` alone means all of its model runs."""
    run, _, label = text.partition("@")
    return run, label or None


OutputEntry = Annotated[
    ExistingOutput,
    BeforeValidator(
        lambda value: {"path": value} if isinstance(value, str) else value,
        json_schema_input_type=FilePath | ExistingOutput,
    ),
]


def output_of_cell(cell: Any, row: str) -> dict[str, Any]:
    """Parses a dataset's cell into a raw ``ExistingOutput``: a path, a URL, or a Vertex ``contents`` object.

    A cell without an image results in a ``problem``.
    """
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return {"problem": "the value is neither a path nor valid JSON", "row": row}
    if isinstance(cell, Mapping):
        return {**_in_contents(cell), "row": row}
    cell = cell.strip() if isinstance(cell, str) else cell
    if cell in (None, ""):
        return {"problem": "the row has no output: fill in its path", "row": row}
    if not isinstance(cell, str) or not cell.isprintable():
        return {"problem": "the value is not a path", "row": row}
    return {"path": cell, "row": row}


def _in_contents(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The first file of ``{"contents": [{"parts": [{"file_data": {"mime_type", "file_uri"}}]}]}``."""
    for data in _file_data(cell):
        uri, mime = (data.get(key) or data.get(other) for key, other in _NAMES)
        if isinstance(uri, str) and uri and uri.isprintable():
            return {"path": uri, **({"mime": mime} if isinstance(mime, str) and mime else {})}
    return {"problem": "the value has no contents with a file_uri"}


_NAMES = (("file_uri", "fileUri"), ("mime_type", "mimeType"))


def _file_data(cell: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    contents = cell.get("contents")
    turns = contents if isinstance(contents, list) else [contents]
    parts = [part for turn in turns if isinstance(turn, Mapping) for part in _as_list(turn.get("parts"))]
    entries = [part.get("file_data") or part.get("fileData") for part in parts if isinstance(part, Mapping)]
    return [data for data in entries if isinstance(data, Mapping)]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
