"""What the index knows of each run: figures, states, and reasons why it cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from viewed_runs import append_cell, begun_run, viewed_info, viewed_run

from visioneval.analysis.summary.summary import summarize
from visioneval.records.writer import RunWriter
from visioneval.serve import index
from visioneval.serve.index import RunListing, RunRow


def rows_by_id(root: Path) -> dict[str, RunRow]:
    return {row.run_id: row for row in RunListing(root).rows()}


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_figures_are_those_of_the_summary(tmp_path: Path) -> None:
    viewed_run(tmp_path, "run-02", passes=False)
    viewed_run(tmp_path, "run-01", note="a note")
    first, second = RunListing(tmp_path).rows()
    assert (first.run_id, first.tone, first.outcome, first.note) == ("run-01", "pass", "All gates passed", "a note")
    assert (second.tone, second.outcome, second.cells) == ("fail", "1 of 3 gates failed", 2)
    assert second.summary is not None
    assert (second.suite, second.experiment) == ("demo", "nightly")
    assert (second.summary.counts.pass_rate.value, second.summary.counts.failed) == (0.0, 2)
    assert second.summary.failure_tags == {"blurred": 2}
    assert second.summary.failing == ()
    assert second.summary.cost_usd == pytest.approx(0.02)


def test_files_are_read_again_only_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    viewed_run(tmp_path, "run-01")
    viewed_run(tmp_path, "run-02")
    read: list[str] = []
    original = index.read_row
    monkeypatch.setattr(index, "read_row", lambda folder: read.append(folder.name) or original(folder))
    runs = RunListing(tmp_path)
    runs.rows()
    runs.rows()
    assert sorted(read) == ["run-01", "run-02"]
    edit(tmp_path / "run-02" / "run.json", note="new")
    assert runs.rows()[1].note == "new"
    assert sorted(read) == ["run-01", "run-02", "run-02"]


def test_a_run_that_goes_on_has_counts_and_no_figures(tmp_path: Path) -> None:
    """Also one that was resumed: the figures of its old summary are no longer true."""
    writer = begun_run(tmp_path, "run-01")
    writer.write_summary(summarize(viewed_info("run-01", state="interrupted"), []))
    row = rows_by_id(tmp_path)["run-01"]
    assert (row.state, row.tone, row.outcome, row.cells, row.planned_cells) == ("running", "error", "Running", 1, 2)
    assert row.summary is None
    append_cell(writer, "two")
    assert rows_by_id(tmp_path)["run-01"].cells == 2
    writer.close()
    row = rows_by_id(tmp_path)["run-01"]
    assert (row.state, row.summary) == ("stopped", None)
    assert "resume" in row.outcome


def test_a_summary_of_another_state_is_not_shown(tmp_path: Path) -> None:
    folder = viewed_run(tmp_path, "run-01")
    edit(folder / "run.json", state="interrupted")
    row = rows_by_id(tmp_path)["run-01"]
    assert (row.tone, row.summary) == ("error", None)
    assert "another state" in row.outcome
    (folder / "summary.json").unlink()
    row = rows_by_id(tmp_path)["run-01"]
    assert (row.tone, row.summary) == ("error", None)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("run.json", "{", "damaged or truncated"),
        ("run.json", "[]", "run.json"),
        ("run.json", '{"state": "complete", "started_at": 3}', "run.json: started_at: "),
        ("run.json", '{"state": "complete", "started_at": "x", "planned_cells": 1e99}', "run.json: planned_cells: "),
        ("run.json", "[" * 100_000, "damaged or truncated"),
        ("run.json", '{"state": "complete", "started_at": "x", "planned_cells": 2}', "run.json: suite: "),
        ("summary.json", '{"run_id": 1e999}', "summary.json: damaged"),
        ("summary.json", "[1]", "summary.json: run_id: "),
        ("summary.json", "1", "summary.json: damaged"),
        ("summary.json", "{}", "summary.json: run_id: "),
        ("summary.json", "\x00", "damaged or truncated"),
    ],
)
def test_an_unreadable_run_is_listed_with_the_reason(tmp_path: Path, name: str, text: str, reason: str) -> None:
    folder = viewed_run(tmp_path, "run-01")
    (folder / name).write_text(text)
    viewed_run(tmp_path, "run-02")
    rows = RunListing(tmp_path).rows()
    assert [row.run_id for row in rows] == ["run-02", "run-01"]
    assert reason in rows[1].problem
    assert "\n" not in rows[1].problem


@pytest.mark.parametrize("name", ["run.json", "summary.json", "results.jsonl"])
def test_links_that_leave_the_run_are_refused(tmp_path: Path, name: str) -> None:
    folder = viewed_run(tmp_path / "runs", "run-01")
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert "link to a file outside the run" in rows_by_id(tmp_path / "runs")["run-01"].problem


def test_a_deleted_run_is_gone(tmp_path: Path) -> None:
    viewed_run(tmp_path, "run-01")
    runs = RunListing(tmp_path)
    assert len(runs.rows()) == 1
    (tmp_path / "run-01" / "run.json").unlink()
    assert runs.rows() == []


def test_texts_are_on_one_line(tmp_path: Path) -> None:
    info = viewed_info("run-01", experiment="a\nb\x1b[31m" + "c" * 500, note="x\u202ey")
    RunWriter.create(tmp_path, info).close()
    row = rows_by_id(tmp_path)["run-01"]
    assert "\n" not in row.experiment
    assert "\x1b" not in row.experiment
    assert len(row.experiment) <= 120
    assert "\u202e" not in row.note
