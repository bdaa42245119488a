"""The runs of a folder, by experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from visioneval.analysis.findings import Counts
from visioneval.report.terminal.summary import RATE, show_rate
from visioneval.report.terminal.table import Cell, Column, table, titled
from visioneval.report.text import one_line


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list: its id, its raw ``run.json``, and what it found, ``None`` where that cannot be read."""

    run_id: str
    info: Mapping[str, Any]
    counts: Counts | None

    @property
    def experiment(self) -> str:
        """The experiment that it belongs to; empty for none."""
        return str(self.info.get("experiment") or "")


def print_runs(runs: Sequence[ListedRun], console: Console) -> None:
    """Lists runs, grouped by experiment, each with what it found; runs of none come first."""
    for experiment in sorted({run.experiment for run in runs}):
        own = [run for run in runs if run.experiment == experiment]
        notes = any(run.info.get("note") for run in own)
        columns = [Column("run"), Column("state"), Column(RATE), Column("error", right=True)]
        columns += [Column("note", least=12)] if notes else []
        rows = [_row(run)[: len(columns)] for run in own]
        title = f"experiment {one_line(experiment)}" if experiment else "no experiment"
        console.print(titled(title, table(columns, rows, console.width)))
        console.print()


def _row(run: ListedRun) -> list[Cell]:
    found = "cannot be read" if run.counts is None else show_rate(run.counts.pass_rate) if run.counts.cells else "empty"
    errors = "" if run.counts is None else str(run.counts.errors)
    return [
        run.run_id,
        one_line(str(run.info.get("state"))),
        found,
        errors,
        one_line(str(run.info.get("note") or "")),
    ]
