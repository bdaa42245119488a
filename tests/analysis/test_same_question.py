"""Judges beside local measures that answer the same question: what a run counts, prints and compares."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from record_factory import info, record
from typer.testing import CliRunner

from visioneval import Record, read_info, read_records
from visioneval.analysis.agreement.agreement import agree
from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.analysis.summary import same_question
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.report.html.pages import PageFrame
from visioneval.serve.view import render_agreement
from visioneval.suite.model import Suite

SUITE = """\
name: demo
cases:
  - {id: good, prompt: A tile., expect: {size: 32x32}, tags: [asked]}
  - {id: small, prompt: A tile., expect: {size: 32x32}, tags: [asked]}
  - {id: wide, prompt: A tile., expect: {size: 32x32}, tags: [asked]}
  - {id: strict, prompt: A tile., expect: {size: 32x32}, tags: [asked]}
  - {id: silent, prompt: A tile., expect: {size: 32x32}, tags: [asked]}
  - {id: apart, prompt: A tile., expect: {size: 32x32}}
models:
  - {provider: files, label: m, path: "{case}.png"}
judges:
  default: {provider: recorded, path: answers.csv}
graders:
  - key: look
    type: rubric
    optional: true
    when: {tags: [asked]}
    metrics:
      right_size: {type: pass_fail, description: It has the right size.}
      fit: {type: score, scale: [0, 5], description: How well it fits.}
      shape: {type: one_of, choices: [square, oblong], description: Its shape.}
  - {key: file, type: properties}
verdict:
  - file
  - {rule: fit >= 3, level: warn}
  - {rule: 'shape == "square"', level: warn}
