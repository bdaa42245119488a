"""Failure tags by model run in a summary, in a comparison, and over the runs of an experiment."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from compare_factory import cell, comparison_markdown, comparison_text, side
from record_factory import record, run_of
from report_runs import save_run
from rich.console import Console
from typer.testing import CliRunner

from visioneval import Record, RunInfo
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.report.compare import comparison_json
from visioneval.report.run import run_report
from visioneval.report.terminal import print_report

CASES = {"a": {}, "b": {}, "c": {}}


def a_run(**changes: object) -> RunInfo:
    return run_of(CASES, ["m", "n"], [], {"fine": {"type": "bool"}}, **changes)


def cells(*tags: tuple[str, str, tuple[str, ...]]) -> list[Record]:
    return [record(test_id=case, model_label=label, failure_tags=named) for case, label, named in tags]


TAGGED = cells(
    ("a", "m", ("wrong_copy", "artifacts")), ("b", "m", ("wrong_copy",)), ("c", "m", ()), ("a", "n", ("artifacts",))
)


def printed(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_summary_counts_tags_by_model_run() -> None:
    summary = summarize(a_run(), TAGGED)
    assert summary.failure_tags == {"artifacts": 2, "wrong_copy": 2}
    assert [model.failure_tags for model in summary.models] == [{"wrong_copy": 2, "artifacts": 1}, {"artifacts": 1}]
    console = printed()
    print_report(run_report(summary), console)
    lines = [line.split() for line in text_of(console).splitlines()]
    assert ["tag", "cells", "#1", "#2"] in lines
    assert ["wrong_copy", "2", "2", "-"] in lines
    assert ["artifacts", "2", "1", "1"] in lines


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


def test_every_form_of_a_comparison_has_the_tags() -> None:
    result = compare(side([cell("a", failure_tags=("wrong",)), *map(cell, "bcde")]), side([*map(cell, "abcde")], "b"))
    assert "Cells by failure tag (p not adjusted)" in comparison_text(result)
    assert "### Cells by failure tag" in comparison_markdown(result)
    data = json.loads("".join(comparison_json(result, [], 0)))
    assert [(item["name"], item["a"], item["b"]) for item in data["by_failure_tag"]] == [("wrong", 0.2, 0.0)]


def test_a_flaky_case_counts_for_no_tag() -> None:
    a = side([cell("a", failure_tags=("wrong",), flaky=True), cell("b")])
    b = side([cell("a", failure_tags=("wrong",), flaky=True), cell("b")], "b")
    assert compare(a, b).by_failure_tag == ()


def test_runs_lists_the_tags_of_an_experiment(tmp_path: Path) -> None:
    save_run(tmp_path, a_run(run_id="first", experiment="copy"), TAGGED)
    save_run(tmp_path, a_run(run_id="second", experiment="copy"), cells(("a", "m", ("wrong_copy",)), ("b", "m", ())))
    save_run(tmp_path, a_run(run_id="third"), cells(("a", "m", ())))
    plain = CliRunner().invoke(app, ["runs", "--runs", str(tmp_path)])
    assert "wrong_copy" not in plain.output
    done = CliRunner().invoke(app, ["runs", "--failure-tags", "--runs", str(tmp_path)])
    assert done.exit_code == 0
    lines = [line.split() for line in done.output.splitlines()]
    assert ["wrong_copy", "3", "2", "1"] in lines
    assert ["artifacts", "2", "2", "-"] in lines
    assert ["#1", "first:", "4", "cells"] in lines
    assert ["#2", "second:", "2", "cells"] in lines
    assert "failure tags, no experiment: none" in done.output


def test_an_unreadable_run_is_named_and_has_no_tags(tmp_path: Path) -> None:
    save_run(tmp_path, a_run(run_id="good", experiment="copy"), TAGGED)
    save_run(tmp_path, a_run(run_id="torn", experiment="copy"), TAGGED)
    (tmp_path / "torn" / "results.jsonl").write_text("{}\nno record\n")
    done = CliRunner().invoke(app, ["runs", "--failure-tags", "--runs", str(tmp_path)])
    assert done.exit_code == 0
    lines = [line.split() for line in done.output.splitlines()]
    assert ["wrong_copy", "2", "2", "-"] in lines
    assert ["#2", "torn:", "unreadable"] in lines
