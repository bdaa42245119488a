"""The index of a run's cells: the last line of each cell, found from the first bytes of each line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_factory import info, record
from typer.testing import CliRunner

from visioneval import Record, RunFormatError, read_records
from visioneval.cli import app
from visioneval.records.cell_index import CellIndex, written_cell
from visioneval.records.cells.stored_records import StoredRecords
from visioneval.records.model import index_cells
from visioneval.records.writer import RunWriter
from visioneval.suite.filters import Scope

CELLS = st.tuples(st.sampled_from("ab"), st.sampled_from("mn"), st.integers(0, 130) | st.just(1_000_000))


@given(st.lists(CELLS, max_size=60))
def test_the_last_line_of_each_cell_is_found(cells: list[tuple[str, str, int]]) -> None:
    index = CellIndex()
    for cell in cells:
        index.add(cell)
    last = {cell: number for number, cell in enumerate(cells)}
    assert [number for number, cell in enumerate(cells) if index.is_last(cell, number)] == sorted(last.values())
    assert index.cells.total() == len(last)
    assert {label: sum(cell[1] == label for cell in last) for label in index.cells} == index.cells


def _line(**changes: Any) -> bytes:
    return record(**changes).model_dump_json().encode() + b"\n"


def test_a_written_line_needs_no_parsing() -> None:
    line = _line(test_id="a.b-1", model_label="m,q=\u00fc", sample_index=12, prompt='say "hi" \\ now')
    assert written_cell(line) == ("a.b-1", "m,q=\u00fc", 12)


@pytest.mark.parametrize(
    "line",
    [
        _line()[:-1],
        _line(model_label='say "m"'),
        _line(prompt="bell\a"),
        _line().replace(b'"cached":', b'"test_id":"two","cached":'),
        _line().replace(b'"cached":', b'"model_label":"n","cached":'),
        _line().replace(b'"cached":', b'"sample_index": 7,"cached":'),
        _line().replace(b'"cached":', b'"test\\u005fid":"two","cached":'),
        _line().replace(b'"test_id":"one",', b"").replace(b'"cached":', b'"test_id":"one","cached":'),
        b" " + _line(),
        b"\xff",
    ],
)
def test_any_other_line_is_parsed(line: bytes) -> None:
    assert written_cell(line) is None


def _run(root: Path, lines: list[bytes]) -> Path:
    writer = RunWriter.create(root, info())
    writer.finish("complete", "2025-01-01T00:00:01+00:00")
    (writer.folder / "results.jsonl").write_bytes(b"".join(lines))
    return writer.folder


def test_a_forged_line_counts_as_the_cell_that_a_full_parse_finds(tmp_path: Path) -> None:
    forged = _line().replace(b'"cached":', b'"test_id":"two","cached":')
    folder = _run(tmp_path, [_line(test_id="two", prompt="first"), forged, _line()])
    assert [(item.test_id, item.prompt) for item in read_records(folder)] == [("two", "a tree"), ("one", "a tree")]


def test_stored_records_come_in_both_orders_and_by_label(tmp_path: Path) -> None:
    lines = [
        _line(test_id="lost", sample_index=1),
        _line(sample_index=1, prompt="outdated"),
        b"\n",
        _line(sample_index=0),
        _line(model_label="other", sample_index=0),
        _line(sample_index=1),
    ]
    stored = StoredRecords.of_run(_run(tmp_path, lines))
    suite = info(suite=info().suite.model_copy(update={"models": ()}))
    in_order = list(stored.in_order(suite))
    assert [record.cell for record in in_order] == [
        ("one", "m", 0), ("one", "other", 0), ("one", "m", 1), ("lost", "m", 1),
    ]  # fmt: skip
    assert [record.cell for record in stored] == [
        ("lost", "m", 1), ("one", "m", 0), ("one", "other", 0), ("one", "m", 1),
    ]  # fmt: skip
    assert "outdated" not in {record.prompt for record in in_order}
    part = stored.within(Scope(models=("o*",)))
    assert (len(stored), len(part)) == (4, 1)
    assert [record.cell for record in part] == [record.cell for record in part.in_order(suite)] == [("one", "other", 0)]


def test_an_invalid_record_is_named_by_its_line_in_any_order(tmp_path: Path) -> None:
    broken = json.loads(_line(sample_index=1)) | {"verdict": "MAYBE"}
    folder = _run(tmp_path, [b"\n", _line(), json.dumps(broken, separators=(",", ":")).encode() + b"\n"])
    stored = StoredRecords.of_run(folder)
    for records in (iter(stored), stored.in_order(info())):
        with pytest.raises(RunFormatError, match=r"results.jsonl:3: verdict: "):
            list(records)


def test_lines_that_come_while_a_run_is_read_are_left_for_later(tmp_path: Path) -> None:
    folder = _run(tmp_path, [_line()])
    stored = StoredRecords(folder, index_cells(folder))
    with (folder / "results.jsonl").open("ab") as results:
        results.write(_line(sample_index=1))
    assert [record.sample_index for record in stored] == [0]
    assert [type(record) for record in stored.in_order(info())] == [Record]


def test_an_export_that_fails_leaves_the_older_file_as_it_was(tmp_path: Path) -> None:
    broken = json.loads(_line(sample_index=1)) | {"verdict": "MAYBE"}
    folder = _run(tmp_path, [_line(), json.dumps(broken, separators=(",", ":")).encode() + b"\n"])
    target = tmp_path / "cells.csv"
    target.write_text("older", encoding="utf-8")
    result = CliRunner().invoke(app, ["export", str(folder), "-o", str(target)])
    assert (result.exit_code, target.read_text(encoding="utf-8")) == (2, "older")
    assert {path.name for path in tmp_path.iterdir()} == {"r", "cells.csv"}
    (folder / "results.jsonl").write_bytes(_line())
    assert CliRunner().invoke(app, ["export", str(folder), "-o", str(target)]).exit_code == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == 2
