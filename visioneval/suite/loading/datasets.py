"""Reads rows of JSONL, CSV and TSV files as cases and existing outputs. Every row has its line number."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Never

from visioneval.bounds import CELLS
from visioneval.errors import Problem, SuiteError, UsageError
from visioneval.media.urls import fetch, url_path
from visioneval.suite.cases.case import TestCase
from visioneval.suite.loading.messages import did_you_mean, known_keys
from visioneval.suite.loading.yaml_reader import MAX_DEPTH, decode, parse_scalar

MAX_BYTES = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the number of its first line, starting from 1, and its cells by column."""

    line: int
    cells: Mapping[str, Any]


def file_stem(name: str) -> str:
    """The name of a dataset without folder and suffix: the label of rows without a model."""
    return PurePosixPath(url_path(name)).stem


def read_cell_rows(path: Path | str, name: str) -> list[Row]:
    """The rows of a dataset, limited to the maximum number of cells since each row is at least one cell.

    Raises like ``read_rows``.
    """
    return read_rows(path, name, limit=CELLS.limit)


def read_rows(path: Path | str, name: str, *, limit: int | None = None) -> list[Row]:
    """All rows of a JSONL (``.jsonl``, ``.ndjson``), CSV or TSV file, on disk or at a URL (a ``str``).

    Raises ``UsageError`` for a file that cannot be read, and ``SuiteError`` with all problems for a file that is not
    UTF-8 or has invalid rows.
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    for row in scan_rows(path, name):
        if isinstance(row, Row):
            rows.append(row)
        else:
            problems.append(row)
        if limit is not None and len(rows) > limit:
            message = f"the dataset has more than {limit:,} rows, and each row is at least one cell ({CELLS.hint})"
            raise SuiteError([Problem(name, rows[-1].line, 1, message)])
    if not rows and not problems:
        problems.append(Problem(name, 1, 1, "the dataset has no rows"))
    if problems:
        raise SuiteError(problems)
    return rows


def scan_rows(path: Path | str, name: str) -> Iterator[Row | Problem]:
    """Yields the rows of such a file one by one, with a ``Problem`` for each invalid row.

    Raises ``UsageError`` and ``SuiteError`` for a file that cannot be read.
    """
    readers = {".jsonl": _json_rows, ".ndjson": _json_rows, ".csv": _comma_rows, ".tsv": _tab_rows}
    reader = readers.get(PurePosixPath(url_path(str(path))).suffix.lower())
    if reader is None:
        raise UsageError(f"unknown file type: a dataset's name must end in {', '.join(readers)}")
    yield from reader(decode(_read_bytes(path), name), name)


def _read_bytes(path: Path | str) -> bytes:
    if isinstance(path, str):
        return _fetched(path)
    try:
        if path.exists() and not path.is_file():
            raise UsageError("is not a regular file")
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"over the limit of {MAX_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise UsageError((error.strerror or str(error)).lower()) from None


@lru_cache(maxsize=4)
def _fetched(url: str) -> bytes:
    """Fetches a URL once per process, so that checks, plan and run see the same rows."""
    return fetch(url, MAX_BYTES)


def _json_rows(text: str, name: str) -> Iterator[Row | Problem]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            cells = _DECODER.decode(line.strip())
            _check_plain(line, cells)
        except json.JSONDecodeError as error:
            yield Problem(name, number, error.colno, f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}")
        except RecursionError:
            yield Problem(name, number, 1, f"nested more than {MAX_DEPTH} levels deep")
        except ValueError as error:
            yield Problem(name, number, 1, str(error))
        else:
            row = isinstance(cells, dict)
            yield (
                Row(number, cells)
                if row
                else Problem(name, number, 1, 'a row must be an object: {"column": value, ...}')
            )


def _refuse_constant(text: str) -> Never:
    raise ValueError(f"{text} is not valid JSON: write null or a quoted string")


def _finite_float(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"the number {text} is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > 100:
        raise ValueError("a number has more than 100 digits: put it in quotes")
    return int(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    cells = dict(pairs)
    if len(cells) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is duplicated")
    return cells


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite_float, parse_int=_integer, object_pairs_hook=_unique_keys
)


def _check_plain(line: str, cells: Any) -> None:
    """Rejects data that could not be written to a record. Raises ``ValueError`` and ``RecursionError``."""
    if "\\u" in line:
        try:
            json.dumps(cells, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            lone = ord(error.object[error.start])
            raise ValueError(f"invalid text: a lone surrogate (\\u{lone:04x})") from None
    if line.count("{") + line.count("[") > MAX_DEPTH and _depth(cells) > MAX_DEPTH:
        raise RecursionError


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _comma_rows(text: str, name: str) -> Iterator[Row | Problem]:
    return _table_rows(text, name, ",")


def _tab_rows(text: str, name: str) -> Iterator[Row | Problem]:
    return _table_rows(text, name, "\t")


def _table_rows(text: str, name: str, delimiter: str) -> Iterator[Row | Problem]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield Problem(name, line, 1, f"not a valid table: {error}")
            return
        if cells is None:
            return
        if not cells:
            pass
        elif not header:
            header = cells
            if duplicates := [column for column in header if header.count(column) > 1]:
                yield Problem(name, line, 1, f"the header has two columns named {duplicates[0]!r}")
                return
        elif len(cells) == len(header):
            yield Row(line, dict(zip(header, cells, strict=True)))
        else:
            yield Problem(name, line, 1, f"the row has {len(cells)} values, but the header has {len(header)}")
        line = reader.line_num + 1


def field_problems(fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each key of ``fields`` that is not a key of a case, with a message."""
    for key in fields:
        above = next((parent for parent in _parents(key) if parent in fields), None)
        if above:
            yield key, f"{key!r} cannot have a column because {above!r} has one: remove one of them"
        elif message := _unknown_key(key):
            yield key, message


