"""Datasets of a suite: the files of rows, and what their columns mean."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WithJsonSchema,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from visioneval.suite.cases.outputs import FilePath
from visioneval.types import Frozen

Column = Annotated[str, StringConstraints(min_length=1)]
_COLUMN_SCHEMA = {"type": "string", "minLength": 1}
_SCALARS = (str, int, float)


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
    values = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        return _check_limits(value)
    if not values:
        raise ValueError("a filter needs a value, a list of values, or min, max and not")
    if not all(item is None or isinstance(item, _SCALARS) for item in values):
        raise ValueError("a value of a filter must be text, a number, true, false or null")
    return value


def _check_limits(value: dict[str, Any]) -> Any:
    if unknown := sorted(value.keys() - {"min", "max", "not"}):
        raise ValueError(
            f"unknown key {unknown[0]!r} in a filter: write a value, a list of values, or min, max and not"
        )
    if not value:
        raise ValueError("a filter needs a value, a list of values, or min, max and not")
    for key in ("min", "max"):
        if key in value and (isinstance(value[key], bool) or not isinstance(value[key], (int, float))):
            raise ValueError(f"{key} must be a number")
    if "not" in value:
        _check_condition(value["not"] if not isinstance(value["not"], dict) else [value["not"]])
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

    path: FilePath = Field(description="A path or a URL; {{ vars.NAME }} is a variable of the suite.")
    separator: Separator | None = Field(
        default=None, description="The separator of a CSV file. Default: a comma, or a tab for .tsv."
    )


class Join(TableFile):
    """A second file, whose columns are added to the rows with the same values."""

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
    ] = Field(description="The columns to compare: a column, a list, or {column: column of the second file}.")
    name: Column | None = Field(
        default=None, alias="as", description="Puts the columns of the second file under this name: NAME.column."
    )
    many: bool = Field(default=False, strict=True, description="Add all rows that match, as a list under 'as'.")
    optional: bool = Field(
        default=False, strict=True, description="Keep rows without a match, without the columns of the second file."
    )


class Rows(TableFile):
    """A file of rows, and the column of each key."""

    fields: dict[str, FieldSource] = Field(
        min_length=1, description="The column of each key: a name, a path such as meta.size, or a template."
    )
    group_by: Columns = Field(default=(), description="Rows with equal values in these columns are one case.")
    join: Annotated[
        tuple[Join, ...],
        BeforeValidator(
            lambda value: [value] if isinstance(value, dict) else value,
            json_schema_input_type=Join | tuple[Join, ...],
        ),
    ] = Field(default=(), description="Other tables whose columns are added to each row by an equal key.")
    filter: dict[Column, Condition] = Field(
        default_factory=dict, description="Conditions by column; a row is used if it meets all of them."
    )
    limit: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="Use only this many cases, from the start."
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
        description="Keys of a case where a row has no value; text with {{ row.COLUMN }} is rendered for each row.",
    )


class QuestionRows(Rows):
    """Pinned questions in a file of rows: ``fields`` names ``case`` or ``prompt``, and ``questions``."""


class CaseDataset(Frozen):
    """Cases from a file of rows."""

    dataset: CaseRows = Field(description="A table or folder with a case in each row.")
