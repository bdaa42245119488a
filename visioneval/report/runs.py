"""Lists of runs, by experiment, and of baselines, with the runs of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visioneval.analysis.compare.baseline_runs import BaselineSummary
from visioneval.analysis.scores import verdict_rate
from visioneval.analysis.summary.counts import VerdictCounts, count, most_common
from visioneval.errors import RunFormatError
from visioneval.records.baselines import Baseline
from visioneval.records.model import Record
from visioneval.records.reader import read_records
from visioneval.records.stores.lookup import display_name
from visioneval.report.outcome import failure_tag_table
from visioneval.report.sections import Cell, Column, Section, Value, numbers, quoted, shown_columns
from visioneval.report.text import RATE, clean, one_line, show_rate

_NUMBERS = Column("cells", is_number=True), Column("pass rate [95%]")


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a list: its id, its raw ``run.json`` and its counts (``None`` if the records cannot be read)."""

    run_id: str
    info: Mapping[str, Any]
    counts: VerdictCounts | None
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


def run_list(runs: Sequence[ListedRun], *, failure_tags: bool = False) -> Iterator[Section]:
    """A table of the runs of each experiment; those without an experiment come first. Then their failure tags."""
    names = sorted({run.experiment for run in runs})
    experiments = [(name, [run for run in runs if run.experiment == name]) for name in names]
    for experiment, members in experiments:
        columns = [Column("run"), Column("state"), Column(RATE), *numbers("error"), Column("note", min_width=12)]
        has_notes = any(run.info.get("note") for run in members)
        rows: list[list[Cell]] = []
        for run in members:
            errors, rate = ("", "unreadable") if run.counts is None else (str(run.counts.errors), "empty")
            rate = show_rate(run.counts.pass_rate) if run.counts is not None and run.counts.cells else rate
            state, note = (one_line(str(run.info.get(name) or "")) for name in ("state", "note"))
            rows.append([quoted(run.run_id), state, rate, errors, quoted(note)])
        table = shown_columns(columns, rows, {"note": has_notes})
        yield Section(f"experiment {one_line(experiment)}" if experiment else "no experiment", *table)
    for experiment, members in experiments if failure_tags else ():
        totals = most_common(sum((Counter(run.failure_tags) for run in members), Counter[str]()))
        title = f"failure tags, experiment {one_line(experiment)}" if experiment else "failure tags, no experiment"
        if not totals:
            yield Section("", about=[f"{title}: none"])
            continue
        names = [f"#{number}" for number in range(1, len(members) + 1)]
        columns, rows = failure_tag_table(totals, [run.failure_tags for run in members], numbers(*names))
        cells = ["unreadable" if run.counts is None else f"{run.counts.cells:,} cells" for run in members]
        listed = zip(names, members, cells, strict=True)
        notes = [f"{name} {one_line(run.run_id)}: {number}" for name, run, number in listed]
        yield Section(title, columns, rows, notes, splits=True)


def baseline_section(name: str, summary: BaselineSummary) -> Section:
    """The runs of a baseline, the newest first, and what is known of their noise."""
    rows = [
        (
            quoted(run.run),
            f"{run.cells:,}",
            show_rate(run.pass_rate),
            Value(f"differs by more than chance (p {run.p:.2g})", "error") if run.differs else "",
        )
        for run in summary.runs
    ]
    columns = Column("run, the newest first", min_width=20), *_NUMBERS, Column("beside the other runs")
    return Section(f"baseline:{name}, of the suite {summary.suite}", columns, rows, list(_baseline_notes(summary)))


def baselines_section(baselines: Mapping[str, Sequence[Baseline]]) -> Section:
    """A row for each baseline, by name: the number of its runs, the newest first, and what the newest has."""
    rows = [
        (
            quoted(name),
            quoted(newest.header.suite),
            str(len(runs)),
            str(len(newest.lines)),
            show_rate(verdict_rate((line.test_id, line.verdict) for line in newest.lines)),
        )
        for name, runs in baselines.items()
        for newest in runs[:1]
    ]
    names = Column("baseline", min_width=12), Column("suite", min_width=8), *numbers("runs")
    return Section("", (*names, *_NUMBERS), rows)


def _baseline_notes(summary: BaselineSummary) -> Iterator[str]:
    if summary.between_runs is None:
        yield "One run does not show how much equal runs differ: add more with 'visioneval baseline add RUN'"
        return
    shared = 100 * summary.between_runs
    if shared >= 0.05:
        yield f"Noise that all cases of a run share: {shared:.1f} points (standard deviation of the pass rate)"
    else:
        yield "The runs differ no more than their samples explain"
    if summary.dispersion is not None and summary.dispersion > 1.05:
        yield f"Passes of a case vary {summary.dispersion:.1f} times as much as independent samples"
