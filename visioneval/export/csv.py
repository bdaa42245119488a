"""A run as a flat table, for spreadsheets and notebooks."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from visioneval.records.labels import AS_FORMULA
from visioneval.records.model import Record
from visioneval.report.text import clean

_FIELDS = (
    "run_id",
    "test_id",
    "model_label",
    "sample_index",
    "task_type",
    "status",
    "verdict",
    "artifact_path",
    "artifact_sha256",
    "width",
    "height",
    "cost_usd",
    "seconds",
    "waited_seconds",
    "prompt",
)
_LIST_FIELDS = ("failed_rules", "warned_rules", "failure_tags", "tags")


def write_csv(records: Iterable[Record], metrics: Sequence[str], out: TextIO) -> None:
    """Writes one row per cell and one column per metric. An empty score was not measured or did not apply.

    Replaces control characters, since a table may be printed in a terminal. Prefixes text that a spreadsheet would
    read as a formula with an apostrophe, since prompts and names may come from an untrusted source.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_FIELDS, *_LIST_FIELDS, "error", *map(escape_formula, metrics)])
    writer.writerows(map(_cell, cell_row(record, metrics).values()) for record in records)


def cell_row(record: Record, metrics: Iterable[str]) -> dict[str, Any]:
    """The fields of a cell and its score for each metric, which is ``None`` if it was not measured."""
    error = record.error
    row: dict[str, Any] = {name: getattr(record, name) for name in _FIELDS}
    row |= {name: list(getattr(record, name)) for name in _LIST_FIELDS}
    row["error"] = f"{error.stage}/{error.kind}: {error.message}" if error else None
    return row | {metric: record.scores.get(metric) for metric in metrics}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return escape_formula("; ".join(value))
    if isinstance(value, str):
        return escape_formula(value)
    return "" if value is None else value


def escape_formula(text: str) -> str:
    """Cleans text and prefixes an apostrophe if a spreadsheet would read it as a formula."""
    cleaned = clean(text)
    return f"'{cleaned}" if AS_FORMULA.match(cleaned) else cleaned
