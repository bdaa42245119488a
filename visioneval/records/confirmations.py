"""New samples that confirm what broke: ``confirmations.jsonl``, records in the format of ``results.jsonl``.

``visioneval compare --confirm`` appends to it in run B. Their samples are numbered after those of the run, which does
not count them: only comparisons that confirm do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import TypeAdapter

from visioneval.errors import StorageError
from visioneval.records.model import Record, RunInfo
from visioneval.records.reader import read_lines
from visioneval.records.stores.writing import open_writer
from visioneval.records.writer import RunWriter, lock_run, repair_last_line

NAME = "confirmations.jsonl"
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


def has_confirmations(folder: Path) -> bool:
    """Whether new samples of a run exist."""
    path = folder / NAME
    return path.is_file() and path.stat().st_size > 0


def read_confirmations(folder: Path) -> list[Record]:
    """The new samples of a run, one record per cell; empty if there are none.

    Raises ``RunFormatError`` with file and line. Ignores a truncated last line.
    """
    lines = read_lines(folder / NAME, _RECORD) if has_confirmations(folder) else ()
    return list({record.cell: record for record in lines}.values())


@contextmanager
def open_confirmations(folder: Path, info: RunInfo) -> Iterator[RunWriter]:
    """A writer that appends records to the confirmations of a finished run, and images to its artifacts.

    Locks the run. Raises ``UsageError`` if another process writes it, ``StorageError`` if it cannot be written.
    """
    try:
        results, lines = (folder / "results.jsonl").open("rb", buffering=0), (folder / NAME).open("ab+", buffering=0)
    except OSError as error:
        raise StorageError(f"{folder}: cannot write the new samples: {error.strerror or error}") from error
    with results, lines:
        lock_run(results, folder)
        try:
            repair_last_line(lines)
        except OSError as error:
            raise StorageError(f"{folder / NAME}: cannot write: {error.strerror or error}") from error
        yield open_writer(folder, info, lines)
