"""The runs of a baseline in a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from visioneval.analysis.compare.baseline_runs import BaselineSummary
from visioneval.analysis.summary.accumulators import pass_rate
from visioneval.records.baselines import Baseline
from visioneval.report.numbers import show_rate
from visioneval.report.terminal.table import Cell, Column, table
from visioneval.report.text import plain


def print_baseline(name: str, summary: BaselineSummary, console: Console) -> None:
    """Prints the runs, the newest first, and what is known of their noise."""
    console.print(plain(f"baseline:{name}, of the suite {summary.suite}", "bold"))
    columns = (
        Column("run, the newest first", min_width=20),
        Column("cells", right=True),
        Column("pass rate [95%]"),
        Column("beside the other runs"),
    )
    rows: list[list[Cell]] = [
        [
            run.run,
            f"{run.cells:,}",
            show_rate(run.pass_rate),
            Text(f"differs by more than chance (p {run.p:.2g})", style="yellow") if run.differs else "",
        ]
        for run in summary.runs
    ]
    console.print(table(columns, rows, console.width))
    console.print(plain("\n".join(_noise_lines(summary))))


def print_baselines(baselines: Mapping[str, Sequence[Baseline]], console: Console) -> None:
    """Prints a line for each baseline, by name: the number of its runs, the newest first, and what the newest has."""
    columns = (
        Column("baseline", min_width=12),
        Column("suite", min_width=8),
        Column("runs", right=True),
        Column("cells", right=True),
        Column("pass rate [95%]"),
    )
    rows: list[list[Cell]] = []
    for name, runs in baselines.items():
        newest = runs[0]
        rate = pass_rate((line.test_id, line.verdict) for line in newest.lines)
        rows.append([name, newest.header.suite, str(len(runs)), str(len(newest.lines)), show_rate(rate)])
    console.print(table(columns, rows, console.width))


def _noise_lines(summary: BaselineSummary) -> list[str]:
    if summary.between_runs is None:
        return [
            "One run does not show how much equal runs differ: add more with 'visioneval baseline add RUN'",
        ]
    shared = 100 * summary.between_runs
    lines = [
        f"Noise that all cases of a run share: {shared:.1f} points (standard deviation of the pass rate)"
        if shared >= 0.05
        else "The runs differ no more than their samples explain"
    ]
    if summary.dispersion is not None and summary.dispersion > 1.05:
        lines.append(f"Passes of a case vary {summary.dispersion:.1f} times as much as independent samples")
    return lines
