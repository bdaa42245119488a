"""Labels as a table, in the columns that an import reads without being told."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from visioneval.errors import UsageError
from visioneval.export.csv import harmless
from visioneval.records.labels import Label
from visioneval.report.text import clean

FORMATS = ("csv", "tsv", "jsonl")


def format_of(asked: str | None, output: Path | None, formats: tuple[str, ...] = FORMATS) -> str:
    """The format that was asked for, or else that of the file's ending, or else the first. Raises ``UsageError``."""
    form = asked or (output.suffix.removeprefix(".").lower() if output else formats[0])
    if form in formats:
        return form
    what = f"--format {asked}: not" if asked else f"{output}: say --format,"
    raise UsageError(f"{what} one of {', '.join(formats)}")


def write_labels(labels: Iterable[Label], form: str, out: TextIO) -> None:
    """One row per answer. In a table tags are a JSON list, a yes is ``true``, and no answer is empty.

    A text that a spreadsheet would take for a formula gets an apostrophe in front, which an import takes away again.
    """
    if form == "jsonl":
        out.writelines(label.model_dump_json() + "\n" for label in labels)
        return
    names = [name for name in Label.model_fields if name != "schema_version"]
    writer = csv.writer(out, lineterminator="\n", delimiter="," if form == "csv" else "\t")
    writer.writerow(names)
    for label in labels:
        writer.writerow([_cell(getattr(label, name)) for name in names])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return clean(json.dumps(value, ensure_ascii=False))
    if isinstance(value, str):
        return harmless(value)
    return "" if value is None else value
