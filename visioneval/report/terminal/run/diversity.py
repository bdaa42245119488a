"""How much the samples of a case differ, in a terminal, and as rows for every report."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from visioneval.analysis.summary.graders import DiversityFinding
from visioneval.analysis.summary.summary import Summary
from visioneval.report.numbers import show_interval
from visioneval.report.terminal.table import Column, table, with_title

HEADINGS = ("grader", "model run", "distance (1 - SSIM)", "color (CIEDE2000)", "cases")
TITLE = "Diversity: mean distance between the samples of a case, 0 is identical, [95%] over cases"


def diversity_tables(summary: Summary, width: int) -> Iterator[RenderableType]:
    """A table with a row for each grader and model run; none without such a grader."""
    columns = [Column(HEADINGS[0], min_width=6), Column(HEADINGS[1], min_width=12)]
    columns += [Column(name, right=True, min_width=9) for name in HEADINGS[2:4]] + [Column(HEADINGS[4], right=True)]
    if summary.diversity:
        yield with_title(TITLE, table(columns, diversity_rows(summary), width))


def diversity_rows(summary: Summary) -> list[tuple[str, ...]]:
    """The texts of each finding, as ``HEADINGS`` names them. ``3 of 4`` cases: one could not be measured."""
    return [_row(finding) for finding in summary.diversity]


def _row(finding: DiversityFinding) -> tuple[str, ...]:
    values = (
        "none" if part.value is None else f"{part.value:.3g}{show_interval(part.low, part.high)}"
        for part in (finding.distance, finding.delta_e)
    )
    measured = finding.distance.n
    return finding.grader, finding.model_label, *values, f"{measured} of {measured + finding.distance.unmeasured}"
