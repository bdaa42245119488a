"""A table of the alignment score and the gaps of each image, lowest scores first."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from visioneval.analysis.alignments import lowest_first
from visioneval.analysis.summary.summary import Summary
from visioneval.report.terminal.table import Cell, Column, table, with_title
from visioneval.report.text import one_line, plain

MAX_GAPS = 200
"""Characters of the gaps of one image."""


def alignment_table(summary: Summary, width: int, limit: int) -> RenderableType:
    """The ``limit`` images with the lowest scores; passing ones are included. Not measured ones come first."""
    numbers = {model.label: number for number, model in enumerate(summary.models, 1)}
    several_graders = len({cell.grader for cell in summary.alignments}) > 1
    several_samples = any(cell.sample_index for cell in summary.alignments)
    cells = lowest_first(summary.alignments)
    columns = [Column("#", right=True), Column("case", min_width=12)]
    columns += [Column("grader")] if several_graders else []
    columns += [Column("score", right=True), Column("gaps", min_width=24)]
    rows: list[list[Cell]] = [
        [
            str(numbers.get(cell.model_label, "")),
            f"{cell.test_id} [{cell.sample_index}]" if several_samples else cell.test_id,
            *([cell.grader] if several_graders else []),
            "not measured" if cell.score is None else f"{cell.score:.1f}",
            plain(one_line(" ".join(cell.gaps), MAX_GAPS)),
        ]
        for cell in cells[:limit]
    ]
    body = table(columns, rows, width)
    title = "Alignment by image, lowest first"
    hidden = len(cells) + summary.alignments_left_out - limit
    if hidden <= 0:
        return with_title(title, body)
    hint = f"... and {hidden} more: 'visioneval export {summary.run_id} -o cells.csv' lists all"
    return with_title(title, Group(body, Text(hint, style="dim")))
