"""The alignment of each image, with its gaps: in a summary, as CSV, and side by side in a comparison."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from compare_factory import cell, comparison_markdown, comparison_text, mark, side
from record_factory import info, record
from report_runs import page_data, report, save_run
from rich.console import Console
from typer.testing import CliRunner

from visioneval import Record, RunInfo
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.report.compare import comparison_json
from visioneval.report.run import run_report
from visioneval.report.terminal import print_report
from visioneval.suite.model import Suite

SUITE = Suite.model_validate(
    {
        "name": "study",
        "cases": [{"id": name, "prompt": "a tree"} for name in ("good", "poor", "lost")],
        "models": [{"provider": "mock", "label": "mock"}],
        "judges": {"default": {"provider": "openai", "model": "gpt-5.4"}},
        "graders": [{"key": "aligned", "type": "alignment"}],
        "verdict": ["aligned >= 50"],
    }
)


def a_run() -> RunInfo:
    return info(suite=SUITE, metrics={"aligned": {"type": "number", "range": [0, 100]}}, planned_cells=3)


def graded(case: str, score: float | None, *gaps: str, **changes: Any) -> Record:
    details = {} if score is None else {"gaps": list(gaps)}
    grader = {"key": "aligned", "type": "alignment", "fingerprint": {"config_sha256": ""}, "details": details}
    return record(
        test_id=case,
        model_label="mock",
        scores={"aligned": score},
        reasons={"aligned": " ".join(gaps)} if gaps else {},
        graders=[{**grader, **changes}],
    )


CELLS = [
    graded("good", 75.0, "The bird is missing."),
    graded("poor", 25.0, "No hill.", "It is day, not night."),
    graded("lost", None),
]


def test_a_summary_has_the_score_and_the_gaps_of_each_image_passing_ones_too() -> None:
    summary = summarize(a_run(), CELLS)
    assert [(item.test_id, item.score, item.gaps) for item in summary.alignments] == [
        ("good", 75.0, ("The bird is missing.",)),
        ("poor", 25.0, ("No hill.", "It is day, not night.")),
        ("lost", None, ()),
    ]
    console = Console(file=io.StringIO(), width=100)
    print_report(run_report(summary), console)
    assert isinstance(console.file, io.StringIO)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    rows = [line for line in lines if line.startswith("1 ")]
    assert rows[-3:] == [
        "1 poor 25.0 No hill. It is day, not night.",
        "1 good 75.0 The bird is missing.",
        "1 lost not measured",
    ], "the worst first"


def test_a_summary_lists_as_many_images_as_cells_that_fail() -> None:
    console = Console(file=io.StringIO(), width=100)
    print_report(run_report(summarize(a_run(), CELLS), examples=1), console)
    assert isinstance(console.file, io.StringIO)
    assert "... and 2 more: 'visioneval export r -o cells.csv' lists all" in console.file.getvalue()


def test_the_gaps_of_a_panel_name_its_judges() -> None:
    judges = [{"judge": name, "details": {"gaps": [f"No {name}."]}} for name in ("a", "b")]
    summary = summarize(a_run(), [graded("good", 50.0, details={}, judges=judges)])
    assert summary.alignments[0].gaps == ("a: No a.", "b: No b.")


def test_csv_has_the_gaps_of_every_cell(tmp_path: Path) -> None:
    save_run(tmp_path, a_run(), CELLS)
    done = CliRunner().invoke(app, ["export", "r", "--runs", str(tmp_path)])
    head, *rows = csv.reader(done.stdout.splitlines())
    assert head[-2:] == ["aligned", "aligned gaps"]
    assert {row[1]: row[-2] for row in rows} == {"good": "75.0", "poor": "25.0", "lost": ""}
    assert "No hill.; It is day" in done.stdout
    assert "The bird is missing." in done.stdout


def both() -> Any:
    grader = (mark("aligned", "alignment"),)

    def aligned(case: str, score: float | None, gaps: str = "") -> Any:
        return cell(case, scores={"aligned": score}, reasons={"aligned": gaps} if gaps else {}, graders=grader)

    before = side([aligned("c0", 100), aligned("c1", 50, "No dog."), aligned("c2", 90), cell("c3")], metrics=METRICS)
    after = side(
        [aligned("c0", 40, "No cat."), aligned("c1", 60, "No dog."), aligned("c2", None), cell("c3")],
        "b",
        metrics=METRICS,
    )
    return compare(before, after)


METRICS = a_run().metrics


def test_a_comparison_shows_both_images_side_by_side() -> None:
    result = both()
    data = json.loads("".join(comparison_json(result, [], 0)))["alignments"]
    shown = {item["test_id"]: [item[side][name] for name in ("score", "gaps") for side in "ab"] for item in data}
    assert shown == {
        "c0": [100, 40, "", "No cat."],
        "c1": [50, 60, "No dog.", "No dog."],
        "c2": [90, None, "", ""],
    }
    assert "Alignment side by side, largest loss first" in comparison_text(result)
    assert "| `c0` | 100.0 | 40.0 |  | `No cat.` |" in comparison_markdown(result)


def test_a_comparison_without_alignment_has_no_such_table() -> None:
    result = compare(side([cell("a")]), side([cell("a")], "b"))
    assert not result.alignments
    assert "Alignment" not in comparison_markdown(result)


def test_a_report_counts_the_gaps_that_its_gallery_sorts_by(tmp_path: Path) -> None:
    folder = save_run(tmp_path, a_run().model_copy(update={"state": "running"}), CELLS)
    assert page_data(report(folder).parent, "index")["cells"]["gaps"] == [1, 2, 0]