same_question: {right_size: file, fit: file, shape: file.size}
"""
SIZES = {"good": 32, "small": 16, "wide": 16, "strict": 32, "silent": 32, "apart": 16}
"""The measure passes good, strict, silent and apart."""
ANSWERS = {"good": "yes,5,square", "small": "no,0,oblong", "wide": "yes,4,square", "strict": "no,2,oblong"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the suite, its outputs and its answers; ``silent`` has none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.yaml").write_text(SUITE)
    for case, size in SIZES.items():
        image = Image.new("RGB", (size, size), "white")
        image.paste("black", (0, 0, 8, 8))
        image.save(tmp_path / f"{case}.png")
    rows = [
        f"{case},{metric},{answer}"
        for case, answers in {**ANSWERS, "silent": ",,"}.items()
        for metric, answer in zip(("right_size", "fit", "shape"), answers.split(","), strict=True)
    ]
    (tmp_path / "answers.csv").write_text("\n".join(["case,question,answer", *rows, ""]))
    return tmp_path


def call(*words: str) -> str:
    return " ".join(CliRunner().invoke(app, [*words]).output.split())


def pairs_of(run: Path) -> dict[str, dict[str, Any]]:
    return {pair["judge"]: pair for pair in json.loads((run / "summary.json").read_text())["same_question"]}


def test_a_run_counts_and_names_the_cells_in_both_directions(folder: Path) -> None:
    printed = call("run", "suite.yaml", "--run-id", "r", "--markdown", "r.md")
    pairs = pairs_of(folder / "runs" / "r")
    assert list(pairs) == ["right_size", "fit", "shape"]
    for judge, pair in pairs.items():
        numbers = {name: value for name, value in pair.items() if isinstance(value, int)}
        assert numbers == {
            "cells": 4,
            "both_pass": 1,
            "both_fail": 1,
            "only_judge_passes": 1,
            "only_measure_passes": 1,
            "unmeasured": 1,
        }, judge
        assert [(cell["test_id"], cell["judge_passes"]) for cell in pair["contradicted"]] == [
            ("wide", True),
            ("strict", False),
        ]
    assert (pairs["fit"]["contradicted"][0]["judge"], pairs["fit"]["contradicted"][0]["measure"]) == (4, False)
    assert "16x16" in pairs["fit"]["contradicted"][0]["why"]
    assert "Judges beside measures of the same question" in printed
    assert "right_size file 4 !1 1 1" in printed
    assert "fit: 4 file" in printed
    assert "file.size shape: oblong" in printed
    written = (folder / "r.md").read_text()
    assert "| `right_size` | `file` | 4 !1 | **1** | **1** |" in written
    call("report", "r", "-o", "page")
    assert "Judges beside measures of the same question" in (folder / "page" / "index.html").read_text()


def test_no_verdict_gate_or_exit_code_depends_on_it(folder: Path) -> None:
    without = SUITE.partition("same_question")[0]
    outcomes = []
    for name, text in {"with": SUITE, "without": without}.items():
        (folder / "suite.yaml").write_text(text)
        done = CliRunner().invoke(app, ["run", "suite.yaml", "--run-id", name])
        verdicts = [(cell.cell, cell.verdict, cell.warned_rules) for cell in read_records(folder / "runs" / name)]
        verdicts.sort()
        outcomes.append((done.exit_code, verdicts))
    assert outcomes[0] == outcomes[1]
    assert "same question" not in call("show", "without")
    assert "same_question" not in json.loads((folder / "runs" / "without" / "run.json").read_text())["suite"]
    assert "another thing" not in call("compare", "without", "with")


def test_an_old_run_is_counted_after_grade_and_asks_no_judge(folder: Path) -> None:
    (folder / "suite.yaml").write_text(SUITE.partition("same_question")[0])
    call("run", "suite.yaml", "--run-id", "old")
    (folder / "suite.yaml").write_text(SUITE)
    call("grade", "old", "--suite", "suite.yaml", "--run-id", "new")
    assert pairs_of(folder / "runs" / "old") == {}
    assert pairs_of(folder / "runs" / "new")["right_size"]["cells"] == 4
    old, new = ({cell.cell: cell.grade_key for cell in read_records(folder / "runs" / name)} for name in ("old", "new"))
    assert old == new


def test_shards_count_their_cells_and_the_merged_run_all(folder: Path) -> None:
    for number in (1, 2):
        call("run", "suite.yaml", "--run-id", f"s{number}", "--shard", f"{number}/2")
    call("merge", "runs/s1", "runs/s2", "--run-id", "all")
    call("run", "suite.yaml", "--run-id", "r")
    counts = [pairs_of(folder / "runs" / name)["fit"]["cells"] for name in ("s1", "s2", "all")]
    assert counts[0] + counts[1] == counts[2] == 4
    merged, whole = (pairs_of(folder / "runs" / name)["fit"]["contradicted"] for name in ("all", "r"))
    assert [cell["test_id"] for cell in merged] == [cell["test_id"] for cell in whole]


def test_a_grader_that_was_left_out_compares_nothing(folder: Path) -> None:
    printed = call("run", "suite.yaml", "--run-id", "r", "--grader", "file")
    assert pairs_of(folder / "runs" / "r")["fit"]["cells"] == 0
    assert "same question" not in printed
    assert json.loads(CliRunner().invoke(app, ["agreement", "r", "--json"]).stdout)["same_question"] == []


def test_agreement_takes_the_measure_for_a_rater_and_needs_no_label(folder: Path) -> None:
    call("run", "suite.yaml", "--run-id", "r")
    found = json.loads(CliRunner().invoke(app, ["agreement", "r", "--json"]).stdout)["same_question"]
    assert [(pair["judge"], pair["measure"], pair["cells"], pair["unmeasured"]) for pair in found] == [
        ("right_size", "file", 4, 1),
        ("fit", "file", 4, 1),
        ("shape", "file.size", 4, 1),
    ]
    values = {name: measure["value"] for name, measure in found[0]["measures"].items()}
    assert values == pytest.approx({"kappa": 0, "accuracy": 0.5, "fail_precision": 0.5, "fail_recall": 0.5})
    printed = call("agreement", "r")
    assert "3 metrics of judges with a local measure" in printed
    assert "right_size and local measure file: kappa 0.000" in printed
    assert "Local measure (rows) by judge (columns)" in printed
    assert "wide m right_size file" in printed
    page = render_agreement(folder / "runs" / "r", PageFrame(()))
    assert "right_size and local measure file, cells: 4" in page
    required = CliRunner().invoke(app, ["agreement", "r", "--min", "right_size:-1"])
    assert required.exit_code == 3, "a minimum is about people"


def test_redacted_reports_count_the_same_and_explain_nothing(folder: Path) -> None:
    call("run", "suite.yaml", "--run-id", "r")
    call("report", "r", "-o", "page", "--redact", "asked")
    page = (folder / "page" / "index.html").read_text()
    assert "Judges beside measures of the same question" in page
    assert "16x16" not in page.partition("Judges beside measures")[2]


def suite_of(*rules: Any, pairs: dict[str, str], **case: Any) -> Suite:
    score = {"type": "score", "scale": [0, 5], "description": "x"}
    metrics = {"clean": {"type": "pass_fail", "description": "x"}, "fit": score}
    writes = {
        "flaw": {"type": "bool", "better": "lower"},
        "neat": {"type": "bool"},
        "edge": {"type": "number", "range": [0, 9]},
    }
    return Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"id": "one", "prompt": "a tree", **case}],
            "models": [{"provider": "mock", "label": "m"}],
            "judges": {"default": {"provider": "openai", "model": "m"}},
            "graders": [
                {"key": "look", "type": "rubric", "judge": "default", "metrics": metrics},
                {"key": "own", "type": "own:Look", "writes": writes},
            ],
            "metrics": {"fits": "fit >= 4"},
            "verdict": ["neat", *rules],
            "same_question": pairs,
        }
    )


def counted(suite: Suite, *cells: Record) -> Any:
    case = suite.cases[0]
    metrics = {name: metric for grader in suite.graders for name, metric in grader.metrics(case).items()}
    run = info(suite=suite, metrics={**metrics, "fits": {"type": "bool"}}, planned_cells=len(cells))
    (pair,) = summarize(run, cells).same_question
    return pair


def both(scores: dict[str, Any], **changes: Any) -> Record:
    return record(test_id="one", model_label="m", scores=scores, **changes)


WARN = {"level": "warn"}


@pytest.mark.parametrize(
    ("rules", "pair", "scores", "passes"),
    [
        ([], ("clean", "neat"), (True, False), (True, False)),
        ([], ("clean", "flaw"), (True, True), (True, False)),  # the better answer of a flaw is no
        ([], ("clean", "flaw"), (False, False), (False, True)),
        ([], ("fits", "neat"), (False, True), (False, True)),
        (["fit >= 3"], ("fit", "neat"), (3, False), (True, False)),
        (["fit >= 3"], ("fit", "neat"), (2, True), (False, True)),
        (["fit >= 2", {"rule": "fit <= 3", **WARN}], ("fit", "neat"), (4, True), (False, True)),
        (["fit >= 2", "edge <= 1"], ("fit", "edge"), (1, 1.0), (False, True)),
        (["not clean"], ("clean", "neat"), (True, True), (False, True)),
        ([{"rule": "fit >= 5", "tags": ["strict"]}, "fit >= 1"], ("fit", "neat"), (3, False), (True, False)),
    ],
)
def test_the_rules_say_which_scores_pass(
    rules: Sequence[Any], pair: tuple[str, str], scores: tuple[Any, Any], passes: tuple[bool, bool]
) -> None:
    found = counted(suite_of(*rules, pairs=dict([pair])), both(dict(zip(pair, scores, strict=True))))
    assert (found.cells, found.only_judge_passes, found.only_measure_passes) == (1, *map(int, passes))


@pytest.mark.parametrize(
    ("cell", "unmeasured"),
    [
        (both({"fit": None, "neat": True}), 1),
        (both({"fit": 4, "neat": None}), 1),
        (both({}, status="error", verdict="ERROR", error={"stage": "generate", "kind": "timeout", "message": "x"}), 1),
        (both({"neat": True}), 0),  # the judge is not asked in this case
        (both({"fit": None}), 0),
        (both({}, status="refused", verdict="FAIL"), 0),
        (both({"fit": "odd", "neat": True}), 0),
    ],
)
def test_a_cell_without_one_of_the_scores_is_no_disagreement(cell: Record, unmeasured: int) -> None:
    found = counted(suite_of("fit >= 3", pairs={"fit": "neat"}), cell)
    assert (found.cells, found.only_judge_passes, found.only_measure_passes) == (0, 0, 0)
    assert found.unmeasured == unmeasured


def test_the_rules_of_a_case_replace_those_of_the_suite() -> None:
    cell = both({"fit": 4, "neat": False})
    for verdict, only_judge in ((["fit >= 5", "neat"], 0), (["fit >= 4", "neat"], 1)):
        suite = suite_of("fit >= 1", pairs={"fit": "neat"}, verdict=verdict)
        assert counted(suite, cell).only_judge_passes == only_judge
    assert counted(suite_of("fit >= 1", pairs={"fit": "neat"}, verdict=["neat"]), cell).cells == 0


def test_many_contradictions_are_counted_and_the_first_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_question, "MAX_CELLS", 3)
    cells = [both({"clean": True, "neat": False}, sample_index=at) for at in range(9, -1, -1)]
    found = counted(suite_of(pairs={"clean": "neat"}), *cells)
    assert found.only_judge_passes == 10
    assert [cell.sample_index for cell in found.contradicted] == [0, 1, 2]


def test_runs_are_pooled_and_judges_that_never_differ_have_no_kappa(folder: Path) -> None:
    for name in ("a", "b"):
        call("run", "suite.yaml", "--run-id", name, "--case", "good", "--case", "silent")
    runs = []
    for name in ("a", "b"):
        run = folder / "runs" / name
        runs.append(LabeledRun(read_info(run), list(read_records(run)), ()))
    found = agree(runs).same_question[0]
    assert (found.cells, found.both_pass, found.unmeasured) == (2, 2, 2)
    assert found.measures["kappa"].value is None
    assert "undefined" in str(found.measures["kappa"].note)
    assert found.measures["accuracy"].value == 1
    assert found.measures["fail_recall"].note == "the measure fails no cell"
    nothing = agree(
        [LabeledRun(run.info, [cell for cell in run.records if cell.test_id == "silent"], ()) for run in runs]
    )
    assert nothing.same_question[0].measures["accuracy"].note == "no cell has both"
