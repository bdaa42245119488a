"""``visioneval compare``: its output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toys import Toy

pytestmark = pytest.mark.slow

SUITES = Path(__file__).parents[2] / "suites"

BAD = {"look": "bad"}


def two_runs(toy: Toy, before: list[dict[str, Any]], after: list[dict[str, Any]], **changes: Any) -> None:
    """Writes runs ``a`` and ``b``, which differ only in the instructions to the toy model and grader."""
    for name, cases in (("a", before), ("b", after)):
        result = toy.run(*cases, arguments=("--run-id", name, "--quiet"), **changes)
        assert result.exit_code in (0, 1, 3), result.output


def test_exit_code_follows_the_gates(toy: Toy) -> None:
    two_runs(toy, [{}, {}], [{}, {"metadata": {**BAD, "generate": "jpeg"}}])
    assert toy("compare", "a", "b").exit_code == 3  # a cell broke, and two cases cannot show whether by chance
    assert toy("compare", "a", "b", "--allow", "cannot-tell").exit_code == 0
    assert toy("compare", "b", "a").exit_code == 0
    assert toy("compare", "a", "b", "--fail-on", "broken").exit_code == 1
    assert toy("compare", "a", "b", "--fail-on", "fine:0.5").exit_code == 0
    assert toy("compare", "a", "b", "--fail-on", "fine:0.4").exit_code == 1
    assert toy("compare", "b", "a", "--fail-on", "broken").exit_code == 0


@pytest.mark.parametrize("samples", [1, 2])
def test_rates_say_that_cases_with_several_cells_count_the_same(toy: Toy, samples: int) -> None:
    two_runs(toy, [{}, {}], [{}, {}], samples=samples)
    assert toy("compare", "a", "b", "--markdown", "comment.md").exit_code == 0
    note = "A and B: each case counts the same, whatever the number of its cells"
    assert (note in (toy.folder / "comment.md").read_text(encoding="utf-8")) == (samples == 2)


@pytest.mark.parametrize(("folder", "name"), [("runs", "b"), ("others", "others/b")])
def test_the_next_command_names_a_run_as_run_does(toy: Toy, folder: str, name: str) -> None:
    two_runs(toy, [{}, {}], [{}, {"metadata": BAD}])
    if folder != "runs":
        (toy.folder / "runs").rename(toy.folder / folder)
    result = toy("compare", "a", "b", "--runs", folder)
    assert f"next: visioneval show {name}@toy case1\n" in result.stdout


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


def test_control_characters_of_a_model_are_escaped(toy: Toy) -> None:
    refusing = {"metadata": {"generate": "refuses"}}
    two_runs(toy, [{}], [refusing])
    path = Path("runs/b/results.jsonl")
    path.write_text(path.read_text().replace("not that", "\\u001b[2J<b>not that"))
    result = toy("compare", "a", "b", "--markdown", "c.md")
    assert "\x1b" not in result.stdout
    assert "refused: " in result.stdout
    assert "`refused: \ufffd[2J<b>not that`" in Path("c.md").read_text()
