"""Runs on disk with an image for each cell, and the page that compares two of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from record_factory import record
from report_runs import png, run_info, save_run

from visioneval import read_info
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import check_gates, parse_fail_on
from visioneval.analysis.sides import Cell, Side, side_of_run
from visioneval.records.reader import open_records
from visioneval.report.html.compare import comparison_page

CASES = ("same", "broke", "repaired", "poor")


def compared_run(root: Path, name: str, verdicts: str, colour: str, **changes: Any) -> Side:
    """A run with an image for each of ``CASES``; ``verdicts`` has P or F for each."""
    info = run_info(root, {case: {} for case in CASES}, run_id=name)
    folder = save_run(root, info, ())
    lines = []
    for case, letter in zip(CASES, verdicts, strict=True):
        (folder / "artifacts" / f"{case}.png").write_bytes(png(colour))
        failed = letter == "F"
        known: dict[str, Any] = {
            "test_id": case,
            "model_label": "steady",
            "verdict": "FAIL" if failed else "PASS",
            "failed_rules": ["look"] if failed else [],
            "scores": {"look": not failed, "look.score": 1 if failed else 4},
            "reasons": {"look": f"it looks {colour}"},
            "prompt": f"a {case} tree",
            "artifact_path": f"artifacts/{case}.png",
            "artifact_sha256": colour,
        }
        lines.append(record(**{**known, **changes}).model_dump_json() + "\n")
    (folder / "results.jsonl").write_text("".join(lines), encoding="utf-8")
    return side_of_run(name, read_info(folder), open_records(folder / "results.jsonl", Cell), folder)


def page_of(folder: Path, a: Side, b: Side) -> str:
    result = compare(a, b)
    path = folder / "compare.html"
    path.write_text(comparison_page(result, check_gates(result, parse_fail_on(["broken"]))), encoding="utf-8")
    return path.as_uri()
