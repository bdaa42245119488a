"""Figures of a judge that the labels of a random draw corrected, in a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from visioneval.analysis.agreement.correction import CorrectedDifference, CorrectedMetric, Correction
from visioneval.report.terminal.measures import measure_cells
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import clean, plain

_VALUES = (Column("value", right=True), Column("95%"), Column("n", right=True), Column("", min_width=20))


def correction_parts(correction: Correction, width: int) -> Iterator[RenderableType]:
    """The three figures of each metric, and the difference of two runs."""
    for metric in correction.metrics:
        yield _figures(metric, width)
    if correction.differences:
        a, b = correction.differences[0].a, correction.differences[0].b
        columns = (Column("metric", min_width=12), Column("human label", min_width=12), *_VALUES)
        rows = [_difference_row(entry) for entry in correction.differences]
        yield with_title(f"Corrected figure of {b} minus that of {a}", table(columns, rows, width))


def _figures(metric: CorrectedMetric, width: int) -> RenderableType:
    title = f"{metric.metric} corrected by human label {metric.question}, {metric.run}"
    text = f"NOT MEASURED: {metric.note} (--allow unmeasured=RATE accepts more)"
    warning = [Text(text, style="yellow")] if metric.is_unreliable else []
    if metric.reason is not None:
        reason = Text(clean(f"not corrected: {metric.reason}"), style="yellow")
        return Group(plain(title, "bold"), *warning, reason)
    rows: list[tuple[Cell, ...]] = [
        ("judge, all cells", *measure_cells(metric.judge)),
        ("labels alone", *measure_cells(metric.labels)),
        (Text("corrected", style="bold"), *measure_cells(metric.corrected)),
    ]
    remarks = [
        f"draw {metric.draw}, weight of the judge {metric.tuning or 0.0:.2f}",
        f"{metric.missing:,} drawn without an answer" * bool(metric.missing),
        f"{metric.waiting:,} still to label" * bool(metric.waiting),
        f"{metric.uncovered:,} cells not covered by the draw" * bool(metric.uncovered),
        metric.note * (not metric.is_unreliable),
        "the judge's figure has the unit of the metric, the others that of the labels" * (metric.kind == "continuous"),
    ]
    return Group(
        plain(title, "bold"),
        *warning,
        Text(clean("; ".join(part for part in remarks if part)), style="dim"),
        table((Column("figure", min_width=16), *_VALUES), rows, width),
    )


def _difference_row(entry: CorrectedDifference) -> tuple[Cell, ...]:
    value, interval, n, note = measure_cells(entry.difference)
    labels = f"labels: {entry.labels_a:,} and {entry.labels_b:,}"
    return entry.metric, entry.question, value, interval, n, "; ".join(filter(None, (labels, str(note))))
