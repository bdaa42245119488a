"""Reads a dataset: JSONL, JSON, CSV, TSV or Parquet, or a folder of images with a metadata file.

JSON is decoded item by item, so that every row has its line. Parquet needs the extra ``parquet``, and the line of its
row is the number of the row.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from visioneval.bounds import CELLS
from visioneval.errors import Problem, SuiteError, UsageError, count_of
from visioneval.installation import install_command
from visioneval.media.urls import BUCKETS, fetch, is_url, url_path
from visioneval.suite.files import located
from visioneval.suite.loading.cells import DECODER, check_plain, json_fault
from visioneval.suite.loading.document import decode
from visioneval.suite.loading.rows import KEY, VALUE, Row, separator_hint

_SPACE = re.compile(r"[ \t\r\n]*")


def jsonl_rows(text: str, name: str) -> Iterator[Row | Problem]:
    """One object per line. An invalid line is a problem, and the next one is read."""
    number = 0
    for line, part in enumerate(text.split("\n"), 1):
        if not part.strip():
            continue
        number += 1
        try:
            cells = DECODER.decode(part.strip())
            check_plain(part, cells)
        except (ValueError, RecursionError) as error:
            column = error.colno if isinstance(error, json.JSONDecodeError) else 1
            yield Problem(name, line, column, json_fault(error))
        else:
            if isinstance(cells, dict):
                yield Row(line, cells, number)
            else:
                yield Problem(name, line, 1, 'a row must be an object: {"column": value, ...}')


def json_rows(text: str, name: str) -> Iterator[Row | Problem]:
    """The items of an array, or the members of an object, whose keys become the column ``_key``.

    Text and other values that are not objects become the column ``_value``. The first syntax error is a problem and
    ends the rows.
    """
    scanner = _Scanner(text)
    sign = text[scanner.at : scanner.at + 1]
    if sign not in ("[", "{"):
        yield Problem(name, scanner.line, 1, "a JSON dataset must be an array of objects, or an object by id")
        return
    keys: set[str] = set()
    number = 0
    try:
        for key, value in scanner.items(is_object=sign == "{"):
            number += 1
            if key is not None and key in keys:
                yield Problem(name, scanner.item_line, 1, f"the key {key!r} is duplicated")
                continue
            cells = value if isinstance(value, dict) else {VALUE: value}
            if key is not None:
                keys.add(key)
                cells = {KEY: key, **cells}
            yield Row(scanner.item_line, cells, number)
    except json.JSONDecodeError as error:
        yield Problem(name, error.lineno, error.colno, json_fault(error))
    except (ValueError, RecursionError) as error:
        yield Problem(name, scanner.item_line, 1, json_fault(error))


class _Scanner:
    """Decodes the items of the outermost array or object of a text one by one. ``item_line`` is the current one's."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.item_line = 1
        self._skip()

    def items(self, *, is_object: bool) -> Iterator[tuple[str | None, Any]]:
        """Key and value of each member of an object, or ``None`` and each item of an array."""
        end = "}" if is_object else "]"
        self._move(self.at + 1)
        if self.text[self.at : self.at + 1] == end:
            return self._finish()
        while True:
            self.item_line = self.line
            key = self._key() if is_object else None
            start = self.at
            value = self._value()
            check_plain(self.text[start : self.at], value)
            yield key, value
            self._skip()
            sign = self.text[self.at : self.at + 1]
            if sign == end:
                return self._finish()
            if sign != ",":
                raise json.JSONDecodeError(f"Expecting ',' delimiter or '{end}'", self.text, self.at)
            self._move(self.at + 1)

    def _finish(self) -> None:
        self._move(self.at + 1)
        if self.at < len(self.text):
            raise json.JSONDecodeError("Extra data", self.text, self.at)

    def _key(self) -> str:
        key = self._value()
        self._skip()
        if not isinstance(key, str) or self.text[self.at : self.at + 1] != ":":
            raise json.JSONDecodeError("Expecting a key in double quotes and ':'", self.text, self.at)
        self._move(self.at + 1)
        return key

    def _value(self) -> Any:
        value, end = DECODER.raw_decode(self.text, self.at)
        self._advance(end)
        return value

    def _move(self, at: int) -> None:
        self._advance(at)
        self._skip()

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self._advance(match.end() if match else self.at)

    def _advance(self, at: int) -> None:
        self.line += self.text.count("\n", self.at, at)
        self.at = at


