"""The summary's table of counter-examples."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from visioneval.analysis.summary.graders import Separation
from visioneval.analysis.summary.summary import Summary
from visioneval.report.numbers import show_interval
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import clean, plain


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
            Text(difference_text(separation), style="" if separation.difference > 0 else "yellow"),
            auroc_text(separation),
        ]
        for metric, by_label in summary.separations.items()
        for label, separation in by_label.items()
    ]
    title = "Counterexamples: mean (cells), difference [95%] and AUROC [95%]"
    note = left_out_text(summary)
    return Group(with_title(title, table(columns, rows, width)), *([Text(clean(note), style="dim")] if note else []))


def left_out_text(summary: Summary) -> str:
    """Which metrics' means leave out the counter-examples; empty if none do."""
    names = [
        metric
        for metric, by_label in summary.separations.items()
        if any(separation.left_out for separation in by_label.values())
    ]
    return f"Means, rates and question types of {' and '.join(names)} leave out counterexamples." if names else ""


def difference_text(separation: Separation) -> str:
    """``+0.24 [0.12, 0.36]``."""
    return f"{separation.difference:+.3g}{show_interval(separation.difference_low, separation.difference_high)}"


def auroc_text(separation: Separation) -> str:
    """``0.930 [0.81, 0.98]``."""
    return f"{separation.auroc:.3f}{show_interval(separation.auroc_low, separation.auroc_high)}"
