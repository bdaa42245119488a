"""Exports labels as a table whose columns ``label import`` recognizes."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from visioneval.errors import UsageError
from visioneval.export.csv import escape_formula
from visioneval.records.labels import Label
from visioneval.records.model import Record
from visioneval.report.text import clean

FORMATS = ("csv", "tsv", "jsonl")


def format_of(requested: str | None, output: Path | None, formats: tuple[str, ...] = FORMATS) -> str:
    """The requested format, else the one of the file's extension, else the first. Raises ``UsageError``."""
    form = requested or (output.suffix.removeprefix(".").lower() if output else formats[0])
    if form in formats:
        return form
    problem = f"--format {requested}: not" if requested else f"{output}: give --format,"
    raise UsageError(f"{problem} one of {', '.join(formats)}")


def write_labels(labels: Iterable[Label], form: str, out: TextIO) -> None:
    """Writes one row per answer. In a table, tags are a JSON list, yes is ``true`` and no answer is empty.

    Prefixes text that a spreadsheet would read as a formula with an apostrophe, which the import removes.
    """
    if form == "jsonl":
        out.writelines(label.model_dump_json() + "\n" for label in labels)
        return
    names = [name for name in Label.model_fields if name != "schema_version"]
    writer = csv.writer(out, lineterminator="\n", delimiter="," if form == "csv" else "\t")
    writer.writerow(names)
    for label in labels:
        writer.writerow([_cell(getattr(label, name)) for name in names])


def write_drawn_cells(records: Iterable[Record], questions: Sequence[str], out: TextIO) -> None:
    """Writes one row per cell as CSV, with the path of its output in the run.

    The columns ``rater`` and those of the ``questions``, by key, are empty: raters fill them in for the import.
    """
    writer = csv.writer(out, lineterminator="\n")
    to_fill_in = ["rater", *questions]
    writer.writerow(["case", "model", "sample", "output", *to_fill_in])
    for record in records:
        writer.writerow([*(_cell(value) for value in (*record.cell, record.shown_output)), *[""] * len(to_fill_in)])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return clean(json.dumps(value, ensure_ascii=False))
    if isinstance(value, str):
        return escape_formula(value)
    return "" if value is None else value
