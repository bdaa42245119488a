"""Runs of the golden files that end as no suite ends cheaply: empty, killed, and without quota."""

from __future__ import annotations

import json
from pathlib import Path

from viewed_runs import begun_run

from visioneval.records.model import StoppedBy


def write_records(root: Path) -> None:
    """Writes them into the folder ``root``."""
    begun_run(root, "empty-01", cells=0, note="nothing yet").finish("interrupted", "2026-01-01T10:00:09+00:00")
    begun_run(root, "killed-02", cells=1).finish("interrupted", "2026-01-02T10:00:09+00:00")
    killed = root / "killed-02" / "run.json"
    facts = {**json.loads(killed.read_text(encoding="utf-8")), "state": "running", "ended_at": None}
    killed.write_text(json.dumps(facts), encoding="utf-8")
    ends: tuple[tuple[str, StoppedBy], ...] = (("quota-03", "quota"), ("key-04", "refused_key"))
    for run_id, why in ends:
        begun_run(root, run_id, cells=1, passes=False).finish(
            "interrupted", "2026-01-03T10:00:09+00:00", stopped_by=why
        )
    begun_run(root, "whole-05", cells=2).finish("complete", "2026-01-05T10:00:09+00:00")
    begun_run(root, "short-06", cells=1).finish("complete", "2026-01-06T10:00:09+00:00")
    (root / "damaged").mkdir()
    (root / "damaged" / "run.json").write_text("{", encoding="utf-8")
