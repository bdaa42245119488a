"""Baselines: the runs of one, and a list of all, each a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from visioneval.analysis.compare.metrics import BaselineSummary
from visioneval.analysis.scores import verdict_rate
from visioneval.records.baselines import Baseline
from visioneval.report.numbers import show_rate
from visioneval.report.sections import Column, Section, Value, quoted

_NUMBERS = Column("cells", is_number=True), Column("pass rate [95%]")


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
    return Section(f"baseline:{name}, of the suite {summary.suite}", columns, rows, list(_noise_lines(summary)))


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
    names = Column("baseline", min_width=12), Column("suite", min_width=8), Column("runs", is_number=True)
    return Section("", (*names, *_NUMBERS), rows)


def _noise_lines(summary: BaselineSummary) -> Iterator[str]:
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
