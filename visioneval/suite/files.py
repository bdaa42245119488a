"""Files that a suite names: which paths it may read, existing outputs, and datasets with what their columns mean."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from visioneval.errors import TRUST_HINT
from visioneval.media.urls import beside, is_url, public_address, unreadable, url_problem
from visioneval.types import Frozen


@lru_cache(maxsize=16)
def _real(folder: Path) -> str:
    return os.path.realpath(folder)


@dataclass(frozen=True, slots=True)
class Trust:
    """What a suite may access: its own folder and the working directory, or everything.

    Other modules ask for the same flag, or for a variable with names, separated by commas:

    - `--trust-suite`: run code (`command`, `module:Class`); read files outside its folder and the working directory;
      read or write a bucket; set `env` or `machine_credentials` of LiteLLM
    - the host in `VISIONEVAL_TRUSTED_HOSTS`: send a key to a `base_url` other than the provider's own hosts; read a web
      page that is not public; read the Hugging Face Hub, which uses your token (`huggingface.co`)
    - the project in `VISIONEVAL_TRUSTED_PROJECTS`: use Vertex AI with this machine's credentials, also by a model or
      cache `projects/NAME/...`
    """

    folder: Path
    working: Path
    everything: bool = False
    is_from_run: bool = False
    """Whether the suite comes from a run and may access only the working directory."""

    @classmethod
    def for_run_suite(cls, *, everything: bool = False) -> Self:
        """Trust for the suite in a run. The run may come from a stranger, so its recorded folder is not trusted."""
        return cls(Path.cwd(), Path.cwd(), everything, is_from_run=True)

    @property
    def _tops(self) -> tuple[str, str]:
        return _real(self.folder), _real(self.working)

    def refusal(self, path: str, start: Path, *, remote: bool = False) -> str | None:
        """Why ``path``, named in a file of the folder ``start``, must not be read; ``None`` if it may.

        ``remote`` allows URLs.
        """
        if "\x00" in path:
            return "a path cannot contain a NUL character"
        shown = repr(public_address(path))
        if is_url(path) and remote:
            return unreadable(path) if self.everything else url_problem(path)
        if is_url(path):
            return f"{shown} is a URL: only datasets and existing outputs can be read from URLs"
        if self.everything:
            return None
        real = os.path.realpath(start / path)
        if any(real == top or real.startswith(top.rstrip(os.sep) + os.sep) for top in self._tops):
            return None
        if self.is_from_run:
            return f"{shown} is outside the working directory: run visioneval from the suite's folder, or {TRUST_HINT}"
        return f"{shown} is outside the suite's folder and the working directory: {TRUST_HINT}"


def located(name: str, folder: Path) -> Path | str:
    """Resolves ``name``, written in a file of ``folder``, to a path. A URL stays unchanged."""
    return name if is_url(name) else folder / name


def rebased(path: str, start: Path | str, folder: Path) -> str:
    """Rewrites ``path``, relative to the folder or URL ``start``, to be relative to ``folder``."""
    if start == folder or Path(path).is_absolute() or is_url(path) or "\x00" in path:
        return path
    if isinstance(start, str):
        return beside(start, path)
    return Path(os.path.relpath(start / path, folder)).as_posix()


def rebased_case(case: Mapping[str, Any], start: Path | str, folder: Path) -> dict[str, Any]:
    """Rewrites the file paths of a raw case to be relative to ``folder``. Leaves invalid values to the schema."""
    if start == folder:
        return dict(case)
    named = {key: value for key, value in case.items() if key in ("mask", "masks", "reference", "images", "outputs")}
    moved = {key: _moved(value, start, folder, key) for key, value in named.items()}
    if isinstance(turns := case.get("turns"), list):
        moved["turns"] = [rebased_case(turn, start, folder) if isinstance(turn, dict) else turn for turn in turns]
    return {**case, **moved}


def _moved(value: Any, start: Path | str, folder: Path, key: str) -> Any:
    """Rewrites every path in a value: text, a list, a mapping of names to paths, or the ``path`` of an image."""
    if isinstance(value, str):
        return rebased(value, start, folder)
    if isinstance(value, list):
        return [_moved(item, start, folder, "image") for item in value]
    if isinstance(value, dict):
        paths = value.keys() if key in ("masks", "outputs") else {"path"}
        return {name: _moved(item, start, folder, key) if name in paths else item for name, item in value.items()}
    return value


ONE_LINE = r"^[^\x00-\x1f\x7f]*$"
FilePath = Annotated[str, StringConstraints(min_length=1, pattern=ONE_LINE)]
FrameCount = Annotated[
    int,
    Field(
        ge=1, le=64, strict=True, description="The number of video frames that a judge sees if it cannot watch videos."
    ),
]
MimeType = Annotated[str, StringConstraints(pattern=r"^[a-z]+/[A-Za-z0-9.+-]+$", max_length=100)]


class ExistingOutput(Frozen):
    """An existing image or video. YAML also accepts a plain path."""

    path: FilePath | None = Field(default=None, description="A path, or a `gs://`, `s3://` or `https://` URL.")
    mime: MimeType | None = Field(default=None, description="Its MIME type, if its name does not show it.")
    row: SkipJsonSchema[str | None] = None
    """The dataset and line that it comes from."""
    problem: SkipJsonSchema[str | None] = None
    """Why the row of a dataset has no image, instead of ``path``: the cell becomes an ERROR."""

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


def _files_in(cell: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The files of ``{"contents": [{"parts": [{"file_data": {"mime_type", "file_uri"}}]}]}``."""
    contents = cell.get("contents")
    for turn in contents if isinstance(contents, list) else [contents]:
        parts = turn.get("parts") if isinstance(turn, Mapping) else None
        for part in parts if isinstance(parts, list) else ():
            data = (part.get("file_data") or part.get("fileData")) if isinstance(part, Mapping) else None
            if isinstance(data, Mapping):
                yield data


