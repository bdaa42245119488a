"""The files that a tracker gets with a run: the report, the gates, the summary, and the table of cells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from visioneval.export.trackers.cells import CellTable
from visioneval.export.trackers.content import TrackedRun
from visioneval.report.html.report import write_report

REPORT = "report.html"
GATES = "gates.json"
SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class TrackedFiles:
    """What can be written of a run. ``table`` is ``None`` for a run without cells."""

    folder: Path
    """Of the run."""
    run: TrackedRun
    table: CellTable | None
    has_report: bool

    def write(self, folder: Path) -> list[Path]:
        """Writes the report, gates and summary to a folder. The report is one file with the cells of the table."""
        gates = [gate.model_dump(mode="json") for gate in self.run.summary.gates]
        documents = {GATES: json.dumps(gates, indent=2), SUMMARY: self.run.summary.model_dump_json(indent=2)}
        for name, text in documents.items():
            (folder / name).write_text(text, encoding="utf-8")
        if self.has_report and self.table is not None:
            write_report(self.table.slim, folder / REPORT, single_file=True, trust=False)
        return sorted(folder.iterdir())
