"""Cells and labels as files and data frames: CSV, TSV, JSON Lines and Parquet, which needs the extra ``parquet``.

Labels have the columns that ``label import`` recognizes. Text that a spreadsheet would read as a formula gets an
apostrophe, since prompts and names may come from an untrusted source. Control characters are replaced, since a table
may be printed in a terminal.

JSON Lines are records that data frame libraries read with their defaults. Some of them take the columns and their types
from the first 100 rows alone, and fail on what differs later or leave it out. So rows that together have all fields and
types come first, and free-form objects are JSON texts.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from visioneval.errors import UsageError
from visioneval.export.table import Kind, ListOf, MapOf, Table, json_text
from visioneval.records.labels import AS_FORMULA, Label
from visioneval.records.model import Record
from visioneval.report.files import part_of
from visioneval.report.text import clean
from visioneval.suite.loading.tables import require_parquet

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LABEL_FORMATS = ("csv", "tsv", "jsonl")
READ_ROWS = 100
"""The rows from which polars infers a schema by default."""
ROWS = 1_000
"""Rows of a row group of Parquet, which are in memory together."""
_PANDAS = {"text": "string", "integer": "Int64", "number": "Float64", "flag": "boolean"}


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
        writer.writerow([_json_list(value) if isinstance(value, tuple) else csv_value(value) for value in values])


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


def _json_list(values: tuple[Any, ...]) -> str:
    return clean(json.dumps(values, ensure_ascii=False))


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