def output_of_cell(cell: Any, row: str) -> dict[str, Any]:
    """Parses a dataset's cell into a raw ``ExistingOutput``: a path, a URL, or the first file of a Vertex ``contents``.

    A cell without an image results in a ``problem``.
    """
    if isinstance(cell, str) and cell.lstrip().startswith("{"):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return {"problem": "the value is neither a path nor valid JSON", "row": row}
    if isinstance(cell, Mapping):
        for data in _files_in(cell):
            uri, mime = data.get("file_uri") or data.get("fileUri"), data.get("mime_type") or data.get("mimeType")
            if isinstance(uri, str) and uri and uri.isprintable():
                return {"path": uri, **({"mime": mime} if isinstance(mime, str) and mime else {}), "row": row}
        return {"problem": "the value has no contents with a file_uri", "row": row}
    cell = cell.strip() if isinstance(cell, str) else cell
    if cell in (None, ""):
        return {"problem": "the row has no output: fill in its path", "row": row}
    if not isinstance(cell, str) or not cell.isprintable():
        return {"problem": "the value is not a path", "row": row}
    return {"path": cell, "row": row}


Column = Annotated[str, StringConstraints(min_length=1)]
_COLUMN_SCHEMA = {"type": "string", "minLength": 1}
_CONDITION = "a value, a list of values, or min, max and not"


Columns = Annotated[
    tuple[Column, ...],
    Field(min_length=1),
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value,
        json_schema_input_type=Column | tuple[Column, ...],
    ),
]
Separator = Annotated[str, StringConstraints(pattern=r'^[^"\r\n]$')]


