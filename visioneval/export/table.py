"""The cells of a run as a table, for files, data frames and trackers. Its types do not depend on the records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel

from visioneval.analysis.sides import writers_of
from visioneval.analysis.summary.graders import alignment_keys, gaps_in
from visioneval.errors import UsageError
from visioneval.records.model import GraderRecord, JudgeAnswer, Record, RunInfo
from visioneval.types import Frozen, Score


@dataclass(frozen=True, slots=True)
class ListOf:
    """The type of a list, whose items have one type."""

    item: Kind


@dataclass(frozen=True, slots=True)
class MapOf:
    """The type of a map from texts to values of one type."""

    value: Kind


Kind: TypeAlias = str | ListOf | MapOf | dict[str, "Kind"]
"""The type of a value: ``text``, ``integer`` (64 bits), ``number``, ``flag``, a list, a map, or named fields."""
TEXTS = ListOf("text")
_MAX_INTEGER = 2**63 - 1
_CELL = (
    *("run_id", "test_id", "model_label", "sample_index", "task_type", "status", "verdict", "artifact_path"),
    *("artifact_sha256", "base_path", "width", "height", "cost_usd", "seconds", "waited_seconds"),
    *("prompt", "sent_prompt", "failed_rules", "warned_rules", "failure_tags", "tags"),
)
"""The fields of records that people read."""
_QUESTION: dict[str, Kind] = {
    **dict.fromkeys(("id", "question", "type", "source", "expected", "answer", "choice", "reason"), "text"),
    **dict.fromkeys(("choices", "depends_on"), TEXTS),
    "right": "flag",
    "score": "number",
}
_DETAILS: Kind = {"gaps": TEXTS, "questions": ListOf(_QUESTION), "votes": MapOf(ListOf("number")), "json": "text"}
_FIRST: dict[type[BaseModel], tuple[str, ...]] = {
    GraderRecord: ("key", "type", "error", "is_unmeasured", "is_optional", "never_asked", "seconds", "waited_seconds"),
    JudgeAnswer: ("judge", "model", "error", "never_asked"),
}
"""The fields that come first in a table, so that files of all versions have the same types."""
_SHOWN = {"artifact_path": "shown_output", "run_params": "shown_params"}
"""What a table has of a field that may contain a secret."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, the type of its values, and the value of a cell, which may have another type."""

    name: str
    kind: Kind
    value: Callable[[Record], Any]


@dataclass(frozen=True)
class Table:
    """Cells in columns. The records are read when the rows are."""

    columns: Sequence[Column]
    records: Iterable[Record]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def rows(self) -> Iterator[list[Any]]:
        """The values of each cell as they are in its record."""
        return ([column.value(record) for column in self.columns] for record in self.records)

    def typed_rows(self) -> Iterator[dict[str, Any]]:
        """The values of each cell by column, in the types of the columns."""
        for record in self.records:
            yield {column.name: typed(column.value(record), column.kind) for column in self.columns}


def fields_of(model: type[BaseModel]) -> dict[str, Kind]:
    """The types of the fields of records and of their parts."""
    names = dict.fromkeys((*_FIRST.get(model, ()), *model.model_fields))
    return {name: _DETAILS if name == "details" else _kind(model.model_fields[name].annotation) for name in names}


