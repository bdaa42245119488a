"""The cells of a run as a table, for data frames, trackers and files: CSV, TSV, JSON Lines and Parquet.

The types of a table do not depend on the records. Labels have the columns that ``label import`` recognizes. Text that a
spreadsheet would read as a formula gets an apostrophe, since prompts and names may come from an untrusted source.
Control characters are replaced, since a table may be printed in a terminal.

JSON Lines are records that data frame libraries read with their defaults. Some of them take the columns and their types
from the first 100 rows alone, and fail on what differs later or leave it out. So rows that together have all fields and
types come first, and free-form objects are JSON texts.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeAlias, Union, get_args, get_origin

import orjson
from pydantic import BaseModel

from visioneval.analysis.sides import writers_of
from visioneval.analysis.summary.graders import alignment_keys, gaps_in
from visioneval.atomic import part_of
from visioneval.errors import UsageError
from visioneval.records.labels import AS_FORMULA, Label
from visioneval.records.model import GraderRecord, JudgeAnswer, Record, RunInfo
from visioneval.report.text import clean
from visioneval.suite.loading.tables import require_parquet
from visioneval.types import Frozen, Score

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_MAX_INTEGER = 2**63 - 1
_CELL = (
    *("run_id", "test_id", "model_label", "sample_index", "task_type", "status", "verdict", "artifact_path"),
    *("artifact_sha256", "base_path", "width", "height", "cost_usd", "seconds", "waited_seconds"),
    *("prompt", "sent_prompt", "failed_rules", "warned_rules", "failure_tags", "tags"),
)
"""The fields of records that people read."""
_FIRST: dict[type[BaseModel], tuple[str, ...]] = {
    GraderRecord: ("key", "type", "error", "is_unmeasured", "is_optional", "never_asked", "seconds", "waited_seconds"),
    JudgeAnswer: ("judge", "model", "error", "never_asked"),
}
"""The fields that come first in a table, so that files of all versions have the same types."""
_SHOWN = {"artifact_path": "shown_output", "run_params": "shown_params"}
"""What a table has of a field that may contain a secret."""
LABEL_FORMATS = ("csv", "tsv", "jsonl")
READ_ROWS = 100
"""The rows from which polars infers a schema by default."""
ROWS = 1_000
"""Rows of a row group of Parquet, which are in memory together."""
_PANDAS = {"text": "string", "integer": "Int64", "number": "Float64", "flag": "boolean"}


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
_QUESTION: dict[str, Kind] = {
    **dict.fromkeys(("id", "question", "type", "source", "expected", "answer", "choice", "reason"), "text"),
    **dict.fromkeys(("choices", "depends_on"), TEXTS),
    "right": "flag",
    "score": "number",
}
_DETAILS: Kind = {"gaps": TEXTS, "questions": ListOf(_QUESTION), "votes": MapOf(ListOf("number")), "json": "text"}


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
    columns = [*_record_columns(*_CELL), Column("error", "text", error_text), *score_columns(info)]
    return Table(columns, records)


def record_table(records: Iterable[Record], info: RunInfo) -> Table:
    """All fields of each record, and its scores."""
    names = (name for name in Record.model_fields if name != "schema_version")
    return Table([*_record_columns(*names), *score_columns(info)], records)


def _record_columns(*names: str) -> list[Column]:
    kinds = fields_of(Record)
    return [Column(name, kinds[name], attrgetter(_SHOWN.get(name, name))) for name in names]


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


def write_csv(table: Table, out: TextIO) -> None:
    """Writes one row per cell. An empty score was not measured or did not apply."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(escape_formula, table.names))
    writer.writerows(map(csv_value, row) for row in table.rows())


def write_labels(labels: Iterable[Label], form: str, out: TextIO) -> None:
    """Writes one row per answer. In a table, tags are a JSON list, yes is ``true`` and no answer is empty.

    The import removes the apostrophes of formulas.
    """
    if form == "jsonl":
        out.writelines(label.model_dump_json() + "\n" for label in labels)
        return
    names = [name for name in Label.model_fields if name != "schema_version"]
    writer = csv.writer(out, lineterminator="\n", delimiter="," if form == "csv" else "\t")
    writer.writerow(names)
    for label in labels:
        values = (getattr(label, name) for name in names)
        listed = (json.dumps(value, ensure_ascii=False) if isinstance(value, tuple) else value for value in values)
        writer.writerow(map(csv_value, listed))


