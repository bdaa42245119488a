"""``make bench``: two runs of 100,000 records compared, as a user would: time and peak memory of the command.

Not a test: machines are noisy, so nothing here passes or fails.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RECORDS = 100_000
LABELS = 4
SUITE: dict[str, Any] = {
    "name": "bench",
    "cases": [{"id": "one", "prompt": "a tree"}],
    "models": [{"provider": "mock", "label": f"m{at}"} for at in range(LABELS)],
    "graders": [{"key": "image", "type": "properties"}],
    "verdict": ["copy"],
}
METRICS = {
    "copy": {"type": "bool"},
    "copy.recall": {"type": "number", "range": [0, 1]},
    "look": {"type": "number", "range": [0, 5]},
    "place.ssim_outside": {"type": "number", "range": [-1, 1]},
}


def _record(at: int, run_id: str, chance: random.Random) -> dict[str, Any]:
    copy = chance.random() < 0.9
    graders = [
        {
            "key": key,
            "type": kind,
            "details": {"raw": "what was seen " * 12},
            "seconds": 0.5,
            "cost_usd": 0.001,
            "fingerprint": {"judge_model": judge, "config_sha256": "c" * 64, "tool_versions": {"tool": "1.0"}},
        }
        for key, kind, judge in (("copy", "text", None), ("rubric", "rubric", "judge-1"))
    ]
    return {
        "schema_version": 2,
        "run_id": run_id,
        "test_id": f"case{at // LABELS}",
        "model_label": f"m{at % LABELS}",
        "sample_index": 0,
        "task_type": "image_generation",
        "prompt": f"A flyer with exactly these lines, number {at // LABELS}: Butter & Flour / Autumn Bread Week",
        "tags": ["text", f"tag{at // LABELS % 5}"],
        "provider": "mock",
        "status": "completed",
        "verdict": "PASS" if copy else "FAIL",
        "failed_rules": [] if copy else ["copy"],
        "scores": {
            "copy": copy,
            "copy.recall": 1.0 if copy else 0.8,
            "look": chance.randint(0, 5),
            "place.ssim_outside": chance.random(),
        },
        "reasons": {"look": "orderly, with one line too close to the edge of the page"},
        "graders": graders,
        "artifact_path": f"artifacts/case{at // LABELS}/m{at % LABELS}/0.png",
        "artifact_sha256": f"{chance.getrandbits(256):064x}",
        "cost_usd": 0.02,
        "seconds": 4.2,
        "generation_key": f"model:1 params:1 prompt:{at} sample:0",
        "grade_key": f"case:{at // LABELS} rules:1 grader.copy:1 grader.rubric:1",
    }


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def _write(folder: Path, seed: int) -> int:
    """A run as it is on disk; how many bytes its records are."""
    chance = random.Random(seed)
    folder.mkdir()
    facts: dict[str, Any] = {"run_id": folder.name, "state": "complete", "started_at": "2026-01-01T00:00:00+00:00"}
    facts |= {"schema_version": 2, "planned_cells": RECORDS, "visioneval_version": "0", "python_version": "3"}
    facts |= {"suite_path": "suite.yaml", "source_sha256": "0" * 64, "metrics": METRICS, "suite": SUITE}
    (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
    with (folder / "results.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(_line(_record(at, folder.name, chance)) for at in range(RECORDS))
    return (folder / "results.jsonl").stat().st_size


def main() -> None:
    """Prints the figures."""
    with tempfile.TemporaryDirectory() as scratch:
        size = sum(_write(Path(scratch) / name, seed) for seed, name in enumerate(("a", "b")))
        command = [sys.executable, "-m", "visioneval", "compare", f"{scratch}/a", f"{scratch}/b"]
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"compare ended with status {status}")
    print(
        f"compare two runs of {RECORDS:,} records ({size / 1e6:.0f} MB): {seconds:.1f} s "
        f"({used.ru_utime + used.ru_stime:.1f} s of one core), {used.ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()
