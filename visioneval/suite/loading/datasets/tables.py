"""Reads a dataset: JSONL, JSON, CSV, TSV or Parquet, or a folder of images with a metadata file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from visioneval.bounds import CELLS
from visioneval.errors import Problem, SuiteError, UsageError, count_of
from visioneval.media.urls import BUCKETS, fetch, is_url, url_path
from visioneval.suite.loading.datasets.json_rows import json_rows, jsonl_rows
from visioneval.suite.loading.datasets.parquet import parquet_rows, require_parquet
from visioneval.suite.loading.datasets.rows import Row, separator_hint
from visioneval.suite.loading.paths import located
from visioneval.suite.loading.yaml_reader import decode

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
            yield Problem(name, line, 1, f"not a valid table: {_csv_fault(error)}")
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


def _csv_fault(error: csv.Error) -> str:
    text = str(error)
    return f"a value has more than {MAX_CELL:,} characters" if "field limit" in text else text
