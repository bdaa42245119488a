"""Builds runs and records for tests of code that reads them."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from visioneval import CellError, Record, RunInfo
from visioneval.suite.model import Suite

UNMEASURED = CellError(stage="grade", kind="unmeasured", message="too dark")


def record(**changes: Any) -> Record:
    defaults: dict[str, Any] = {
        "run_id": "r",
        "test_id": "one",
        "model_label": "m",
        "sample_index": 0,
        "task_type": "image_generation",
        "prompt": "a tree",
        "provider": "mock",
        "status": "completed",
        "verdict": "PASS",
        "generation_key": "model:1",
        "grade_key": "case:1",
    }
    return Record(**{**defaults, **changes})


def info(**changes: Any) -> RunInfo:
    suite = Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"id": "one", "prompt": "a tree"}],
            "models": [{"provider": "mock"}],
            "graders": [{"key": "image", "type": "properties"}],
            "verdict": ["image"],
        }
    )
    defaults: dict[str, Any] = {
        "run_id": "r",
        "state": "running",
        "started_at": "2025-01-01T00:00:00+00:00",
        "planned_cells": 1,
        "visioneval_version": "0",
        "python_version": "3",
        "suite_path": "suite.yaml",
        "source_sha256": "0" * 64,
        "metrics": {},
        "suite": suite,
    }
    return RunInfo(**{**defaults, **changes})


def run_of(
    cases: dict[str, dict[str, Any]], labels: list[str], gates: list[Any], metrics: dict[str, Any], **changes: Any
) -> RunInfo:
    """A finished run of some cases on some model runs, with one grader that writes ``metrics``."""
    suite = Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"id": name, "prompt": "a tree", **case} for name, case in cases.items()],
            "models": [{"provider": "own:Generate", "label": label} for label in labels],
            "graders": [{"key": "look", "type": "own:Look", "writes": metrics}],
            "verdict": [next(iter(metrics))],
            **({"gates": gates} if gates else {}),
        }
    )
    facts = {"suite": suite, "metrics": metrics, "state": "complete", "planned_cells": len(cases) * len(labels)}
    return info(**{**facts, **changes})


def generated_png(colour: str, size: tuple[int, int] = (32, 24)) -> bytes:
    """A small image that is not blank."""
    buffer = io.BytesIO()
    image = Image.new("RGB", size, colour)
    image.paste("green", (4, 4, 20, 12))
    image.save(buffer, "PNG")
    return buffer.getvalue()
