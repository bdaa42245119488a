"""Runs of an experiment on disk, night after night, and a baseline of some of them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from record_factory import record, run_of

from visioneval import Fingerprint, GraderRecord, Record, read_info, read_records
from visioneval.analysis.sides import writers_of
from visioneval.analysis.summary.summary import summarize
from visioneval.records.baselines import make_baseline, write_baseline
from visioneval.records.writer import RunWriter
from visioneval.suite.model import CompareEntry

FIRST = datetime(2026, 11, 1, 3, tzinfo=UTC)
NIGHTLY_METRICS: dict[str, Any] = {"look": {"type": "bool"}}
CASES = 30


def night(
    root: Path,
    number: int,
    *,
    failed: Collection[int] = (),
    errors: Collection[int] = (),
    cases: int = CASES,
    name: str = "",
    day: int | None = None,
    judge: str = "judge-1",
    outputs_of: int | None = None,
    state: Any = "complete",
    drift: int | None = None,
    record_changes: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """A run of ``cases`` cases, by default on the day of its number, in which these cases failed or are errors.

    Its outputs are its own, or those of another night. ``drift`` is that of its suite, and ``changes`` are for its
    ``run.json``.
    """
    ids = {f"c{at:02}": {} for at in range(cases)}
    facts = {
        "run_id": name or f"night-{number:02}",
        "experiment": "nightly",
        "started_at": (FIRST + timedelta(days=number if day is None else day)).isoformat(),
        "state": "running",
    }
    info = run_of(ids, ["m"], ["pass_rate >= 0"], NIGHTLY_METRICS, **{**facts, **changes})
    info = info.model_copy(update={"suite": info.suite.model_copy(update={"compare": CompareEntry(drift=drift)})})
    writer = RunWriter.create(root, info)
    cells: list[Record] = []
    for at, case in enumerate(ids):
        verdict = "ERROR" if at in errors else "FAIL" if at in failed else "PASS"
        grader = GraderRecord(
            key="look", type="own:Look", fingerprint=Fingerprint(config_sha256="c" * 64, judge_model=judge)
        )
        known: dict[str, Any] = {
            "run_id": info.run_id,
            "test_id": case,
            "verdict": verdict,
            "scores": {} if verdict == "ERROR" else {"look": verdict == "PASS"},
            "failed_rules": ["look"] if verdict == "FAIL" else [],
            "graders": [grader],
            "artifact_sha256": f"{1000 * (number if outputs_of is None else outputs_of) + at:064x}",
        }
        if verdict == "ERROR":
            known |= {"error": {"stage": "grade", "kind": "unmeasured", "message": "too dark"}}
        cells.append(record(**{**known, **(record_changes or {})}))
        writer.append(cells[-1])
    writer.write_summary(summarize(writer.finish(state, info.started_at), cells))
    return writer.folder


def baseline_of(*runs: Path, name: str = "main", folder: Path = Path()) -> Path:
    """Writes a baseline of these runs, the newest first."""
    stored = []
    for run in runs:
        info = read_info(run)
        stored.append(make_baseline(info, read_records(run), writers_of(info)))
    path = folder / "baselines" / f"{name}.jsonl"
    write_baseline(stored, path)
    return path


def failing(share: float, seed: int, cases: int = CASES) -> list[int]:
    """The cases that fail: this share of them, others with each seed."""
    return [at for at in range(cases) if (at * 7 + seed * 11) % cases < share * cases]
