"""The summary's table of counter-examples."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from visioneval.analysis.findings import Summary
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import plain


def separation_table(summary: Summary, width: int) -> RenderableType:
    """One row for each metric and model run with aligned cells and counter-examples."""
    numbers = {model.label: number for number, model in enumerate(summary.models, 1)}
    columns = [
        Column("metric", min_width=12),
        Column("#", right=True),
        *(Column(name, right=True) for name in ("aligned", "counter", "difference", "AUROC")),
    ]
    rows: list[list[Cell]] = [
        [
            plain(metric),
            str(numbers[label]),
            f"{separation.aligned:.3g} ({separation.aligned_n})",
            f"{separation.counter:.3g} ({separation.counter_n})",
            Text(f"{separation.difference:+.3g}", style="" if separation.difference > 0 else "yellow"),
            f"{separation.auroc:.3f}",
        ]
        for metric, by_label in summary.separations.items()
        for label, separation in by_label.items()
    ]
    return with_title("Counterexamples: mean (cells), difference and AUROC", table(columns, rows, width))
