"""Failure tags by model run in a summary, in a comparison, and over the runs of an experiment."""

from __future__ import annotations

from pathlib import Path

import pytest
from compare_factory import cell, side
from record_factory import record, run_of
from report_runs import save_run
from typer.testing import CliRunner

from visioneval import Record, RunInfo
from visioneval.analysis.compare.compare import compare
from visioneval.cli import app

CASES = {"a": {}, "b": {}, "c": {}}


def a_run(**changes: object) -> RunInfo:
    return run_of(CASES, ["m", "n"], [], {"fine": {"type": "bool"}}, **changes)


def cells(*tags: tuple[str, str, tuple[str, ...]]) -> list[Record]:
    return [record(test_id=case, model_label=label, failure_tags=named) for case, label, named in tags]


TAGGED = cells(
    ("a", "m", ("wrong_copy", "artifacts")), ("b", "m", ("wrong_copy",)), ("c", "m", ()), ("a", "n", ("artifacts",))
)


def test_a_comparison_shows_the_share_of_cells_with_each_tag() -> None:
    a = side([cell("a", failure_tags=("wrong",)), cell("b", failure_tags=("wrong",)), cell("c"), cell("d", "ERROR")])
    b = side([cell("a"), cell("b", failure_tags=("wrong", "late")), cell("c"), cell("d", failure_tags=("late",))], "b")
    result = compare(a, b)
    shown = {item.name: (item.a, item.b, item.n_pairs, item.unmeasured) for item in result.by_failure_tag}
    assert shown == {
        "wrong": (pytest.approx(2 / 3), pytest.approx(1 / 3), 3, 1),
        "late": (0, pytest.approx(1 / 3), 3, 1),
    }
    assert next(iter(shown)) == "wrong", "most frequent first"
    assert all(item.p_holm is None for item in result.by_failure_tag), "no part of the families that decide"
    assert result.by_failure_tag[0].worse_by is not None
    assert result.by_failure_tag[0].worse_by < 0, "a tag less often is better"


def test_a_flaky_case_counts_for_no_tag() -> None:
    a = side([cell("a", failure_tags=("wrong",), flaky=True), cell("b")])
    b = side([cell("a", failure_tags=("wrong",), flaky=True), cell("b")], "b")
    assert compare(a, b).by_failure_tag == ()


def test_an_unreadable_run_is_named_and_has_no_tags(tmp_path: Path) -> None:
    save_run(tmp_path, a_run(run_id="good", experiment="copy"), TAGGED)
    save_run(tmp_path, a_run(run_id="torn", experiment="copy"), TAGGED)
    (tmp_path / "torn" / "results.jsonl").write_text("{}\nno record\n")
    save_run(tmp_path, a_run(run_id="third"), cells(("a", "m", ())))
    done = CliRunner().invoke(app, ["runs", "--failure-tags", "--runs", str(tmp_path)])
    assert done.exit_code == 0
    lines = [line.split() for line in done.output.splitlines()]
    assert ["wrong_copy", "2", "2", "-"] in lines
    assert ["#2", "torn:", "unreadable"] in lines
    assert "failure tags, no experiment: none" in done.output
