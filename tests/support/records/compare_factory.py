"""Builds cells and sides for comparison tests."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from visioneval import Fingerprint, Metric, Verdict
from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.gates import GateResult
from visioneval.analysis.sides import Cell, CellGrader, Side
from visioneval.report.compare import comparison_report
from visioneval.report.markdown import report_markdown
from visioneval.report.terminal import print_end, print_report

METRICS = {
    "copy": Metric(type="bool"),
    "copy.cer": Metric(type="number", range=(0, None), better="lower"),
    "look": Metric(type="number", range=(0, 5)),
}


def cell(test_id: str = "one", verdict: str = "PASS", **changes: Any) -> Cell:
    """A cell of the model run ``m``, sample 0."""
    defaults: dict[str, Any] = {"model_label": "m", "sample_index": 0, "grade_key": "case:1 rules:1"}
    return Cell(test_id=test_id, verdict=Verdict(verdict), **{**defaults, **changes})


def side(cells: Iterable[Cell], name: str = "a", **changes: Any) -> Side:
    """A complete run of some cells."""
    side_cells = tuple(cells)
    defaults: dict[str, Any] = {
        "metrics": METRICS,
        "writers": {"copy": "copy", "copy.cer": "copy", "look": "rubric"},
        "suite": "demo",
        "source_sha256": "0" * 64,
        "state": "complete",
        "planned_cells": len(side_cells),
    }
    return Side(name=name, cells=side_cells, **{**defaults, **changes})


def verdicts(letters: str, **changes: Any) -> list[Cell]:
    """One case per letter. ``verdicts("PF!")``: c0 passed, c1 failed, c2 is an error."""
    names = {"P": "PASS", "F": "FAIL", "!": "ERROR"}
    return [cell(f"c{at}", names[letter], **changes) for at, letter in enumerate(letters)]


def scored(metric: str, scores: Iterable[Any], **changes: Any) -> list[Cell]:
    """One case per score."""
    return [cell(f"c{at}", scores={metric: score}, **changes) for at, score in enumerate(scores)]


def mark(key: str = "rubric", kind: str = "rubric", **changes: Any) -> CellGrader:
    """A grader of a cell."""
    hashes = {"template_sha256": "t" * 64, "schema_sha256": "s" * 64, "config_sha256": "c" * 64}
    return CellGrader(key, kind, Fingerprint(**{"judge_model": "judge-1", **hashes, **changes}))


def comparison_text(comparison: Comparison, gates: Sequence[GateResult] = (), width: int = 120, **changes: Any) -> str:
    """What the command prints."""
    console = Console(file=io.StringIO(), width=width)
    report = comparison_report(comparison, gates, **changes)
    print_report(report, console)
    print_end(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def comparison_markdown(comparison: Comparison, gates: Sequence[GateResult] = ()) -> str:
    """What ``--markdown`` writes."""
    return report_markdown(comparison_report(comparison, gates))
