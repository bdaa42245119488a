"""Tables of failure tags: by model run of a run, and by run of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import RenderableType

from visioneval.report.terminal.table import Cell, Column, fit_columns, table
from visioneval.report.text import one_line


def failure_tag_table(totals: Mapping[str, int], counts: Sequence[Mapping[str, int]], width: int) -> RenderableType:
    """The number of cells with each tag: in all, and for each entry of ``counts`` in columns ``#1``, ``#2``, ...

    Columns that do not fit are left out, and so is the only one.
    """
    columns = [Column("tag", min_width=12), Column("cells", right=True)]
    rows: list[list[Cell]] = [[one_line(tag), str(count)] for tag, count in totals.items()]
    for number, counts_by_tag in enumerate(counts if len(counts) > 1 else (), 1):
        more = [*columns, Column(f"#{number}", right=True)]
        longer = [[*row, str(counts_by_tag.get(tag, 0) or "-")] for tag, row in zip(totals, rows, strict=True)]
        if fit_columns(more, longer, width) is None:
            break
        columns, rows = more, longer
    return table(columns, rows, width)