def _check_source(value: Any) -> Any:
    """A column, a template, a list of columns (an ID), or a mapping of keys to columns (questions)."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple | dict) and value:
        columns = value.values() if isinstance(value, dict) else value
        if all(isinstance(column, str) and column for column in columns):
            return value
        raise ValueError("a column must be text")
    raise PydanticCustomError("string_type", "Input should be text")


FieldSource = Annotated[
    Any,
    BeforeValidator(_check_source),
    WithJsonSchema(
        {
            "anyOf": [
                _COLUMN_SCHEMA,
                {"type": "array", "items": _COLUMN_SCHEMA, "minItems": 1},
                {"type": "object", "additionalProperties": _COLUMN_SCHEMA, "minProperties": 1},
            ]
        }
    ),
]


_SCALAR_SCHEMA = {"type": ["string", "number", "boolean", "null"]}
_VALUES_SCHEMA = {"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA, "minItems": 1}]}


def _check_condition(value: Any) -> Any:
    """A value, a list of values, or ``min``, ``max`` and ``not``."""
    limits = value if isinstance(value, dict) else {"not": value}
    if unknown := sorted(limits.keys() - {"min", "max", "not"}):
        raise ValueError(f"unknown key {unknown[0]!r} in a filter: write {_CONDITION}")
    if value in ({}, []) or limits.get("not") == []:
        raise ValueError(f"a filter needs {_CONDITION}")
    for key in ("min", "max"):
        if key in limits and (isinstance(limits[key], bool) or not isinstance(limits[key], (int, float))):
            raise ValueError(f"{key} must be a number")
    values = limits["not"] if isinstance(limits.get("not"), list) else [limits.get("not")]
    if not all(item is None or isinstance(item, (str, int, float)) for item in values):
        raise ValueError("a value of a filter must be text, a number, true, false or null")
    return value


Condition = Annotated[
    Any,
    BeforeValidator(_check_condition),
    WithJsonSchema(
        {
            "anyOf": [
                *_VALUES_SCHEMA["anyOf"],
                {
                    "type": "object",
                    "properties": {
                        "min": {"type": "number", "description": "The lowest number that is read."},
                        "max": {"type": "number", "description": "The highest number that is read."},
                        "not": {**_VALUES_SCHEMA, "description": "Values that are not read."},
                    },
                    "additionalProperties": False,
                    "minProperties": 1,
                },
            ]
        }
    ),
]
"""A value, a list of values, or a mapping with ``min``, ``max`` and ``not``."""


class TableFile(Frozen):
    """A file of rows: JSONL, JSON, CSV, TSV or Parquet, or a folder of images with its metadata."""

    path: FilePath = Field(description="A path or a URL. `{{ vars.NAME }}` is a variable of the suite.")
    separator: Separator | None = Field(
        default=None, description="The separator of a CSV file, such as `;`. Default: a comma, or a tab for `.tsv`."
    )


class Join(TableFile):
    """A second file, whose columns are added to the rows that have the same values."""

    model_config = ConfigDict(serialize_by_alias=True)  # a run stores it under the key that it is read from

    on: Annotated[
        dict[Column, Column],
        Field(min_length=1),
        BeforeValidator(
            lambda value: (
                {column: column for column in value}
                if isinstance(value, list)
                else {value: value}
                if isinstance(value, str)
                else value
            ),
            json_schema_input_type=Column | tuple[Column, ...] | dict[Column, Column],
        ),
    ] = Field(
        description="A column that both files have, a list of columns, or `{column: column of the second file}`. "
        "`_row` joins by row number."
    )
    name: Column | None = Field(
        default=None,
        alias="as",
        description="Puts the columns of the second file under this name: `NAME.column`. Needed if both files have a "
        "column of the same name.",
    )
    many: bool = Field(
        default=False,
        strict=True,
        description="Adds all rows that match, as a list under `as`: `notes[*].look`. Otherwise several are an error.",
    )
    optional: bool = Field(
        default=False,
        strict=True,
        description="Keeps rows without a match, without the columns of the second file. Otherwise they are an error.",
    )


class Rows(TableFile):
    """A file of rows, and the column of each key."""

    fields: dict[str, FieldSource] = Field(
        min_length=1, description="The source of each key of a case: a column, a path or a template."
    )
    group_by: Columns = Field(
        default=(),
        description="One column or several: rows with equal values in them form one case, whose default ID they are. "
        "Lists are combined without duplicates; other values must be equal or empty.",
    )
    join: Annotated[
        tuple[Join, ...],
        BeforeValidator(
            lambda value: [value] if isinstance(value, dict) else value,
            json_schema_input_type=Join | tuple[Join, ...],
        ),
    ] = Field(default=(), description="A second file, or a list of them, whose columns are added to each row.")
    filter: dict[Column, Condition] = Field(
        default_factory=dict,
        description="Conditions by column, joined ones too: a value (`null` also for an empty one), a list of values, "
        "`{min: 5, max: 20}`, `{not: menu}` or `{not: [a, b]}`. A row is used if it meets all of them; of a list, one "
        "item must. A value that no row has is an error.",
    )
    limit: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="Uses only this many cases, from the start."
    )

    @model_serializer(mode="wrap")
    def _without_empty_group(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A run stores what can be read again, and an empty ``group_by`` is an error."""
        return {key: value for key, value in serialize(self).items() if key != "group_by" or value}


class CaseRows(Rows):
    """Cases in a file of rows. Keys of ``fields`` may be dotted, such as ``masks.editable``.

    ``output`` and ``model`` are an existing output and the label of its model.
    """

    defaults: dict[str, Any] = Field(
        default_factory=dict,
        description="Keys of a case for rows without a value, at any depth. Any key but `id`. Text that uses `row` is "
        "rendered for each row, for a group with its first. Paths are relative to the suite.",
    )


class QuestionRows(Rows):
    """Pinned questions in a file of rows: ``fields`` names ``case`` or ``prompt``, and ``questions``."""


class CaseDataset(Frozen):
    """Cases from a file of rows."""

    dataset: CaseRows = Field(description="The file of rows.")
