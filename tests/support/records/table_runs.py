"""A run whose first records lack what later ones have, with hostile text, for tests of tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record_factory import record, run_of
from report_runs import save_run

from visioneval import CellError, Fingerprint, GraderRecord, Record, RunInfo
from visioneval.records.model import JudgeAnswer

HOSTILE = "=cmd|' /C calc'!A0\x00\u202e\x1b[31m,\"\n\U0001f600"
PLAIN_CELLS = 150
"""More than the 100 rows from which polars infers a schema."""
METRICS: dict[str, Any] = {
    "look": {"type": "bool"},
    "look.score": {"type": "number", "range": [0, 5]},
    "seconds": {"type": "number", "range": [0, None], "better": "lower"},
}
FINGERPRINT = Fingerprint(config_sha256="0" * 64, tool_versions={"ocr": "1"}, judge_model="j")


def table_info(**changes: Any) -> RunInfo:
    cases = {f"case{at}": {"tags": ["red"]} for at in range(PLAIN_CELLS + 2)}
    info = run_of(cases, ["m", "other"], [], METRICS, planned_cells=PLAIN_CELLS + 3)
    return info.model_copy(update={"run_id": "r", "experiment": "trees", "state": "running", **changes})


def table_records() -> Iterator[Record]:
    """Plain cells, in which nothing but the look was measured; then one cell with everything, an error and a turn."""
    for at in range(PLAIN_CELLS):
        yield record(test_id=f"case{at}", scores={"look": True, "look.score": None}, seconds=1)
    answer = JudgeAnswer(
        judge="a", model="j-1", scores={"look": None}, reasons={"look": HOSTILE}, details={"gaps": [HOSTILE]}
    )
    details = {
        "gaps": ["no red"],
        "questions": [{"id": "q1", "question": "Red?", "choices": ["yes", "no"], "right": False, "score": 0, "x": {}}],
        "votes": {"look.score": [3, None]},
        "deep": {"list": [1, "a", {}]},
    }
    yield record(
        test_id=f"case{PLAIN_CELLS}",
        model_label="other",
        prompt=HOSTILE,
        sent_prompt="a red tree",
        metadata={"n": 1, "nested": {"a": [1]}, "text": HOSTILE},
        run_params={"size": "64x48", "seed": 3},
        tags=("red",),
        verdict="FAIL",
        failed_rules=("look",),
        failure_tags=("wrong color",),
        scores={"look": False, "look.score": 2.5, "seconds": 1.25},
        reasons={"look": HOSTILE},
        graders=(
            GraderRecord(
                key="look",
                type="own",
                details=details,
                usage={"input": 2**63},
                fingerprint=FINGERPRINT,
                judges=(answer,),
            ),
        ),
        usage={"output": 7},
        cost_usd=0.25,
        seconds=1.25,
        width=64,
        height=48,
    )
    error = CellError(stage="generate", kind="timeout", message=HOSTILE)
    yield record(test_id=f"case{PLAIN_CELLS + 1}", status="error", verdict="ERROR", error=error)
    yield record(test_id=f"case{PLAIN_CELLS + 1}", sample_index=1, base_path="artifacts/one/m/0.png", cost_usd=2)


def table_run(root: Path) -> Path:
    """The folder of the run ``r``."""
    return save_run(root, table_info(), table_records())