MAX_DECOMPRESSED = 1024 * 1024 * 1024
"""Limits the decompressed rows, since a small file may contain large ones."""
_BATCH = 256


def require_parquet() -> None:
    """Raises ``UsageError`` without pyarrow."""
    if find_spec("pyarrow") is None:
        raise UsageError(f"Parquet needs an extra: {install_command('parquet')}")


def parquet_rows(data: bytes, name: str) -> Iterator[Row | Problem]:
    """Yields the rows, without columns of binary data, which only have a name. Needs pyarrow."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        names = list(file.schema_arrow.names)
        if duplicates := [column for column in names if names.count(column) > 1]:
            yield Problem(name, 1, 1, f"the file has two columns named {duplicates[0]!r}")
            return
        readable = [field.name for field in file.schema_arrow if not _is_binary(field.type)]
        binary = frozenset(names) - frozenset(readable)
        number = size = 0
        for batch in file.iter_batches(batch_size=_BATCH, columns=readable):
            size += batch.nbytes
            if size > MAX_DECOMPRESSED:
                yield Problem(name, number + 1, 1, f"over the limit of {MAX_DECOMPRESSED:,} bytes when decompressed")
                return
            for cells in batch.select(readable).to_pylist(maps_as_pydicts="strict"):
                number += 1
                try:
                    values = {column: _plain(value, column) for column, value in cells.items()}
                    yield Row(number, values, number, binary=binary)
                except ValueError as error:
                    yield Problem(name, number, 1, str(error))
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())[:200]
        yield Problem(name, 1, 1, f"not a Parquet file that can be read: {text}")


def _is_binary(kind: Any) -> bool:
    """Whether a column's values contain bytes, as images inside a file do."""
    from pyarrow import types

    is_bytes = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return is_bytes or any(_is_binary(kind.field(index).type) for index in range(kind.num_fields))


def _plain(value: Any, column: str) -> Any:
    """A value as JSON would have it; NaN is how data frames write a missing number. Raises ``ValueError``."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | Decimal):
        if math.isnan(value):
            return None
        if math.isinf(value):
            raise ValueError(f"{column}: {value} is not a valid value: write null or text")
        return value if isinstance(value, float) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item, column) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item, column) for key, item in value.items()}
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}"
    return value.isoformat() if isinstance(value, date | datetime | time) else str(value)


MAX_BYTES = 1024 * 1024 * 1024
MAX_CELL = 16 * 1024 * 1024
"""Characters of one value of a CSV or TSV file."""
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""The file that describes a folder of images, with the column ``file_name``: the layout of an imagefolder."""

_TEXT: dict[str, Callable[[str, str], Iterator[Row | Problem]]] = {
    ".jsonl": jsonl_rows,
    ".ndjson": jsonl_rows,
    ".json": json_rows,
}
FORMATS: Mapping[str, str] = {
    **dict.fromkeys((".jsonl", ".ndjson"), "an object per line"),
    ".json": "items of an array, or members of an object, whose name is the column `_key` and the default ID; an item "
    "that is no object is the column `_value`",
    **dict.fromkeys((".csv", ".tsv"), "lines after a header, in UTF-8; a first line `sep=;` names the separator"),
    ".parquet": "rows, where NaN is a missing value; binary columns cannot be used; needs the extra `parquet`",
    "FOLDER": "the rows of its `metadata.jsonl`, `.csv` or `.parquet`, whose column `file_name` names an image; a "
    "URL is a folder if its last part has no dot",
}
"""What the rows of each kind of file are, for the reference."""
_NAMED_SEPARATOR = re.compile(r'"?sep=(\\t|[^"\r\n])?\1*"?[ \t]*(?:\r\n|\r|\n|\Z)', re.IGNORECASE)
"""The first line of a table for Excel. It is no row, and names the separator of the others."""
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (*_TEXT, *_SEPARATORS, ".parquet")


def file_stem(name: str) -> str:
    """The name of a dataset without folder and suffix: the label of rows without a model."""
    path = PurePosixPath(url_path(name))
    return path.parent.name if path.name in METADATA else path.stem


