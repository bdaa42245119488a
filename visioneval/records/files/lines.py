"""Versioned JSON Lines files: upgrades, reading, and following a file that grows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from pydantic import TypeAdapter

from visioneval.errors import RunFormatError
from visioneval.records.files.run_folders import read_header
from visioneval.records.files.untrusted_json import UnfitJsonError, UnreadableJsonError, read_json

SCHEMA_VERSION = 2

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UPGRADES: dict[str, dict[int, Upgrade]] = {
    kind: {} for kind in ("run", "record", "label", "labeling", "draw", "preference", "diversity")
}
"""For each kind of file and old version, the function that upgrades to the next version."""

PartT = TypeVar("PartT")
LONGEST_LINE = 64 << 20
"""The maximum length of a line in bytes; a longer line is invalid."""
_CURRENT = f'{{"schema_version":{SCHEMA_VERSION},'.encode()
"""The start of a line that ``RunWriter`` wrote: such a line is parsed once, without a version check."""


def read_lines(path: Path, adapter: TypeAdapter[PartT], kind: str = "record") -> Iterator[PartT]:
    """All lines of a file, parsed with ``adapter``; a later line of a cell replaces an earlier one.

    ``kind`` is the file's key in ``UPGRADES``. Raises the same errors as ``read_records``.
    """
    with open_lines(path, kind) as lines:
        yield from parsed_lines(lines, path, adapter, kind)


@contextmanager
def open_lines(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Opens a JSON Lines file, and adds advice to its errors."""
    try:
        with path.open("rb") as lines:
            yield lines
    except (UnreadableJsonError, UnfitJsonError) as error:
        raise RunFormatError(f"{error}: delete this line{_rerun_hint(path) if kind == 'record' else ''}") from None
    except OSError as error:
        raise RunFormatError(f"{path}: {_read_problem(path, error)}") from None


def _read_problem(path: Path, error: OSError) -> str:
    """Why a file cannot be read, and for the records of a run what to do."""
    reason = error.strerror or str(error)
    if path.name != "results.jsonl" or not (path.parent / "run.json").is_file():
        return reason
    is_missing = isinstance(error, FileNotFoundError)
    problem = "the records of this run are missing" if is_missing else f"cannot be read: {reason}"
    return (
        f"{problem}: restore this file, or run the suite again with --reuse all, which takes the answers from the cache"
    )


def _rerun_hint(path: Path) -> str:
    """The advice for a deleted line of a run; empty for other files."""
    if path.name != "results.jsonl" or not (path.parent / "run.json").is_file():
        return ""
    with suppress(RunFormatError):
        if read_header(path.parent).get("graded_from"):
            return ", or grade the source run again"
    return f"; then 'visioneval run --resume {path.parent}' reruns this cell"


def parsed_lines(lines: BinaryIO, path: Path, adapter: TypeAdapter[PartT], kind: str) -> Iterator[PartT]:
    """The parsed lines of an open file. Raises ``UnfitJsonError`` and ``UnreadableJsonError``."""
    for line, where in located_lines(lines, path, kind):
        yield from parse_line(kind, line, where, adapter)


def located_lines(lines: BinaryIO, path: Path, kind: str, first: int = 1) -> Iterator[tuple[bytes, str]]:
    """The lines of an open file that are not blank, each with its place in messages. Raises ``UnfitJsonError``.

    ``first`` is the number of the line at which the file is.
    """
    for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), b""), first):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise UnfitJsonError(f"{path}:{number}: the line is longer than {LONGEST_LINE >> 20} MiB: not a {kind}")
        if not line.isspace():
            yield line, f"{path}:{number}"


class GrowingFile(Generic[PartT]):
    """Reads a JSON Lines file while other processes append to it."""

    def __init__(self, path: Path, adapter: TypeAdapter[PartT], kind: str) -> None:
        self._path, self._wanted, self._kind = path, adapter, kind
        self._file: tuple[int, int] | None = None
        self._end = self._count = 0

    def new(self) -> tuple[list[PartT], bool]:
        """The new lines since the last call, and whether the file is new or was replaced.

        Skips a line without a newline until it is complete. Raises ``RunFormatError`` with file and line.
        """
        if not self._path.is_file():
            was, self._file, self._end, self._count = self._file, None, 0, 0
            return [], was is not None
        with open_lines(self._path, self._kind) as lines:
            return self._read(lines)

    def _read(self, lines: BinaryIO) -> tuple[list[PartT], bool]:
        stat = os.fstat(lines.fileno())
        same = (stat.st_dev, stat.st_ino) == self._file and stat.st_size >= self._end
        end, count = (self._end, self._count) if same else (0, 0)
        lines.seek(end)
        parts: list[PartT] = []
        for line in lines:
            if not line.endswith(b"\n"):
                break
            end, count = end + len(line), count + 1
            if not line.isspace():
                parts += parse_line(self._kind, line, f"{self._path}:{count}", self._wanted)
        self._file, self._end, self._count = (stat.st_dev, stat.st_ino), end, count
        return parts, not same


def parse_line(kind: str, line: bytes, where: str, adapter: TypeAdapter[PartT]) -> Iterator[PartT]:
    """The parsed line, or nothing if it is truncated."""
    if is_current(line):
        yield read_json(adapter, line, where, kind)
        return
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        if not line.endswith(b"\n"):
            return
        raise UnreadableJsonError(f"{where}: not a {kind}: damaged or truncated") from None
    if not isinstance(data, dict):
        raise UnfitJsonError(f"{where}: not a {kind}: not a JSON object")
    current = upgraded(kind, data, where)
    yield read_json(adapter, line if current is data else json.dumps(current).encode(), where, kind)


def is_current(line: bytes) -> bool:
    """Whether a line is whole and of the current version, as ``RunWriter`` wrote it."""
    return line.startswith(_CURRENT) and line.endswith(b"\n")


def upgraded(kind: str, data: dict[str, Any], where: str) -> dict[str, Any]:
    """The data in the current version of its format. Raises ``RunFormatError``."""
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise RunFormatError(f"{where}: no schema_version: not written by visioneval")
    if version > SCHEMA_VERSION:
        raise RunFormatError(
            f"{where}: schema_version {version} is newer than the supported version {SCHEMA_VERSION}: upgrade"
            f" visioneval"
        )
    while version < SCHEMA_VERSION:
        step = UPGRADES[kind].get(version)
        if step is None:
            raise RunFormatError(
                f"{where}: schema_version {version} is older than the supported version {SCHEMA_VERSION}: create"
                f" it again with this version"
            )
        data = {**step(data), "schema_version": version + 1}
        version += 1
    return data
