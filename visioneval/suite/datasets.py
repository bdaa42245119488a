"""Rows from JSONL, CSV and TSV files, as cases and as finished pictures. Every row knows its line."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from visioneval.errors import Problem, SuiteError
from visioneval.suite.messages import did_you_mean
from visioneval.suite.yaml_reader import decode

MAX_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the line that it starts on, counted from 1, and its cells by column."""

    line: int
    cells: Mapping[str, Any]


def read_rows(path: Path, name: str) -> list[Row]:
    """All rows of a JSONL (``.jsonl``, ``.ndjson``), CSV or TSV file.

    Raises ``SuiteError`` for a file that is missing, not UTF-8 or of another kind, and for each row that cannot
    be read, all rows in one go.
    """
    readers = {".jsonl": _json_rows, ".ndjson": _json_rows, ".csv": _comma_rows, ".tsv": _tab_rows}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise SuiteError([Problem(name, 0, 0, f"a dataset ends in {', '.join(readers)}")])
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SuiteError([Problem(name, 0, 0, f"over the limit of {MAX_BYTES:,} bytes")])
        data = path.read_bytes()
    except OSError as error:
        raise SuiteError([Problem(name, 0, 0, error.strerror or str(error))]) from None
    rows: list[Row] = []
    problems: list[Problem] = []
    for row in reader(decode(data, name), name):
        if isinstance(row, Row):
            rows.append(row)
        else:
            problems.append(row)
    if not rows and not problems:
        problems.append(Problem(name, 0, 0, "the dataset has no rows"))
    if problems:
        raise SuiteError(problems)
    return rows


def _json_rows(text: str, name: str) -> Iterator[Row | Problem]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            column = getattr(error, "colno", 1)
            yield Problem(name, number, column, f"not JSON: {getattr(error, 'msg', 'nested too deeply')}")
            continue
        if isinstance(cells, dict):
            yield Row(number, cells)
        else:
            yield Problem(name, number, 1, 'a row is an object: {"column": value, ...}')


def _comma_rows(text: str, name: str) -> Iterator[Row | Problem]:
    return _table_rows(text, name, ",")


def _tab_rows(text: str, name: str) -> Iterator[Row | Problem]:
    return _table_rows(text, name, "\t")


def _table_rows(text: str, name: str, delimiter: str) -> Iterator[Row | Problem]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield Problem(name, line, 1, f"not a table: {error}")
            return
        if cells is None:
            return
        if header is None:
            header = cells
            if len(set(header)) < len(header):
                yield Problem(name, line, 1, "two columns of the header have one name")
                return
        elif len(cells) == len(header):
            yield Row(line, dict(zip(header, cells, strict=True)))
        elif cells:
            yield Problem(name, line, 1, f"{len(cells)} cells, but the header has {len(header)}")
        line = reader.line_num + 1


def missing_columns(rows: list[Row], fields: Mapping[str, str]) -> list[str]:
    """What to say of each mapped column that no row has."""
    have = {column for row in rows for column in row.cells}
    return [
        f"fields.{key}: the dataset has no column {column!r}{did_you_mean(column, have)}"
        for key, column in fields.items()
        if column not in have
    ]


def prompt_id(prompt: str) -> str:
    """The id of a row that has none: a slug of its prompt and 8 hex digits of the prompt's hash."""
    ascii_only = unicodedata.normalize("NFKD", prompt).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "_", ascii_only.lower()).strip("_")[:40].strip("_")
    return f"{slug or 'prompt'}_{sha256(prompt.encode()).hexdigest()[:8]}"


def row_id(row: Row, fields: Mapping[str, str]) -> str:
    """A row's id: its own column, or made from its prompt. Empty where it has neither."""
    own = row.cells.get(fields.get("id", ""))
    if own not in (None, ""):
        return str(own)
    prompt = row.cells.get(fields.get("prompt", ""))
    return prompt_id(str(prompt)) if prompt not in (None, "") else ""


def case_of(row: Row, fields: Mapping[str, str]) -> dict[str, Any]:
    """The keys of a case that a row holds, nested as the dotted names of ``fields`` say; no picture, no model."""
    case: dict[str, Any] = {}
    for key, column in fields.items():
        value = row.cells.get(column)
        if key in ("image", "model") or value in (None, ""):
            continue
        *parents, last = key.split(".")
        inner = case
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = _value(key, value)
    case["id"] = row_id(row, fields)
    if isinstance(case.get("prompt"), str):
        case["prompt"] = literal(case["prompt"])
    if isinstance(case.get("criteria"), str):
        case["criteria"] = literal(case["criteria"])
    return case


def literal(text: str) -> str:
    """Text of a dataset as a template that renders to itself: data is never a template."""
    if not any(sign in text for sign in ("{{", "{%", "{#")):
        return text
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}"


_LISTS = {"images", "tags", "expect.text.required", "expect.text.forbidden", "expect.text.allowed"}
_MAPPINGS = {"masks", "expect", "expect.text", "metadata"}


def _value(key: str, value: Any) -> Any:
    if key in _LISTS | _MAPPINGS and isinstance(value, str) and value[:1] in ("[", "{"):
        with suppress(ValueError):
            value = json.loads(value)
    if key in _LISTS and not isinstance(value, list):
        return [value]
    return value
