"""The outputs of a run that repeat the image of another case: a table for the model runs, and the pairs."""

from __future__ import annotations

from collections.abc import Iterator

from visioneval.analysis.summary.summary import Summary
from visioneval.report.outcome import cell_link, model_run
from visioneval.report.sections import Cell, Column, Section, counted, dim, numbers, quoted


def duplicate_sections(summary: Summary, limit: int) -> Iterator[Section]:
    """A row for each model run, then the outputs that repeat those of other cases."""
    rows: list[list[Cell]] = [
        [
            quoted(finding.grader),
            model_run(summary, finding.model_label),
            counted(finding.duplicates, "fail"),
            f"{finding.outputs:,}",
            counted(finding.failed, "error"),
        ]
        for finding in summary.duplicates
    ]
    if not rows:
        return
    columns = [Column("grader", min_width=6), Column("model run", short="#")]
    columns += numbers("near-duplicates", "outputs compared", "not compared")
    yield Section("Near-duplicates: outputs that repeat that of another case", columns, rows, name="duplicates")
    cells = [cell for finding in summary.duplicates for cell in finding.cells]
    pairs: list[list[Cell]] = [
        [
            model_run(summary, cell.model_label),
            quoted(sample_name(cell.test_id, cell.sample_index), link=cell_link(cell)),
            quoted(sample_name(cell.of, cell.of_sample)),
            f"{cell.distance:.3f}",
            f"{cell.delta_e:.2f}",
        ]
        for cell in cells[:limit]
    ]
    if pairs:
        hidden = sum(finding.duplicates for finding in summary.duplicates) - len(pairs)
        notes = [dim(f"... and {hidden:,} more: duplicates.jsonl lists all")] if hidden else []
        columns = [Column("model run", short="#"), Column("case", min_width=12), Column("repeats", min_width=12)]
        columns += numbers("distance (1 - SSIM)", "color (CIEDE2000)")
        yield Section("Which outputs repeat another", columns, pairs, notes, is_cut=True, name="repeated")


def sample_name(case: str, sample: int) -> str:
    """An output by its case, and its sample if that is not the first."""
    return f"{case} [{sample}]" if sample else case
