"""A list of runs, grouped by experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from visioneval.analysis.summary.counts import Counts, count, most_common
from visioneval.errors import RunFormatError
from visioneval.records.model import Record, read_records
from visioneval.records.stores.locations import display_name
from visioneval.report.terminal.run.failure_tags import failure_tag_table
from visioneval.report.terminal.run.summary import RATE, show_rate
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import clean, one_line, plain


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list: its id, its raw ``run.json`` and its counts (``None`` if the records cannot be read)."""

    run_id: str
    info: Mapping[str, Any]
    counts: Counts | None
    failure_tags: Mapping[str, int] = field(default_factory=dict)
    """The number of cells with each failure tag."""

    @property
    def experiment(self) -> str:
        """The experiment of the run, or an empty string."""
        return str(self.info.get("experiment") or "")


def listed_run(folder: Path, info: Mapping[str, Any], problem: str | None, warn: Callable[[str], None]) -> ListedRun:
    """A run as it is listed; without counts, and with a warning, if there is a ``problem`` or it cannot be read."""
    tags: Counter[str] = Counter()

    def counted(cells: Iterable[Record]) -> Iterator[Record]:
        for cell in cells:
            tags.update(cell.failure_tags)
            yield cell

    if problem is not None:
        warn(clean(problem))
        return ListedRun(folder.name, info, None)
    try:
        return ListedRun(folder.name, info, count(counted(read_records(folder))), tags)
    except RunFormatError as error:
        warn(clean(display_name(str(error))))
        return ListedRun(folder.name, info, None)


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


def print_failure_tags(runs: Sequence[ListedRun], console: Console) -> None:
    """Prints the failure tags of the runs of each experiment, with the number of each run."""
    for experiment in sorted({run.experiment for run in runs}):
        members = [run for run in runs if run.experiment == experiment]
        totals = sum((Counter(run.failure_tags) for run in members), Counter[str]())
        title = f"failure tags, experiment {one_line(experiment)}" if experiment else "failure tags, no experiment"
        if not totals:
            console.print(plain(f"{title}: none"))
            continue
        ordered = most_common(totals)
        by_run = [run.failure_tags for run in members]
        console.print(with_title(title, failure_tag_table(ordered, by_run, console.width)))
        for number, run in enumerate(members, 1):
            cells = "unreadable" if run.counts is None else f"{run.counts.cells:,} cells"
            console.print(plain(f"#{number} {one_line(run.run_id)}: {cells}"))
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
