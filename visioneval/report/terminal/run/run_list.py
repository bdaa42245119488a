"""A list of runs, grouped by experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from visioneval.analysis.summary.findings import Counts
from visioneval.report.terminal.run.summary import RATE, show_rate
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import one_line


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list: its id, its raw ``run.json`` and its counts (``None`` if the records cannot be read)."""

    run_id: str
    info: Mapping[str, Any]
    counts: Counts | None

    @property
    def experiment(self) -> str:
        """The experiment of the run, or an empty string."""
        return str(self.info.get("experiment") or "")


def print_runs(runs: Sequence[ListedRun], console: Console) -> None:
    """Prints runs grouped by experiment. Runs without an experiment come first."""
    for experiment in sorted({run.experiment for run in runs}):
        members = [run for run in runs if run.experiment == experiment]
        notes = any(run.info.get("note") for run in members)
        columns = [Column("run"), Column("state"), Column(RATE), Column("error", right=True)]
        columns += [Column("note", min_width=12)] if notes else []
        rows = [_row(run)[: len(columns)] for run in members]
        title = f"experiment {one_line(experiment)}" if experiment else "no experiment"
        console.print(with_title(title, table(columns, rows, console.width)))
        console.print()


def _row(run: ListedRun) -> list[Cell]:
    rate = "unreadable" if run.counts is None else show_rate(run.counts.pass_rate) if run.counts.cells else "empty"
    errors = "" if run.counts is None else str(run.counts.errors)
    return [
        run.run_id,
        one_line(str(run.info.get("state"))),
        rate,
        errors,
        one_line(str(run.info.get("note") or "")),
    ]
