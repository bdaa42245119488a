"""Runs on disk as ``visioneval run`` leaves them, with their summaries, for the index of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from record_factory import generated_png, record, run_of

from visioneval import Record, RunInfo
from visioneval.analysis.summary.summary import summarize
from visioneval.records.writer import RunWriter

VIEWED_METRICS: dict[str, Any] = {"look": {"type": "bool"}, "look.score": {"type": "number", "range": [0, 5]}}
CASES: dict[str, dict[str, Any]] = {"one": {}, "two": {}}
GATES = [{"rule": "pass_rate >= 0.9"}]


def viewed_info(run_id: str, **changes: Any) -> RunInfo:
    """A run that has begun, on the given day of January (the last two characters of its id), in one experiment."""
    facts = {
        "run_id": run_id,
        "state": "running",
        "experiment": "nightly",
        "started_at": f"2026-01-{run_id[-2:]}T10:00:00+00:00",
        "suite_path": "suite.yaml",
    }
    return run_of(CASES, ["m"], GATES, VIEWED_METRICS, **{**facts, **changes})


def begun_run(root: Path, run_id: str, cells: int = 1, *, passes: bool = True, **changes: Any) -> RunWriter:
    """A run in progress: this process writes it."""
    writer = RunWriter.create(root, viewed_info(run_id, **changes))
    for case in list(CASES)[:cells]:
        append_cell(writer, case, passes=passes)
    return writer


def append_cell(writer: RunWriter, case: str, *, passes: bool = True, **changes: Any) -> Record:
    """Adds a finished cell with an output."""
    path = writer.save(case, "m", "0.png", generated_png("navy" if passes else "crimson"))
    defaults = {
        "run_id": writer.info.run_id,
        "test_id": case,
        "verdict": "PASS" if passes else "FAIL",
        "failed_rules": [] if passes else ["look"],
        "failure_tags": [] if passes else ["blurred"],
        "scores": {"look": passes, "look.score": 4 if passes else 1},
        "artifact_path": path,
        "mime": "image/png",
        "cost_usd": 0.01,
    }
    cell = record(**{**defaults, **changes})
    writer.append(cell)
    return cell


def viewed_run(root: Path, run_id: str, *, passes: bool = True, **changes: Any) -> Path:
    """A complete run with its summary. ``changes`` are for its ``run.json``."""
    writer = RunWriter.create(root, viewed_info(run_id, **changes))
    cells = [append_cell(writer, case, passes=passes) for case in CASES]
    writer.write_summary(summarize(writer.finish("complete", "2026-02-01T00:01:00+00:00"), cells))
    return writer.folder