def _kind(annotation: Any) -> Kind:
    origin, parts = get_origin(annotation), [part for part in get_args(annotation) if part is not NoneType]
    if origin is Annotated:
        return _kind(parts[0])
    if origin in (Union, UnionType):  # of a type and None, or of those of a score
        return _kind(parts[-1])
    if origin is tuple:
        return ListOf(_kind(parts[0]))
    if origin is dict:
        return MapOf(_kind(parts[1]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return fields_of(annotation)
    return {int: "integer", float: "number", bool: "flag"}.get(annotation, "text")


def cell_table(records: Iterable[Record], info: RunInfo) -> Table:
    """What people read of each cell, and its scores."""
    kinds = fields_of(Record)
    columns = [Column(name, kinds[name], attrgetter(_SHOWN.get(name, name))) for name in _CELL]
    return Table([*columns, Column("error", "text", error_text), *score_columns(info)], records)


def record_table(records: Iterable[Record], info: RunInfo) -> Table:
    """All fields of each record, and its scores."""
    kinds = fields_of(Record).items()
    columns = [
        Column(name, kind, attrgetter(_SHOWN.get(name, name))) for name, kind in kinds if name != "schema_version"
    ]
    return Table([*columns, *score_columns(info)], records)


def score_columns(info: RunInfo) -> list[Column]:
    """A column for each metric of a run, and after it one for each judge if a panel measures it.

    The columns with the gaps of alignment graders come last; they have those of cells that passed, too.
    """
    writers = writers_of(info)
    panels = {grader.key: grader.judge_names for grader in info.suite.graders if grader.has_panel}
    columns = []
    for metric in info.metrics:
        kind = kind_of(metric, info)
        name = f"{metric} score" if metric in Record.model_fields else metric
        columns.append(Column(name, kind, partial(score_of, metric)))
        judges = panels.get(writers.get(metric, ""), ())
        columns += [Column(f"{name} by {judge}", kind, partial(_score_by, judge, metric)) for judge in judges]
    gaps = [Column(f"{key} gaps", TEXTS, partial(gaps_in, key=key)) for key in alignment_keys(info)]
    return [*columns, *gaps]


def kind_of(metric: str, info: RunInfo) -> str:
    """The type of the scores of a metric."""
    return {"bool": "flag", "number": "number", "one_of": "text"}[info.metrics[metric].type]


def score_of(metric: str, record: Record) -> Score:
    """The score in a record; ``None`` if it was not measured or does not apply."""
    return record.scores.get(metric)


def _score_by(judge: str, metric: str, record: Record) -> Score:
    answers = (answer for grader in record.graders for answer in grader.judges if answer.judge == judge)
    return next((answer.scores[metric] for answer in answers if metric in answer.scores), None)


def error_text(record: Record) -> str | None:
    """The error of a cell on one line, with its stage and kind."""
    error = record.error
    return f"{error.stage}/{error.kind}: {error.message}" if error else None


def typed(value: Any, kind: Kind) -> Any:
    """A value in the type of a column. What does not fit is ``None``, or an item that is left out."""
    if isinstance(kind, ListOf):
        items = value if isinstance(value, (list, tuple)) else () if value is None else (value,)
        is_flat = not isinstance(kind.item, dict)
        return [typed(item, kind.item) for item in items if is_flat or isinstance(item, (dict, Frozen))]
    if isinstance(kind, MapOf):
        return None if value is None else [(key, typed(item, kind.value)) for key, item in value.items()]
    if isinstance(kind, dict):
        return None if value is None else {name: typed(_field(value, name), part) for name, part in kind.items()}
    if kind == "text":
        return value if value is None or isinstance(value, str) else json_text(value)
    if not isinstance(value, (bool, int, float)):
        return None
    if kind == "flag":
        return bool(value) if value in (0, 1) else None
    return float(value) if kind == "number" else min(value, _MAX_INTEGER)


def _field(value: Any, name: str) -> Any:
    """A field of a record, or of the JSON in one. Details have all that they contain as JSON, too."""
    if isinstance(value, Mapping):
        return value.get(name)
    field = getattr(value, name)
    if name != "details":
        return field
    votes = field.get("votes")
    return {**field, "votes": votes if isinstance(votes, dict) else {}, "json": json_text(field)}


def json_text(value: Any) -> str:
    """Plain data as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def format_of(requested: str | None, output: Path | None, formats: tuple[str, ...]) -> str:
    """The requested format, else the one of the file's extension, else the first. Raises ``UsageError``."""
    form = requested or (output.suffix.removeprefix(".").lower() if output else formats[0])
    if form in formats:
        return form
    problem = f"--format {requested}: not" if requested else f"{output}: give --format,"
    raise UsageError(f"{problem} one of {', '.join(formats)}")
