"""A run as a table with thumbnails, and one case in full, for a notebook. No scripts, and no network access."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from visioneval.analysis.summary.summary import Summary
from visioneval.errors import count_of
from visioneval.records.model import Record, RunInfo
from visioneval.report.cell import WIDTH, print_case
from visioneval.report.html.images import WEBP, data_url, output_image, webp
from visioneval.report.html.pages import render
from visioneval.report.outcome import explained, worst_first
from visioneval.report.run import run_report

MAX_ROWS = 20
_THUMBNAIL, _OUTPUT = 128, 384
"""Pixels of the longer side of an output, in the table and of one case."""
_TEXT = '<pre style="white-space: pre; overflow-x: auto">{code}</pre>'


def run_html(summary: Summary, cells: Sequence[Record], folder: Path) -> str:
    """A run, with the first of its cells, those that did not pass first."""
    why = {(cell.test_id, cell.model_label, cell.sample_index): explained(cell) for cell in worst_first(summary)}
    has_samples = any(cell.sample_index for cell in cells)
    rows = [
        {
            "verdict": cell.verdict.value,
            "case": f"{cell.test_id} [{cell.sample_index}]" if has_samples else cell.test_id,
            "label": cell.model_label,
            "output": _output(cell, folder, _THUMBNAIL),
            "why": why.get((cell.test_id, cell.model_label, cell.sample_index), ""),
        }
        for cell in cells
    ]
    more = summary.counts.cells - len(cells)
    note = f"{count_of(more, 'more cell')}: 'failed' has those that did not pass, 'records' has all. " if more else ""
    return render(
        "notebook.html.j2",
        report=run_report(summary),
        folder=str(folder),
        rows=rows,
        note=f"{note}show(case) shows a case in full." if rows else "",
    )


def case_html(cells: Sequence[Record], info: RunInfo, folder: Path) -> str:
    """The cells of one case: their outputs, then what the terminal shows of them."""
    console = Console(record=True, file=io.StringIO(), width=WIDTH, force_jupyter=False)
    print_case(cells, info, folder, console)
    outputs = render("notebook.html.j2", outputs=[_output(cell, folder, _OUTPUT) for cell in cells])
    return outputs + console.export_html(inline_styles=True, code_format=_TEXT)


def _output(cell: Record, folder: Path, side: int) -> dict[str, str]:
    """The address of a small image of the output, or why there is none."""
    output = "no image" if cell.artifact_path is None else output_image(folder, cell.artifact_path, side)
    source = {"src": "", "why": output} if isinstance(output, str) else {"src": data_url(webp(output, 75), WEBP)}
    return {"name": f"{cell.verdict}: {cell.test_id} [{cell.sample_index}] of {cell.model_label}", **source}
