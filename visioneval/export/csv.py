"""A run as a flat table, for spreadsheets and notebooks."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from visioneval.analysis.alignments import alignment_keys, gaps_in
from visioneval.analysis.sides import writers_of
from visioneval.records.labels import AS_FORMULA
from visioneval.records.model import Record, RunInfo
from visioneval.report.text import clean
from visioneval.types import Score

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
    "base_path",
    "width",
    "height",
    "cost_usd",
    "seconds",
    "waited_seconds",
    "prompt",
    "sent_prompt",
)
LIST_FIELDS = ("failed_rules", "warned_rules", "failure_tags", "tags")
"""The columns whose values are lists."""


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """The scores of a metric, or those that one judge of a panel gave it."""

    metric: str
    judge: str | None = None

    @property
    def header(self) -> str:
        """The name of the column: that of the metric, unless a field of records has it."""
        name = f"{self.metric} score" if self.metric in Record.model_fields else self.metric
        return name if self.judge is None else f"{name} by {self.judge}"

    def value(self, record: Record) -> Score:
        """The score in a record; ``None`` if it was not measured or does not apply."""
        if self.judge is None:
            return record.scores.get(self.metric)
        answers = (answer for grader in record.graders for answer in grader.judges if answer.judge == self.judge)
        return next((answer.scores[self.metric] for answer in answers if self.metric in answer.scores), None)


@dataclass(frozen=True, slots=True)
class GapColumn:
    """The gaps that an alignment grader found, also in cells that passed."""

    grader: str

    @property
    def header(self) -> str:
        """The name of the column."""
        return f"{self.grader} gaps"

    def value(self, record: Record) -> list[str]:
        """One sentence for each unmet requirement."""
        return list(gaps_in(record, self.grader))


Column = ScoreColumn | GapColumn


def score_columns(info: RunInfo) -> list[Column]:
    """A column for each metric of a run, and after it one for each judge if a panel measures it.

    The columns with the gaps of alignment graders come last.
    """
    writers = writers_of(info)
    panels = {grader.key: grader.judge_names for grader in info.suite.graders if grader.has_panel}
    scores = [
        ScoreColumn(metric, judge)
        for metric in info.metrics
        for judge in (None, *panels.get(writers.get(metric, ""), ()))
    ]
    return [*scores, *map(GapColumn, alignment_keys(info))]


def write_csv(records: Iterable[Record], columns: Sequence[Column], out: TextIO) -> None:
    """Writes one row per cell, with the score columns last. An empty score was not measured or did not apply.

    Replaces control characters, since a table may be printed in a terminal. Prefixes text that a spreadsheet would
    read as a formula with an apostrophe, since prompts and names may come from an untrusted source.
    """
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(escape_formula, row_names(columns)))
    writer.writerows(map(csv_cell, cell_row(record, columns).values()) for record in records)


def row_names(columns: Iterable[Column]) -> list[str]:
    """The names of the values of ``cell_row``."""
    return [*_FIELDS, *LIST_FIELDS, "error", *(column.header for column in columns)]


def cell_row(record: Record, columns: Iterable[Column]) -> dict[str, Any]:
    """The fields of a cell and its scores, which are ``None`` if they were not measured."""
    error = record.error
    row: dict[str, Any] = {name: getattr(record, name) for name in _FIELDS}
    row["artifact_path"] = record.shown_output
    row |= {name: list(getattr(record, name)) for name in LIST_FIELDS}
    row["error"] = f"{error.stage}/{error.kind}: {error.message}" if error else None
    return row | {column.header: column.value(record) for column in columns}


def csv_cell(value: Any) -> Any:
    """A value as a spreadsheet reads it, which is never a formula."""
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
