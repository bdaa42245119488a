"""Recorded draws: written once, read back, and refused if they are damaged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from record_factory import record

from visioneval import RunFormatError, UsageError
from visioneval.label.sampling import SelectionSpec, draw_cells
from visioneval.records.labels import DRAWS, RecordedDraw, append_draw, frame_of, read_draws

NOON = datetime(2025, 6, 14, 12, tzinfo=UTC)
RECORDS = [record(test_id=f"case{number}", verdict="PASS" if number % 3 else "FAIL") for number in range(12)]


def drawn(which: str, seed: int = 1, now: datetime = NOON) -> RecordedDraw:
    return draw_cells(RECORDS, SelectionSpec.parse(which), seed, now)


def test_draws_are_read_as_written(tmp_path: Path) -> None:
    assert read_draws(tmp_path) == []
    draws = [drawn("random:5"), drawn("stratified:6")]
    for draw in draws:
        append_draw(tmp_path, draw)
    assert read_draws(tmp_path) == draws
    assert {(cell.stratum, cell.probability) for cell in draws[1].cells} == {("FAIL", 3 / 4), ("PASS", 3 / 8)}


def test_a_draw_has_a_cell_of_each_verdict() -> None:
    with pytest.raises(UsageError, match=r"^stratified:1: there are cells with 2 verdicts: draw more cells$"):
        drawn("stratified:1")
    assert {cell.stratum for cell in drawn("stratified:2").cells} == {"FAIL", "PASS"}


def test_the_same_draw_is_recorded_once(tmp_path: Path) -> None:
    append_draw(tmp_path, drawn("random:5"))
    append_draw(tmp_path, drawn("random:5", now=datetime(2025, 7, 1, tzinfo=UTC)))
    append_draw(tmp_path, drawn("random:5", seed=2))
    assert [(draw.at[:10], draw.about.seed) for draw in read_draws(tmp_path)] == [("2025-06-14", 1), ("2025-06-14", 2)]


def test_the_frame_is_the_cells_with_an_output() -> None:
    frame = frame_of([*RECORDS, record(test_id="x", model_label="n"), record(test_id="y", status="refused")])
    assert [(part.model_label, part.cells) for part in frame] == [("m", 12), ("n", 1)]
    assert frame_of(RECORDS) == frame_of(RECORDS[::-1]) != frame_of(RECORDS[1:])
    with pytest.raises(UsageError, match="no cell has an output"):
        draw_cells([record(status="error")], SelectionSpec.parse("random:1"), 1, NOON)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines.pop(0), "a cell of the unknown draw"),
        (lambda lines: lines.append(lines[-1]), "has a cell twice"),
        (lambda lines: lines[1]["cell"].update(probability=0), "cell.probability"),
        (lambda lines: lines[1]["cell"].update(probability=0.01), "was changed or is incomplete"),
        (lambda lines: lines.pop(), "was changed or is incomplete"),
        (lambda lines: lines[0]["draw"].update(seed=7), "was changed or is incomplete"),
        (lambda lines: lines[0]["draw"].update(which="disputed:3"), "draw.which"),
        (lambda lines: lines[0].update(schema_version=1), "schema_version 1 is older"),
        (lambda lines: lines[0].update(schema_version=9), "schema_version 9 is newer"),
    ],
    ids=["no header", "twice", "probability", "changed", "incomplete", "seed", "which", "older", "newer"],
)
def test_damaged_files_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    append_draw(tmp_path, drawn("random:5"))
    path = tmp_path / DRAWS
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(RunFormatError, match=message) as error:
        read_draws(tmp_path)
    assert str(error.value).startswith(str(path))