def _parents(key: str) -> list[str]:
    steps = key.split(".")
    return [".".join(steps[:end]) for end in range(1, len(steps))]


def _unknown_key(key: str) -> str | None:
    schema = TestCase.model_json_schema()
    steps = key.split(".")
    if steps[0] == "metadata" and all(steps):
        return None
    for depth, step in enumerate(steps):
        known = known_keys(schema, steps[:depth]) | ({"output", "model"} if len(steps) == 1 else set())
        if step not in known:
            dotted = (".".join([*steps[:depth], name]) for name in known)
            return f"a case has no key {key!r}{did_you_mean(key, dotted)}"
    return None


def missing_columns(rows: Sequence[Row], fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each key of ``fields`` whose column is missing in all rows, with a message."""
    have = {column for row in rows for column in row.cells}
    for key, column in fields.items():
        if column not in have:
            yield key, f"the dataset has no column {column!r}{did_you_mean(column, have)}"


def prompt_id(prompt: str) -> str:
    """The id of a row without an id: a slug of its prompt and 8 hex digits of the prompt's hash."""
    ascii_only = unicodedata.normalize("NFKD", prompt).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "_", ascii_only.lower()).strip("_")[:40].strip("_")
    return f"{slug or 'prompt'}_{sha256(prompt.encode()).hexdigest()[:8]}"


def row_id(row: Row, fields: Mapping[str, str]) -> str:
    """A row's id: from its id column, or derived from its prompt. Empty if it has neither."""
    value = row.cells.get(fields.get("id", ""))
    if value not in (None, ""):
        return str(value)
    prompt = row.cells.get(fields.get("prompt", ""))
    return prompt_id(str(prompt)) if prompt not in (None, "") else ""


def case_of(row: Row, fields: Mapping[str, str]) -> dict[str, Any]:
    """A raw case from a row, nested by the dotted names in ``fields``, without output and model."""
    case: dict[str, Any] = {}
    for key, column in fields.items():
        value = row.cells.get(column)
        if key in ("output", "model") or value in (None, ""):
            continue
        *parents, last = key.split(".")
        inner = case
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = _value(key, value)
    case["id"] = row_id(row, fields)
    for key in ("prompt", "criteria"):
        if isinstance(case.get(key), str):
            case[key] = literal(case[key])
    return case


def literal(text: str) -> str:
    """Escapes text of a dataset so that it renders to itself: data is never a template."""
    if not any(sign in text for sign in ("{{", "{%", "{#")):
        return text
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}"


_LISTS = {
    *("images", "tags", "verdict", "questions", "add_questions"),
    *("expect.text.required", "expect.text.forbidden", "expect.text.allowed"),
}
_MAPPINGS = {"masks", "outputs", "expect", "expect.text", "metadata"}
_YES_OR_NO = {"expect.aligned", "expect.alpha", "expect.refusal"}


def _value(key: str, value: Any) -> Any:
    """Converts a cell to the type of a case's key, since all cells of a table are text."""
    if key in _YES_OR_NO and isinstance(value, str):
        return parse_scalar(value)
    if key in _LISTS | _MAPPINGS and isinstance(value, str) and value[:1] in ("[", "{"):
        with suppress(ValueError, RecursionError):
            value = _DECODER.decode(value)
    if key in _LISTS and not isinstance(value, list):
        return [value]
    return value
