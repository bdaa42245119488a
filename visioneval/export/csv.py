"""Cells and labels as tables for spreadsheets. Labels have the columns that ``label import`` recognizes.

Text that a spreadsheet would read as a formula gets an apostrophe, since prompts and names may come from an untrusted
source. Control characters are replaced, since a table may be printed in a terminal.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from visioneval.export.table import Table
from visioneval.records.labels import AS_FORMULA, Label
from visioneval.records.model import Record
from visioneval.report.text import clean

LABEL_FORMATS = ("csv", "tsv", "jsonl")


def write_csv(table: Table, out: TextIO) -> None:
    """Writes one row per cell. An empty score was not measured or did not apply."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(escape_formula, table.names))
    writer.writerows(map(csv_value, row) for row in table.rows())


def write_labels(labels: Iterable[Label], form: str, out: TextIO) -> None:
    """Writes one row per answer. In a table, tags are a JSON list, yes is ``true`` and no answer is empty.

    The import removes the apostrophes of formulas.
    """
    if form == "jsonl":
        out.writelines(label.model_dump_json() + "\n" for label in labels)
        return
    names = [name for name in Label.model_fields if name != "schema_version"]
    writer = csv.writer(out, lineterminator="\n", delimiter="," if form == "csv" else "\t")
    writer.writerow(names)
    for label in labels:
        values = (getattr(label, name) for name in names)
        writer.writerow([_json_list(value) if isinstance(value, tuple) else csv_value(value) for value in values])


def write_drawn_cells(records: Iterable[Record], questions: Sequence[str], out: TextIO) -> None:
    """Writes one row per cell as CSV, with the path of its output in the run.

    The columns ``rater`` and those of the ``questions``, by key, are empty: raters fill them in for the import.
    """
    writer = csv.writer(out, lineterminator="\n")
    to_fill_in = ["rater", *questions]
    writer.writerow(["case", "model", "sample", "output", *to_fill_in])
    for record in records:
        writer.writerow([*map(csv_value, (*record.cell, record.shown_output)), *[""] * len(to_fill_in)])


def csv_value(value: Any) -> Any:
    """A value as a spreadsheet reads it, which is never a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return escape_formula("; ".join(value))
    if isinstance(value, str):
        return escape_formula(value)
    return "" if value is None else value


def _json_list(values: tuple[Any, ...]) -> str:
    return clean(json.dumps(values, ensure_ascii=False))


def escape_formula(text: str) -> str:
    """Cleans text and prefixes an apostrophe if a spreadsheet would read it as a formula."""
    cleaned = clean(text)
    return f"'{cleaned}" if AS_FORMULA.match(cleaned) else cleaned
