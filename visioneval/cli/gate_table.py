"""Prints how often a gate fails by chance, and which threshold seldom does."""

from __future__ import annotations

from rich.console import Console

from visioneval.analysis.gate_rates import GateRates
from visioneval.counted import count_of
from visioneval.report.numbers import show_share_of_runs
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import plain


def print_gate(gate: GateRates, console: Console) -> None:
    """Prints a row for each true rate, the threshold that seldom fails a good one, and what the numbers refer to."""
    names = ["fails"] if len(gate.correlations) == 1 else [f"fails, correlation {rho:g}" for rho in gate.correlations]
    columns = [Column("true rate", right=True), *(Column(name, right=True) for name in names)]
    rows: list[list[Cell]] = [
        [f"{row.rate:g}", *(show_share_of_runs(share) for share in row.fails)] for row in gate.rows
    ]
    title = f"How often {gate.gate} fails over {count_of(gate.cells, 'cell')}"
    console.print()
    console.print(with_title(title, table(columns, rows, console.width)))
    console.print(plain(_suggestion(gate), "bold"))
    for note in ("The true rate is that of these cases in the long run.", *gate.notes):
        console.print(plain(note))


def _suggestion(gate: GateRates) -> str:
    """``the strictest limit that fails a true 0.95 in 1 of 20 runs or fewer: pass_rate >= 0.86 (1 of 31 runs)``."""
    good = f"a true {gate.good_rate:g}"
    share = show_share_of_runs(gate.suggested_fails)
    return f"the strictest limit that fails {good} in 1 of 20 runs or fewer: {gate.suggested} ({share})"