def table_name(name: str, folder: Path) -> str:
    """The name of the file with the rows: ``name``, or the metadata in the folder of images that it names.

    ``name`` is written in a file of ``folder``. Raises ``UsageError`` for a folder without metadata.
    """
    if is_url(name):
        is_bucket = name.split("://", 1)[0] in BUCKETS
        is_folder = is_bucket and not PurePosixPath(url_path(name)).suffix
        return f"{name.rstrip('/')}/{METADATA[0]}" if is_folder else name
    try:
        if "\x00" in name or not (folder / name).is_dir():
            return name
        file = next((metadata for metadata in METADATA if (folder / name / metadata).exists()), None)
    except OSError as error:
        raise UsageError((error.strerror or str(error)).lower()) from None
    if file is not None:
        return f"{name.rstrip('/')}/{file}"
    raise UsageError(f"the folder has no {METADATA[0]}: add one with the column file_name, or name a file")


def read_cell_rows(path: Path | str, name: str, *, separator: str | None = None) -> list[Row]:
    """The rows of a dataset, limited to the maximum number of cells since each row is at least one cell.

    Raises like ``read_rows``.
    """
    return read_rows(path, name, separator=separator, limit=CELLS.limit)


def read_rows(path: Path | str, name: str, *, separator: str | None = None, limit: int | None = None) -> list[Row]:
    """All rows of a file, on disk or at a URL (a ``str``). ``separator`` is that of a CSV file.

    Raises ``UsageError`` for a file that cannot be read, and ``SuiteError`` with all problems for a file that is not
    UTF-8 or has invalid rows.
    """
    rows: list[Row] = []
    problems: list[Problem] = []
    for row in scan_rows(path, name, separator=separator):
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


def scan_rows(path: Path | str, name: str, *, separator: str | None = None) -> Iterator[Row | Problem]:
    """Yields the rows of such a file one by one, with a ``Problem`` for each invalid row.

    Raises ``UsageError`` and ``SuiteError`` for a file that cannot be read.
    """
    suffix = PurePosixPath(url_path(str(path))).suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"unknown file type: a dataset's name must end in {', '.join(SUFFIXES)}")
    if separator is not None and suffix not in _SEPARATORS:
        raise UsageError(f"separator: only a .csv or .tsv file has one, not a {suffix} file")
    if suffix == ".parquet":
        require_parquet()  # before the file is fetched
    data = _read_bytes(path)
    if suffix == ".parquet":
        yield from parquet_rows(data, name)
        return
    text = decode(data, name)
    del data
    if suffix in _TEXT:
        yield from _TEXT[suffix](text, name)
    else:
        yield from _table_rows(text, name, separator, _SEPARATORS[suffix])


def located_table(name: str, folder: Path) -> tuple[str, Path | str]:
    """``table_name``, and its path or URL. Raises ``UsageError``."""
    name = table_name(name, folder)
    return name, located(name, folder)


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


def _table_rows(text: str, name: str, separator: str | None, usual: str) -> Iterator[Row | Problem]:
    """The rows that have a value. Without ``separator``, the first line names it, or it is the ``usual`` one."""
    csv.field_size_limit(MAX_CELL)
    lines, before = io.StringIO(text, newline=""), 0
    if named := _NAMED_SEPARATOR.match(text):
        lines.seek(named.end())
        before, usual = 1, (named[1] or usual).replace("\\t", "\t")
    reader = csv.reader(lines, delimiter=separator or usual, strict=True)
    header: list[str] = []
    line, number = before + 1, 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            is_long = "field limit" in str(error)
            fault = f"a value has more than {MAX_CELL:,} characters" if is_long else error
            yield Problem(name, line, 1, f"not a valid table: {fault}")
            return
        if cells is None:
            return
        if not any(cell.strip() for cell in cells):
            pass
        elif not header:
            header = cells
            if duplicates := [column for column in header if column.strip() and header.count(column) > 1]:
                yield Problem(name, line, 1, f"the header has two columns named {duplicates[0]!r}")
                return
        elif len(cells) == len(header):
            number += 1
            yield Row(line, dict(zip(header, cells, strict=True)), number, has_text_only=True)
        else:
            message = f"the row has {count_of(len(cells), 'value')}, but the header has {len(header)}"
            if len(header) == 1 and (hint := separator_hint(header[0])):
                yield Problem(name, line, 1, f"{message}: {hint}")
                return
            yield Problem(name, line, 1, message)
        line = before + reader.line_num + 1
