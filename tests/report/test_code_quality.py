"""GitLab's code-quality report of runs and comparisons: its form, what is in it, and where it points."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compared_runs import compared_run
from people_runs import OPEN, WORD, found, people_run
from toys import Toy
from typer.testing import CliRunner

from visioneval.cli import app

FAILS: dict[str, Any] = {"metadata": {"look": "bad"}}
FIRE: dict[str, Any] = {"metadata": {"generate": "raises"}}
SUITE = """\
name: toy
cases:
  - id: first
    prompt: a tree

  - {id: second, prompt: a tree, metadata: {look: bad}}
  - id: turned
    images: [base.png]
    turns: [a tree, {prompt: a bush, metadata: {look: bad}}]
  - file: more.yaml
  - dataset: {path: rows.jsonl, fields: {id: name, prompt: text, metadata: extra}}
models: [{provider: "mine:Generate", label: toy}]
graders: [{key: look, type: "mine:Look", writes: {fine: {type: bool}, level: {type: number, range: [0, 1]}}}]
verdict: [fine]
"""
MORE = "# more\n- {id: other, prompt: a tree, metadata: {look: bad}}\n"
ROWS = {"name": "row", "text": "a tree", "extra": {"look": "bad"}}


def issues(path: str = "quality.json") -> list[dict[str, Any]]:
    """The issues of a report, each of which is checked for what GitLab requires."""
    listed = json.loads(Path(path).read_text(encoding="utf-8"))
    assert isinstance(listed, list)
    for issue in listed:
        assert issue.keys() == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert re.fullmatch("[0-9a-f]{64}", issue["fingerprint"])
        assert not issue["location"]["path"].startswith(("/", "./", ".."))
        assert issue["location"]["lines"]["begin"] >= 1
    assert len({issue["fingerprint"] for issue in listed}) == len(listed)
    return listed


def places(path: str = "quality.json") -> dict[str, tuple[str, int]]:
    """File and line by case."""
    return {
        issue["description"].partition(" ")[0]: (issue["location"]["path"], issue["location"]["lines"]["begin"])
        for issue in issues(path)
    }


def test_failed_cells_and_errors_of_a_run(toy: Toy) -> None:
    cases = [{}, FAILS, {**FAILS, "tags": ["must_pass"]}, {**FAILS, "flaky": True}, FIRE]
    result = toy.run(*cases, arguments=("--code-quality", "quality.json"))
    assert result.exit_code == 3
    assert [(issue["check_name"], issue["severity"], issue["description"]) for issue in issues()] == [
        ("visioneval: failed", "major", "case1 [0] of toy: fine: all is ill"),
        ("visioneval: failed", "critical", "case2 [0] of toy: fine: all is ill"),
        ("visioneval: failed", "info", "case3 [0] of toy: fine: all is ill"),
        ("visioneval: error", "minor", issues()[-1]["description"]),
    ]
    assert issues()[-1]["description"].startswith("case4 [0] of toy: generate, ")
    assert "the model is on fire" in issues()[-1]["description"]


def test_a_run_without_a_failed_cell_has_no_issue(toy: Toy) -> None:
    assert toy.run({}, arguments=("--code-quality", "quality.json")).exit_code == 0
    assert Path("quality.json").read_text() == "[]\n"


def test_several_suites_are_in_one_report(toy: Toy) -> None:
    for name in ("one", "two"):
        toy.write(FAILS, name=f"{name}.yaml", description=name)
    result = toy("run", "one.yaml", "two.yaml", "--trust-suite", "--code-quality", "quality.json")
    assert result.exit_code == 1
    assert [issue["location"]["path"] for issue in issues()] == ["one.yaml", "two.yaml"]


FILES = ("quality.json", "comment.md", "junit.xml")
REPORTS = ("--code-quality", FILES[0], "--markdown", FILES[1], "--junit", FILES[2])


def test_a_usage_error_leaves_the_reports_of_an_earlier_run(toy: Toy) -> None:
    assert toy.run(FAILS, arguments=("--run-id", "a", *REPORTS)).exit_code == 1
    before = [Path(name).read_bytes() for name in FILES]
    result = toy.run(FAILS, arguments=("--run-id", "a", *REPORTS))
    assert (result.exit_code, result.stdout) == (2, "")
    assert [Path(name).read_bytes() for name in FILES] == before
    for name in FILES:
        Path(name).unlink()
    assert toy.run(FAILS, arguments=("--run-id", "a", *REPORTS)).exit_code == 2
    assert not any(Path(name).exists() for name in FILES)


def test_a_fingerprint_is_the_same_in_every_run(toy: Toy) -> None:
    for name in ("a.json", "b.json"):
        toy.run(FAILS, FIRE, arguments=("--code-quality", name))
    assert issues("a.json") == issues("b.json")
    toy.run({"id": "new"}, {**FAILS, "id": "case0"}, arguments=("--code-quality", "c.json"), verdict=["level >= 0.3"])
    (changed,) = issues("c.json")
    assert changed["description"] != issues("a.json")[0]["description"]
    assert changed["fingerprint"] == issues("a.json")[0]["fingerprint"]


def written(toy: Toy, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("mine.py", "base.png"):
        toy.outputs("base.png")
        (folder / name).write_bytes((toy.folder / name).read_bytes())
    (folder / "more.yaml").write_text(MORE)
    (folder / "rows.jsonl").write_text(json.dumps(ROWS) + "\n")
    path = folder / "suite.yaml"
    path.write_text(SUITE)
    return path


def expected(folder: str = "") -> dict[str, tuple[str, int]]:
    return {
        "second": (f"{folder}suite.yaml", 6),
        "turned/2": (f"{folder}suite.yaml", 7),
        "other": (f"{folder}more.yaml", 2),
        "row": (f"{folder}suite.yaml", 11),
    }


@pytest.mark.parametrize("is_repository", [True, False])
def test_an_issue_is_at_the_line_of_its_case(*, is_repository: bool, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(toy, toy.folder / "evals" / "shop")
    if is_repository:
        subprocess.run(["git", "init", "-q", str(toy.folder)], check=True)
    monkeypatch.chdir(path.parent)
    assert toy("run", "suite.yaml", "--trust-suite", "--code-quality", "quality.json").exit_code == 1
    assert places() == expected("evals/shop/" if is_repository else "")


def test_cases_of_several_datasets_are_in_the_first_line(toy: Toy) -> None:
    path = written(toy, toy.folder)
    (toy.folder / "rest.jsonl").write_text(json.dumps({**ROWS, "name": "rest"}) + "\n")
    line = SUITE.splitlines()[10]
    path.write_text(SUITE.replace(line, f"{line}\n{line.replace('rows', 'rest')}"))
    result = toy("run", path, "--trust-suite", "--code-quality", "quality.json")
    assert result.exit_code == 1, result.output
    assert (places()["row"], places()["rest"]) == (("suite.yaml", 1),) * 2


def test_of_a_suite_that_has_changed_since_the_run_no_line_is_known(toy: Toy) -> None:
    path = written(toy, toy.folder)
    for name in ("a", "b"):
        assert toy("run", path, "--trust-suite", "--run-id", name).exit_code == 1
    results = toy.folder / "runs" / "a" / "results.jsonl"
    results.write_text(
        re.sub('"FAIL"', '"PASS"', re.sub(r'"failed_rules":\["fine"\]', '"failed_rules":[]', results.read_text()))
    )
    toy("compare", "a", "b", "--code-quality", "quality.json")
    assert places() == expected()
    (toy.folder / "more.yaml").write_text("- file: suite.yaml\n- file: more.yaml\n")
    toy("compare", "a", "b", "--code-quality", "quality.json")
    assert places()["other"] == ("suite.yaml", 11)
    path.write_text(f"# a comment\n{SUITE}")
    toy("compare", "a", "b", "--code-quality", "quality.json")
    assert set(places().values()) == {("suite.yaml", 1)}
    path.unlink()
    toy("compare", "a", "b", "--code-quality", "quality.json")
    assert set(places().values()) == {("suite.yaml", 1)}


def test_a_suite_outside_of_the_repository_is_not_read(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(toy, toy.folder / "elsewhere")
    (toy.folder / "here").mkdir()
    monkeypatch.chdir(toy.folder / "here")
    result = toy("run", path, "--trust-suite", "--code-quality", "quality.json")
    assert result.exit_code == 1, result.output
    assert set(places().values()) == {("suite.yaml", 1)}


def test_what_broke_and_new_errors_of_a_comparison(toy: Toy) -> None:
    for name, cases in (("a", [{}, {}, FAILS, FAILS, FIRE]), ("b", [FAILS, FIRE, {}, FAILS, FIRE])):
        toy.run(*cases, arguments=("--run-id", name, "--quiet"))
    toy("compare", "a", "b", "--code-quality", "quality.json")
    broken, error = issues()
    assert broken["check_name"] == "visioneval: broken"
    assert broken["description"] == "case0 [0] of toy: Broken (passed in A, fails in B); fine: all is ill"
    assert broken["severity"] == "major"
    assert error["check_name"] == "visioneval: new error"
    assert error["description"].startswith("case1 [0] of toy: New errors (measured in A, ERROR in B); B: generate, ")
    toy("compare", "b", "b", "--code-quality", "quality.json")
    assert issues() == []


def test_a_comparison_of_files_points_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, verdicts in (("before", "PPPP"), ("after", "PFPP")):
        compared_run(tmp_path / "runs", name, verdicts, "red")
        assert CliRunner().invoke(app, ["export", name, "--output", f"{name}.jsonl"]).exit_code == 0
    CliRunner().invoke(app, ["compare", "before.jsonl", "after.jsonl", "--code-quality", "quality.json"])
    assert places() == {"broke": ("after.jsonl", 1)}
    CliRunner().invoke(app, ["compare", "before", str(tmp_path / "after.jsonl"), "--code-quality", "quality.json"])
    assert places() == {"broke": ("after.jsonl", 1)}


@pytest.mark.parametrize("is_repository", [True, False])
@pytest.mark.parametrize("b", ["baseline:n", "baseline:n@*", "baselines/n.jsonl"])
def test_a_comparison_with_a_baseline_points_to_its_file(
    b: str, *, is_repository: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "evals"
    folder.mkdir()
    monkeypatch.chdir(folder)
    if is_repository:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name, verdicts in (("before", "PPPP"), ("after", "PFPP")):
        compared_run(folder / "runs", name, verdicts, "red")
    assert CliRunner().invoke(app, ["baseline", "set", "after", "--name", "n", "--partial"]).exit_code == 0
    CliRunner().invoke(app, ["compare", "before", b, "--code-quality", "quality.json"])
    assert places() == {"broke": (f"{'evals/' if is_repository else ''}baselines/n.jsonl", 1)}


@pytest.mark.parametrize(("flags", "words"), [("", {WORD, OPEN}), ("--redact person", {OPEN})])
def test_redaction(flags: str, words: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people_run(tmp_path, "first")
    people_run(tmp_path, "second", day=2)
    command = f"compare first@steady second@other --code-quality quality.json {flags}"
    assert CliRunner().invoke(app, command.split()).exit_code in (1, 3)
    assert {"face", "open"} <= places().keys()
    assert found(Path("quality.json")) == words


@pytest.mark.parametrize("redact", [False, True])
def test_redaction_of_a_run(*, redact: bool, toy: Toy) -> None:
    flags = ("--redact", "person") if redact else ()
    toy.run({**FAILS, "tags": ["person"]}, FAILS, arguments=("--code-quality", "quality.json", *flags))
    assert ["all is ill" in issue["description"] for issue in issues()] == [not redact, True]


@pytest.mark.parametrize("command", ["run suite.yaml --trust-suite", "compare a a"])
def test_a_file_that_cannot_be_written_is_known_before_any_call(command: str, toy: Toy) -> None:
    toy.run(arguments=("--run-id", "a", "--quiet"))
    result = toy(*command.split(), "--code-quality", "runs")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == "runs: cannot write: Is a directory"
    assert len(list(Path("runs").glob("*/"))) == 1


def test_a_plan_writes_no_report(toy: Toy) -> None:
    result = toy.run(arguments=("--dry-run", "--code-quality", "quality.json"))
    assert result.exit_code == 2
    assert "leave out --json, --run-id, --note, --junit, --markdown and --code-quality" in result.stderr
    assert not Path("quality.json").exists()
