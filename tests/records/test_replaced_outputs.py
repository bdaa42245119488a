"""An output of a run that was replaced after it was generated: nothing scores it or decides by it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from visioneval import Record, UsageError, read_records
from visioneval.cli import app
from visioneval.label.work import LabelRequest, prepare

CASES = """\
name: shop
cases:
  - {id: tree, prompt: a tree}
  - {id: cat, images: [base.png], turns: [make it red, make it blue]}
graders: [{key: image, type: properties}]
verdict: [not image.blank]
"""
GENERATED = f"{CASES}models: [{{provider: mock, label: m, params: {{size: 64x64}}}}]\nsamples: 2\n"
FROM_RUN = f"{CASES}models: [{{provider: files, run: r}}]\n"
TREE, FIRST_TURN = "artifacts/tree/m/0.png", "artifacts/cat/1/m/0.png"
CHANGED = "was changed after it was generated"


@pytest.fixture(autouse=True)
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (64, 64), "white").save("base.png")
    assert visioneval(GENERATED, "run", "suite.yaml", "--run-id", "r").exit_code == 0


def visioneval(suite: str, *arguments: str) -> Result:
    Path("suite.yaml").write_text(suite)
    return CliRunner().invoke(app, list(arguments), catch_exceptions=False)


def replace(*paths: str) -> None:
    for path in paths:
        Image.new("RGB", (64, 64), "green").save(Path("runs/r") / path)


def records(run: str) -> dict[tuple[str, int], Record]:
    return {(record.test_id, record.sample_index): record for record in read_records(Path("runs") / run)}


def problem(record: Record) -> str:
    assert record.error is not None
    assert (record.verdict, record.scores) == ("ERROR", {})
    return record.error.message


def test_outputs_of_another_run_are_graded_if_they_are_the_generated_ones() -> None:
    done = visioneval(FROM_RUN, "run", "suite.yaml", "--run-id", "b")
    assert done.exit_code == 0, done.output
    source, read = records("r"), records("b")
    assert read.keys() == source.keys()
    assert {cell: record.artifact_sha256 for cell, record in read.items()} == {
        cell: record.artifact_sha256 for cell, record in source.items()
    }


def test_an_output_whose_record_has_no_hash_is_an_error_that_says_so() -> None:
    results = Path("runs/r/results.jsonl")
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    changed = [{**line, "artifact_sha256": None} if line["test_id"] == "tree" else line for line in lines]
    results.write_text("".join(f"{json.dumps(line)}\n" for line in changed))
    done = visioneval(FROM_RUN, "run", "suite.yaml", "--run-id", "b")
    assert done.exit_code == 3, done.output
    assert problem(records("b")["tree", 0]).endswith(f"{TREE}: its record has no hash, so that it cannot be checked")


def test_a_replaced_output_of_another_run_is_an_error_of_its_cell_and_of_the_turns_after_it() -> None:
    replace(TREE, FIRST_TURN)
    done = visioneval(FROM_RUN, "run", "suite.yaml", "--run-id", "b")
    assert done.exit_code == 3, done.output
    read = records("b")
    assert problem(read["tree", 0]).endswith(f"{TREE}: {CHANGED}")
    assert problem(read["cat/1", 0]).endswith(f"{FIRST_TURN}: {CHANGED}")
    assert problem(read["cat/2", 0]) == "cat/1 has no output to edit: it ended in an error"
    assert {read[cell, 1].verdict for cell in ("tree", "cat/1", "cat/2")} == {"PASS"}


def test_an_output_that_is_restored_is_graded_when_the_run_is_resumed() -> None:
    shutil.copyfile(f"runs/r/{TREE}", "saved.png")
    replace(TREE)
    assert visioneval(FROM_RUN, "run", "suite.yaml", "--run-id", "b").exit_code == 3
    shutil.copyfile("saved.png", f"runs/r/{TREE}")
    assert visioneval(FROM_RUN, "run", "--resume", "b").exit_code == 0


@pytest.mark.parametrize("stated", [None, "0" * 64])
def test_an_output_whose_record_has_another_hash_or_none_is_not_graded(stated: str | None) -> None:
    path = Path("runs/r/results.jsonl")
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["artifact_sha256"] = stated if line["test_id"] == "tree" else line["artifact_sha256"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert visioneval(FROM_RUN, "run", "suite.yaml", "--run-id", "b").exit_code == 3
    assert {cell for cell, record in records("b").items() if record.error} == {("tree", 0), ("tree", 1)}


@pytest.mark.parametrize("judged", ["", ", level: warn"], ids=["graded", "only rules changed"])
def test_grade_refuses_a_replaced_output(judged: str) -> None:
    replace(TREE, FIRST_TURN)
    suite = GENERATED.replace("[not image.blank]", f"[not image.blank, {{rule: not image.blank{judged}}}]")
    assert visioneval(suite, "grade", "r", "--suite", "suite.yaml", "--run-id", "g").exit_code == 3
    read = records("g")
    assert problem(read["tree", 0]) == f"{TREE}: {CHANGED}"
    assert problem(read["cat/2", 0]) == "cat/1 has no output to edit: it ended in an error"


def test_probe_leaves_out_a_replaced_output_of_a_run_and_of_a_suite_that_reads_it() -> None:
    replace(TREE, FIRST_TURN)
    for name in ("r", "suite.yaml"):
        done = visioneval(FROM_RUN, "probe", name)
        assert f"skipped 2 outputs: it {CHANGED} (cat/1 on m, sample 0)" in done.output, done.output
        assert "skipped 1 output: the " in done.output


def linked(path: Path) -> None:
    outside = Path("outside.png").absolute()
    shutil.copy(path, outside)
    path.unlink()
    path.symlink_to(outside)


TREES = [f"artifacts/tree/m/{at}.png" for at in range(20)]
FIRST_TURNS = [f"artifacts/cat/1/m/{at}.png" for at in range(20)]
MANY, FROM_MANY = GENERATED.replace("samples: 2", "samples: 20"), FROM_RUN.replace("run: r", "run: many")
LOST = "the image that it edits is not in the run"


@pytest.mark.parametrize(
    ("source", "lose", "paths", "note", "unmeasured"),
    [
        ("many", linked, TREES[:3], "3 outputs: its file is not in the run", 3),
        ("many", linked, TREES[:4], "4 outputs: its file is not in the run", 4),
        ("many", Path.unlink, FIRST_TURNS[:1], f"1 output: {LOST}", 2),
        ("many", Path.unlink, FIRST_TURNS[:2], f"2 outputs: {LOST}", 4),
        ("suite.yaml", Path.unlink, FIRST_TURNS[:1], "1 output: the turn before has no output that can be read", 2),
        ("suite.yaml", Path.unlink, FIRST_TURNS[:2], "2 outputs: the turn before has no output that can be read", 4),
    ],
)
def test_the_gates_of_a_probe_need_the_outputs_that_are_lost(
    source: str, lose: Any, paths: list[str], note: str, unmeasured: int
) -> None:
    """Of 60 outputs, 3 may be lost. A first turn that is lost takes the second with it."""
    assert visioneval(MANY, "run", "suite.yaml", "--run-id", "many").exit_code == 0
    for path in paths:
        lose(Path("runs/many") / path)
    probe = ("probe", source, "--kinds", "pixels.blank", "--min-detection", "pixels.blank:0.1", "--json")
    done = visioneval(FROM_MANY if source == "suite.yaml" else MANY, *probe)
    assert note in done.output
    assert f"{unmeasured} of 60 outputs were not measured" in done.output
    assert done.exit_code == (3 if unmeasured > 3 else 0)


@pytest.mark.parametrize("other", [None, "r"])
def test_people_label_no_replaced_output(other: str | None) -> None:
    name = "r" if other is None else "second"
    if other is not None:
        assert visioneval(GENERATED, "run", "suite.yaml", "--run-id", name).exit_code == 0
    request = LabelRequest(name, Path("runs"), pairs=other)
    assert prepare(request)
    replace(TREE)
    with pytest.raises(UsageError, match=f"{TREE}: {CHANGED}: restore it, or resume the run"):
        prepare(request)


def test_no_random_cells_are_drawn_from_a_run_with_a_replaced_output() -> None:
    assert visioneval(GENERATED, "label", "draw", "r", "random:2", "-o", "before.csv").exit_code == 0
    replace(TREE)
    done = visioneval(GENERATED, "label", "draw", "r", "random:3", "-o", "after.csv")
    assert (done.exit_code, Path("after.csv").exists()) == (2, False)
    assert f"{TREE}: {CHANGED}" in done.output
