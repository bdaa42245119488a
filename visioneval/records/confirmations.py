"""New samples that confirm what broke: ``confirmations.jsonl``, records in the format of ``results.jsonl``.

``visioneval compare --confirm`` appends to it in run B. Their samples are numbered after those of the run, which does
not count them: only comparisons that confirm do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from visioneval.records.model import Record, RunInfo
from visioneval.records.reader import read_lines
from visioneval.records.stores.writing import open_writer
from visioneval.records.writer import RunWriter, lock_run, repair_last_line, storing

NAME = "confirmations.jsonl"


def has_confirmations(folder: Path) -> bool:
    """Whether new samples of a run exist."""
    path = folder / NAME
    return path.is_file() and path.stat().st_size > 0


def read_confirmations(folder: Path) -> list[Record]:
    """The new samples of a run, one record per cell; empty if there are none.

    Raises ``RunFormatError`` with file and line. Ignores a truncated last line.
    """
    return list({record.cell: record for record in read_lines(folder / NAME, Record)}.values())


@contextmanager
def open_confirmations(folder: Path, info: RunInfo) -> Iterator[RunWriter]:
    """A writer that appends records to the confirmations of a finished run, and images to its artifacts.

    Locks the run. Raises ``UsageError`` if another process writes it, ``StorageError`` if it cannot be written.
    """
    with storing(folder, "write the new samples"):
        results, lines = (folder / "results.jsonl").open("rb", buffering=0), (folder / NAME).open("ab+", buffering=0)
    with results, lines:
        lock_run(results, folder)
        with storing(folder / NAME):
            repair_last_line(lines)
        yield open_writer(folder, info, lines)
