"""Runs that are sent to trackers: a small one with images, whose names and texts a tracker may refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from record_factory import record, run_of
from report_runs import image, png, save_run

from visioneval import CellError, Record, Verdict
from visioneval.suite.rules import GateRule

HOSTILE = "=1+1\x00\u202e\x1b[2J 'quoted' \U0001f600"
LABELS = ("steady", "odd,q=[low]/x:y")
METRICS: dict[str, Any] = {
    "look": {"type": "bool"},
    "look:[sharp]/edge": {"type": "number", "range": [0, 5]},
    "look:(sharp)/edge": {"type": "number", "range": [0, 5]},
}
MANY = {f"option{at}": at for at in range(150)}
"""More parameters than MLflow takes at once."""


def tracked_demo(root: Path, *, run_id: str = "demo", extra: int = 0, **changes: Any) -> Path:
    """Two cases on two model runs: one passes, one fails with a reason and gaps, and one of each is an ERROR.

    ``extra`` more cells pass. ``changes`` are for ``run.json``.
    """
    cases: dict[str, dict[str, Any]] = {"tree": {"tags": ["green"]}, "boat": {}}
    gates = [GateRule(rule="pass_rate >= 0.9").model_dump(exclude_defaults=True), "error_rate <= 0.5"]
    info = run_of(cases, list(LABELS), gates, METRICS)
    options = {"quality": "high", "nested": {"size": [64, 48]}, "text": "x" * 7_000, **MANY}
    models = [entry.model_copy(update={"options": options}) for entry in info.suite.models]
    facts = {
        "run_id": run_id,
        "state": "running",
        "experiment": "trees",
        "note": HOSTILE,
        "planned_cells": 4 + extra,
        "suite": info.suite.model_copy(update={"models": tuple(models)}),
    }
    info = info.model_copy(update={**facts, **changes})
    run = save_run(root, info, ())
    cells = [*_cells(run), *(_passing(run, "tree", 0, at + 1) for at in range(extra))]
    with (run / "results.jsonl").open("w", encoding="utf-8") as results:
        results.writelines(cell.model_copy(update={"run_id": run_id}).model_dump_json() + "\n" for cell in cells)
    return run


def _cells(run: Path) -> list[Record]:
    error = CellError(stage="generate", kind="timeout", message=HOSTILE)
    failed = _passing(run, "tree", 1).model_copy(
        update={
            "verdict": Verdict.FAIL,
            "failed_rules": ("look",),
            "failure_tags": ("wrong/color", "cut off"),
            "scores": {"look": False, "look:[sharp]/edge": 1.5, "look:(sharp)/edge": 2},
            "reasons": {"other": "nothing to add", "look": HOSTILE},
        }
    )
    errors = [
        record(test_id="boat", model_label=label, status="error", verdict="ERROR", error=error) for label in LABELS
    ]
    return [_passing(run, "tree", 0), failed, *errors]


def _passing(run: Path, case: str, model: int, sample: int = 0) -> Record:
    return record(
        test_id=case,
        model_label=LABELS[model],
        sample_index=sample,
        scores={"look": True, "look:[sharp]/edge": 4.5, "look:(sharp)/edge": 3},
        artifact_path=image(run, f"{case}/{model}.png", png("teal" if model == 0 else "crimson")),
        mime="image/png",
        width=96,
        height=64,
        seconds=1.5,
        cost_usd=0.25,
    )
