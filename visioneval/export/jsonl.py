"""Records as JSON Lines that data frame libraries read with their defaults.

Some of them take the columns and their types from the first 100 rows alone, and fail on what differs later or leave it
out. So rows that together have all fields and types come first, and free-form objects are JSON texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

import orjson

from visioneval.export.table import json_text
from visioneval.records.model import Record

READ_ROWS = 100
"""The rows from which polars infers a schema by default."""


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
