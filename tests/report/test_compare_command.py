"""``visioneval compare``: its output and exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from toys import SECOND, Toy
from typer.testing import CliRunner

from visioneval.cli import app

pytestmark = pytest.mark.slow

SUITES = Path(__file__).parents[2] / "suites"

BAD = {"look": "bad"}


def two_runs(toy: Toy, before: list[dict[str, Any]], after: list[dict[str, Any]], **changes: Any) -> None:
    """Writes runs ``a`` and ``b``, which differ only in the instructions to the toy model and grader."""
    for name, cases in (("a", before), ("b", after)):
        result = toy.run(*cases, arguments=("--run-id", name, "--quiet"), **changes)
        assert result.exit_code in (0, 1, 3), result.output


def test_broken_cells_come_before_fixed_cells_and_numbers(toy: Toy) -> None:
    two_runs(
        toy,
        [{}, {"metadata": BAD}, {"metadata": BAD}, {}, {}, {}],
        [{"metadata": BAD}, {}, {"metadata": BAD}, {"metadata": {"generate": "raises"}}, {}, {}],
    )
    assert toy("compare", "a", "b", "--fail-on", "broken").exit_code == 3
    result = toy("compare", "a", "b", "--fail-on", "broken", "--allow", "errors")
    assert result.exit_code == 1
    text = result.stdout
    parts = ("1 broken, 1 new error, 1 fixed, 1 still failing", "Broken (passed in A", "fine: all is ill",
             "New errors (measured in A", "the model is on fire", "Fixed (failed in A", "now passing: fine",
             "Still failing", "Pass rate and metrics", "B - A [95%]", "Gates (--fail-on)", "FAILED")  # fmt: skip
    assert text.endswith("\nnext: visioneval show runs/b@toy case0\n")
    places = [text.find(part) for part in parts]
    assert -1 not in places, parts[places.index(-1)]
    assert places == sorted(places)


def test_exit_code_follows_the_gates(toy: Toy) -> None:
    two_runs(toy, [{}, {}], [{}, {"metadata": {**BAD, "generate": "jpeg"}}])
    assert toy("compare", "a", "b").exit_code == 3  # a cell broke, and two cases cannot show whether by chance
    assert toy("compare", "a", "b", "--allow", "cannot-tell").exit_code == 0
    assert toy("compare", "b", "a").exit_code == 0
    assert toy("compare", "a", "b", "--fail-on", "broken").exit_code == 1
    assert toy("compare", "a", "b", "--fail-on", "fine:0.5").exit_code == 0
    assert toy("compare", "a", "b", "--fail-on", "fine:0.4").exit_code == 1
    assert toy("compare", "b", "a", "--fail-on", "broken").exit_code == 0


def test_model_runs_are_in_suite_order(toy: Toy) -> None:
    models = [{"provider": "mine:Generate", "label": label} for label in ("zebra", "ant", "cat")]
    two_runs(toy, [{}, {}], [{}, {}], models=models)
    for name in ("a", "b"):
        results = toy.folder / "runs" / name / "results.jsonl"
        results.write_bytes(b"".join(reversed(results.read_bytes().splitlines(keepends=True))))
    toy("baseline", "set", "a")
    for sides in (["a", "b"], ["baseline", "b"]):
        data = json.loads(toy("compare", *sides, "--json").stdout)
        assert data["labels"] == [["zebra", "zebra"], ["ant", "ant"], ["cat", "cat"]]
        assert [entry["name"] for entry in data["by_run"]] == ["zebra", "ant", "cat"]


def test_must_pass_gate_ignores_excluded_model_runs(toy: Toy) -> None:
    models = [{"provider": "mine:Generate", "label": label} for label in ("x", "y")]
    path = toy.write({"tags": ["must_pass"]}, models=models)
    assert toy("run", path, "--trust-suite", "--run-id", "a").exit_code == 0
    assert toy("run", path, "--trust-suite", "--run-id", "b", "--model", "x").exit_code == 0
    assert toy("compare", "a", "b").exit_code == 0
    assert toy("compare", "a", "a@x").exit_code == 0


def test_changed_verdict_on_the_same_image_fails(toy: Toy) -> None:
    two_runs(toy, [{}, {}], [{}, {"metadata": BAD}])
    result = toy("compare", "a", "b")
    assert result.exit_code == 1
    assert "1 of 2 cells with the same output broke" in result.stdout


@pytest.mark.parametrize(("marks", "code"), [({"tags": ["must_pass"]}, 1), ({"tags": ["must_pass"], "flaky": True}, 0)])
def test_must_pass_and_flaky(toy: Toy, marks: dict[str, Any], code: int) -> None:
    two_runs(toy, [marks, {}], [{**marks, "metadata": {**BAD, "generate": "jpeg"}}, {}])
    result = toy("compare", "a", "b")
    assert result.exit_code == code
    assert ("(must_pass, flaky)" in result.stdout) is ("flaky" in marks)


def test_sides_are_printed_with_their_ids(toy: Toy) -> None:
    two_runs(toy, [{}], [{}])
    text = toy("compare", "runs/a", "latest").stdout
    assert "A: runs/a: 1 cell of toy" in text
    assert "B: latest (b): 1 cell of toy" in text


def test_json_output(toy: Toy) -> None:
    two_runs(toy, [{}, {}], [{}, {"metadata": {**BAD, "generate": "jpeg"}}])
    result = toy("compare", "a", "b", "--json", "--fail-on", "broken")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["exit_code"]) == (1, 1)
    (change,) = data["changes"]
    assert (change["change"], change["test_id"], change["rules_broken"]) == ("broken", "case1", ["fine"])
    assert change["b"]["artifact_path"] == "artifacts/case1/toy/0.jpg"
    assert data["pass_rate"]["difference"] == -0.5
    assert [entry["name"] for entry in data["metrics"]] == ["fine", "level"]
    assert [(gate["fail_on"], gate["state"]) for gate in data["gates"]] == [
        ("broken", "failed"),
        ("missing-metrics", "passed"),
        ("errors", "passed"),
        ("missing-cells", "passed"),
        ("excuses", "passed"),
    ]
    assert {entry["what"] for entry in data["not_graded_alike"]} == {
        "prompt, criteria, expect, tags or metadata of the case"
    }


def test_grading_differences_are_printed_by_metric(toy: Toy) -> None:
    two_runs(
        toy, [{}], [{}], graders=[SECOND, {**SECOND, "key": "x", "writes": {"x": {"type": "bool"}}}], verdict=["second"]
    )
    for name, version in (("a", "1"), ("b", "2")):
        path = Path("runs", name, "results.jsonl")
        row = json.loads(path.read_text())
        row["graders"][0]["fingerprint"]["tool_versions"] = {"lens": version}
        path.write_text(json.dumps(row) + "\n")
    text = toy("compare", "a", "b").stdout
    assert "Graded differently: the differences below may come from that" in text
    assert "second: lens version: 1 -> 2 (1 of 1 pairs)" in text
    assert "x: lens" not in text


def test_cells_in_only_one_run_are_listed(toy: Toy) -> None:
    two_runs(toy, [{}, {}], [{}])
    assert "only in A: 1 cell: toy: case1 [0]" in toy("compare", "a", "b").stdout
    assert "only in B: 1 cell: toy: case1 [0]" in toy("compare", "b", "a").stdout


def test_interrupted_run_exits_3(toy: Toy) -> None:
    two_runs(toy, [{}], [{}])
    path = Path("runs/b/run.json")
    path.write_text(path.read_text().replace('"state": "complete"', '"state": "interrupted"'))
    result = toy("compare", "a", "b")
    assert (result.exit_code, "interrupted: INCOMPLETE" in result.stdout) == (3, True)


def test_control_characters_of_a_model_are_escaped(toy: Toy) -> None:
    refusing = {"metadata": {"generate": "refuses"}}
    two_runs(toy, [{}], [refusing])
    path = Path("runs/b/results.jsonl")
    path.write_text(path.read_text().replace("not that", "\\u001b[2J<b>not that"))
    result = toy("compare", "a", "b", "--markdown", "c.md")
    assert "\x1b" not in result.stdout
    assert "refused: " in result.stdout
    assert "`refused: \ufffd[2J<b>not that`" in Path("c.md").read_text()


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory, reduced_readings: None) -> Path:
    """Two runs of quickstart: ``right``, and ``spilt``, in which the edit leaves its mask; the same with must_pass."""
    folder = tmp_path_factory.mktemp("quickstart")
    shutil.copytree(SUITES / "quickstart", folder / "plain")
    shutil.copytree(SUITES / "quickstart", folder / "strict")
    suite = folder / "strict" / "suite.yaml"
    suite.write_text(suite.read_text().replace("tags: [text, edit]", "tags: [text, edit, must_pass]"))
    for kind in ("plain", "strict"):
        for name, flaw in (("right", "none"), ("spilt", "spill")):
            arguments = [
                "run",
                f"{folder}/{kind}/suite.yaml",
                "--model",
                f"mock,flaw={flaw}",
                "--runs",
                f"{folder}/runs",
            ]
            result = CliRunner().invoke(
                app, [*arguments, "--run-id", f"{kind}-{name}", "--quiet", "--junit", f"{folder}/{kind}-{name}.xml"]
            )
            assert result.exit_code in (0, 1), result.output
    return folder


def test_only_the_planted_regression_is_reported(quickstart: Path) -> None:
    arguments = ["compare", "plain-right", "plain-spilt", "--runs", f"{quickstart}/runs"]
    report = quickstart / "c.md"
    result = CliRunner().invoke(app, [*arguments, "--json", "--fail-on", "broken", "--markdown", str(report)])
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [(entry["change"], entry["test_id"], entry["rules_broken"]) for entry in data["changes"]] == [
        ("broken", "sign_word", ["place"])
    ]
    assert data["labels"] == [["mock,flaw=none", "mock,flaw=spill"]]
    text = report.read_text()
    assert "A gate failed" in text
    assert "| **`sign_word`** | `place: " in text
    assert "`flyer`" not in text
    assert CliRunner().invoke(app, arguments).exit_code == 3
    assert CliRunner().invoke(app, [*arguments, "--allow", "cannot-tell"]).exit_code == 0


def test_broken_must_pass_case_fails_by_default(quickstart: Path) -> None:
    arguments = ["compare", "strict-right", "strict-spilt", "--runs", f"{quickstart}/runs"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "1 of 1 cases tagged must_pass broke" in result.stdout


def test_junit_lists_the_same_failure(quickstart: Path) -> None:
    from xml.etree import ElementTree as ET

    root = ET.parse(quickstart / "plain-spilt.xml").getroot()
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed == ["sign_word [0]"]
