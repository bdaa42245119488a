"""The summary's table of counter-examples."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from visioneval.analysis.findings import Summary
from visioneval.report.terminal.table import Cell, Column, table, titled
from visioneval.report.text import plain


def separation_table(summary: Summary, width: int) -> RenderableType:
    """A line for each metric and model run that has aligned cells and counter-examples."""
    numbers = {model.label: number for number, model in enumerate(summary.models, 1)}
    columns = [
        Column("metric", least=12),
        Column("#", right=True),
        *(Column(name, right=True) for name in ("aligned", "counter", "difference", "AUROC")),
    ]
    rows: list[list[Cell]] = [
        [
            plain(metric),
            str(numbers[label]),
            f"{one.aligned:.3g} ({one.aligned_n})",
            f"{one.counter:.3g} ({one.counter_n})",
            Text(f"{one.difference:+.3g}", style="" if one.difference > 0 else "yellow"),
            f"{one.auroc:.3f}",
        ]
        for metric, found in summary.separations.items()
        for label, one in found.items()
    ]
    return titled(
        "Counter-examples: means (of how many cells), and how well they are told apart", table(columns, rows, width)
    )
