"""A measure as cells of a table."""

from __future__ import annotations

from visioneval.analysis.stats.basic import Statistic
from visioneval.report.terminal.table import Cell


def measure_cells(measure: Statistic) -> tuple[Cell, Cell, Cell, Cell]:
    """The value, the interval, the number of rows and the note."""
    value = "-" if measure.value is None else f"{measure.value:.3f}"
    has_interval = measure.low is not None and measure.high is not None
    interval = f"[{measure.low:.3f}, {measure.high:.3f}]" if has_interval else ""
    return value, interval, f"{measure.n:,}", measure.note or ""