def write_drawn_cells(records: Iterable[Record], questions: Sequence[str], out: TextIO) -> None:
    """Writes one row per cell as CSV, with the path of its output in the run.

    The columns ``rater`` and those of the ``questions``, by key, are empty: raters fill them in for the import.
    """
    writer = csv.writer(out, lineterminator="\n")
    to_fill_in = ["rater", *questions]
    writer.writerow(["case", "model", "sample", "output", *to_fill_in])
    for record in records:
        writer.writerow([*map(csv_value, (*record.cell, record.shown_output)), *[""] * len(to_fill_in)])


def csv_value(value: Any) -> Any:
    """A value as a spreadsheet reads it, which is never a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return escape_formula("; ".join(value))
    if isinstance(value, str):
        return escape_formula(value)
    return "" if value is None else value


def escape_formula(text: str) -> str:
    """Cleans text and prefixes an apostrophe if a spreadsheet would read it as a formula."""
    cleaned = clean(text)
    return f"'{cleaned}" if AS_FORMULA.match(cleaned) else cleaned


def write_jsonl(read: Callable[[], Iterable[Record]], out: TextIO) -> bool:
    """Writes one line per cell. ``read`` returns all cells in the same order, and is called twice.

    Returns whether the first rows have every field and type, so that a reader's defaults suffice. The lines are records
    that ``compare`` reads.
    """
    first, is_complete = _telling_rows(read())
    out.writelines(first[at] for at in sorted(first))
    for at, record in enumerate(read()):
        if at not in first:
            out.write(_line(record))
    return is_complete


def _telling_rows(records: Iterable[Record]) -> tuple[dict[int, str], bool]:
    """The lines with a field or a type that none before has, by their place; and whether these are all such lines."""
    seen: set[tuple[str, ...]] = set()
    lines: dict[int, str] = {}
    for at, record in enumerate(records):
        line = _line(record)
        fields = set(_typed_fields(orjson.loads(line), ()))
        if not fields <= seen:
            if len(lines) == READ_ROWS:
                return lines, False
            seen |= fields
            lines[at] = line
    return lines, True


def _line(record: Record) -> str:
    data = record.model_dump(mode="json")
    data |= {"metadata": json_text(data["metadata"]), "run_params": json_text(record.shown_params)}
    for part in (*data["graders"], *(answer for grader in data["graders"] for answer in grader["judges"])):
        part["details"] = json_text(part["details"])
    return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE).decode()


def _typed_fields(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The path of each value that is not null, with its type. All items of a list have the same path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _typed_fields(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _typed_fields(item, (*path, "[]"))
    elif value is not None:
        yield (*path, type(value).__name__)


def write_parquet(table: Table, path: Path) -> None:
    """Writes one row per cell. An existing file is replaced at the end. Raises ``UsageError``, also without pyarrow."""
    require_parquet()
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(column.name, _arrow_type(column.kind)) for column in table.columns])
    rows = table.typed_rows()
    with part_of(path) as part, parquet.ParquetWriter(part, schema, compression="zstd") as writer:
        while group := list(islice(rows, ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist(group, schema=schema))


def _arrow_type(kind: Kind) -> pa.DataType:
    import pyarrow as pa

    if isinstance(kind, ListOf):
        return pa.list_(_arrow_type(kind.item))
    if isinstance(kind, MapOf):
        return pa.map_(pa.string(), _arrow_type(kind.value))
    if isinstance(kind, dict):
        return pa.struct([(name, _arrow_type(part)) for name, part in kind.items()])
    return {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}[kind]


def data_frame(table: Table) -> pd.DataFrame:
    """One row per cell, in types that have missing values. Lists stay Python lists.

    Raises ``UsageError`` if pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("to_pandas needs pandas: run pip install pandas") from None
    types = {column.name: _PANDAS[column.kind] for column in table.columns if isinstance(column.kind, str)}
    return pd.DataFrame(table.typed_rows(), columns=table.names).astype(types)
