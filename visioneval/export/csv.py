"""A run as a flat table, for spreadsheets and notebooks."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from visioneval.records.labels import AS_FORMULA
from visioneval.records.model import Record
from visioneval.report.text import clean

_PLAIN = (
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
    "prompt",
)
_LISTS = ("failed_rules", "warned_rules", "failure_tags", "tags")


def write_csv(records: Iterable[Record], metrics: Sequence[str], out: TextIO) -> None:
    """One row per cell, one column per metric; an empty score was not measured or did not apply.

    Control characters are replaced: a table of a run may be looked at in a terminal. Text that a spreadsheet would take
    for a formula gets an apostrophe before it: prompts and names may come from a stranger.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_PLAIN, *_LISTS, "error", *map(harmless, metrics)])
    for record in records:
        error = record.error
        writer.writerow(
            [_cell(getattr(record, name)) for name in _PLAIN]
            + [harmless("; ".join(getattr(record, name))) for name in _LISTS]
            + [clean(f"{error.stage}/{error.kind}: {error.message}") if error else ""]
            + [_cell(record.scores.get(name)) for name in metrics]
        )


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return harmless(value)
    return "" if value is None else value


def harmless(text: str) -> str:
    """Clean, and no formula in a spreadsheet: one begins with ``=``, ``+``, ``-`` or ``@``."""
    told = clean(text)
    return f"'{told}" if AS_FORMULA.match(told) else told
