"""Cells read in the fast way are those that a full check gives, and the same lines are refused with the same message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile_changes import VALUES, _Raw, paths_in
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from record_factory import record

from visioneval import Fingerprint, GraderRecord, RunFormatError
from visioneval.analysis.cell_reader import CellReader
from visioneval.analysis.cell_tables import stored_cells
from visioneval.analysis.cells import Cell
from visioneval.records.files.lines import parse_line
from visioneval.records.judge_answers import JudgeAnswer

_FULL: TypeAdapter[Cell] = TypeAdapter(Cell)
FINGERPRINT = Fingerprint(
    judge_model="judge-1", template_sha256="t" * 64, config_sha256="c" * 64, tool_versions={"ocr": "1"}
)
RECORD = record(
    sent_prompt="a tall tree",
    tags=("must_pass", "tree"),
    verdict="FAIL",
    failed_rules=("look >= 3",),
    failure_tags=("too_dark",),
    scores={"look": 2, "copy": True, "copy.cer": 0.25, "place": None},
    unmeasured_metrics=("place",),
    reasons={"look": "the tree is too dark \u00e9 \U0001f333"},
    graders=(
        GraderRecord(key="copy", type="text", fingerprint=Fingerprint(config_sha256="d" * 64), is_unmeasured=True),
        GraderRecord(
            key="look", type="rubric", cost_usd=0.01, fingerprint=FINGERPRINT, judges=(JudgeAnswer(judge="a", model="judge-1"),)
        ),
    ),
    artifact_path="artifacts/one/m/0.png",
    artifact_sha256="a" * 64,
    cost_usd=0.04,
    seconds=2.5,
    attempts=1,
).model_dump(mode="json")  # fmt: skip
ODD = (
    1.0,
    -0.0,
    "1",
    "true",
    "PASS",
    2**63,
    -(2**63),
    1_000_001,
    [1],
    [["x"]],
    ["x", "y"],
    "a..b",
    "artifacts/../x",
    "x" * 5000,
)


def _outcome(reader: CellReader | None, line: bytes) -> Cell | str | None:
    try:
        return next(parse_line("record", line, "here", _FULL), None) if reader is None else reader.read(line, "here")
    except RunFormatError as error:
        return str(error)


def _line(data: Any) -> bytes:
    """A line as runs write it, with raw tokens as they are."""
    tokens: list[str] = []

    def mark(value: Any) -> str:
        assert isinstance(value, _Raw)
        tokens.append(value.token)
        return f"@token{len(tokens) - 1}@"

    text = json.dumps(data, separators=(",", ":"), default=mark)
    for at, token in enumerate(tokens):
        text = text.replace(f'"@token{at}@"', token)
    return text.encode() + b"\n"


def _changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    data: Any = json.loads(json.dumps(RECORD))
    target = data
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return data


@pytest.mark.slow
@pytest.mark.parametrize("is_warm", [False, True], ids=["first line", "later line"])
def test_every_changed_field_is_read_or_refused_as_by_the_full_check(is_warm: bool) -> None:
    warm = CellReader()
    warm.read(_line(RECORD), "here")
    outcomes = {"read": 0, "refused": 0}
    for path in paths_in(RECORD):
        for value in (..., *VALUES, *ODD):
            line = _line(_changed(path, value))
            full = _outcome(None, line)
            assert _outcome(warm if is_warm else CellReader(), line) == full, (path, value)
            outcomes["refused" if isinstance(full, str) else "read"] += 1
    assert min(outcomes.values()) > 500


def test_an_ordinary_line_needs_no_full_check(monkeypatch: pytest.MonkeyPatch) -> None:
    full = _outcome(None, _line(RECORD))
    monkeypatch.setattr("visioneval.analysis.cell_reader.parse_line", None)
    assert CellReader().read(_line(RECORD), "here") == full


@given(st.permutations(list(RECORD)), st.sampled_from(sorted(RECORD)), st.sampled_from([None, "m2", 1, ["x"], {}]))
def test_the_last_of_two_equal_keys_counts_as_in_the_full_check(order: list[str], name: str, value: Any) -> None:
    parts = [f"{json.dumps(key)}:{json.dumps(RECORD[key])}" for key in order if key != "schema_version"]
    line = f'{{"schema_version":2,{",".join([*parts, f"{json.dumps(name)}:{json.dumps(value)}"])}}}\n'.encode()
    assert _outcome(CellReader(), line) == _outcome(None, line)


def test_equal_values_of_cells_are_the_same_objects(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_bytes(b"".join(_line({**RECORD, "sample_index": at}) for at in range(3)) + b'{"schema_version":2,"run')
    first, *others = stored_cells(path)
    assert len(others) == 2
    for cell in others:
        assert all(getattr(cell, name) is getattr(first, name) for name in ("test_id", "model_label", "tags"))
        assert cell.graders[1].fingerprint is first.graders[1].fingerprint
