"""A changed rule needs neither a judge nor a measurement: the judge never sees it, and the scores stay the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeAPI, JudgeRequest
from suite_runner import SuiteRunner
from toys import LOOK, SECOND, Toy

from visioneval import Record, read_records

SCORED: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "metrics": {"layout": {"type": "score", "scale": [0, 5], "description": "The layout."}},
}
ANSWER = {"layout": 3, "reason": "so it is", "verdict": "PASS"}


@pytest.fixture
def suite(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> SuiteRunner:
    monkeypatch.setenv("LOCAL_KEY", api.key)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    runner = SuiteRunner(tmp_path, api)
    api.script.judge(ANSWER)
    return runner


def rules(rule: str, **changes: Any) -> dict[str, Any]:
    return {"graders": [SCORED], "verdict": [rule], **changes}


def test_a_changed_rule_replays_offline_without_a_miss(suite: SuiteRunner) -> None:
    suite.write(**rules("layout >= 3"))
    assert suite.run().exit_code == 0
    calls = suite.called
    suite.write(**rules("layout >= 4"))
    result = suite.run("--offline", run_id="again")
    assert result.exit_code == 1, result.output
    assert suite.called == calls
    records = suite.records("again").values()
    assert [(record.verdict, record.scores, record.graders[0].cached) for record in records] == [
        ("FAIL", {"layout": 3}, True)
    ] * 2


def test_a_judge_sees_no_rule(suite: SuiteRunner) -> None:
    suite.write(**rules("layout >= 3"), gates=["pass_rate >= 0.123"])
    suite.run()
    asked = [str(entry.asked) for entry in suite.api.requests if isinstance(entry.asked, JudgeRequest)]
    assert len(asked) == 2
    for text in asked:
        assert "The layout." in text
        assert ">= 3" not in text
        assert "0.123" not in text


def graded(suite: SuiteRunner, *arguments: str, code: int, run_id: str = "again") -> str:
    path = suite.folder / "suite.yaml"
    result = suite("grade", "r", "--suite", path, "--runs", suite.out, "--run-id", run_id, *arguments)
    assert result.exit_code == code, result.output
    return result.stderr


def test_grade_reevaluates_changed_rules_without_calls(suite: SuiteRunner) -> None:
    suite.write(**rules("layout >= 3"))
    suite.run("--cache", str(suite.folder / "first"))
    calls = suite.called
    suite.write(**rules("layout >= 4"))
    message = graded(suite, "--cache", str(suite.folder / "empty"), code=1)
    assert "2 cells are re-evaluated by the rules with their stored scores: no grader runs" in message
    assert suite.called == calls
    before, after = suite.records(), suite.records("again")
    for cell, record in after.items():
        old = before[cell]
        assert (old.verdict, record.verdict, record.failed_rules) == ("PASS", "FAIL", ("layout >= 4",))
        assert (record.scores, record.reasons, record.artifact_sha256) == (old.scores, old.reasons, old.artifact_sha256)
        assert record.graders[0].details == old.graders[0].details
        assert record.graders[0].fingerprint == old.graders[0].fingerprint
        assert (old.graders[0].cost_usd, record.graders[0].cost_usd, record.graders[0].cached) == (0.01, 0.0, True)
        assert old.graders[0].seconds > 0
        assert (record.graders[0].seconds, record.graders[0].waited_seconds) == (0.0, 0.0)
        assert (suite.out / "again" / str(record.artifact_path)).is_file()


def test_grade_needs_no_key_if_only_the_rules_changed(suite: SuiteRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    suite.write(**rules("layout >= 3"))
    suite.run()
    monkeypatch.delenv("LOCAL_KEY")
    suite.write(**rules("layout >= 4"))
    graded(suite, code=1)
    suite.write(**rules("layout >= 4", graders=[{**SCORED, "votes": 2}]))
    assert "LOCAL_KEY" in graded(suite, code=2, run_id="third")


@pytest.mark.parametrize(
    "changes",
    [
        {"graders": [{**SCORED, "votes": 2}]},
        {"judges": {"default": {"provider": "openai", "model": "gpt-5.4", "params": {"temperature": 0}}}},
        {"cases": [{"id": "tree", "prompt": "a tree", "criteria": "green"}]},
    ],
)
def test_grade_asks_again_if_more_than_the_rules_changed(suite: SuiteRunner, changes: dict[str, Any]) -> None:
    suite.write("tree", **rules("layout >= 3"))
    suite.run()
    generated, judged = suite.called
    host = {"base_url": suite.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
    if "judges" in changes:
        changes = {"judges": {"default": {**changes["judges"]["default"], **host}}}
    suite.write("tree", **{**rules("layout >= 4"), **changes})
    assert "re-evaluated" not in graded(suite, code=1)
    assert suite.called[0] == generated
    assert suite.called[1] > judged


def test_grade_with_reuse_none_asks_again(suite: SuiteRunner) -> None:
    suite.write("tree", **rules("layout >= 3"))
    suite.run()
    generated, judged = suite.called
    suite.write("tree", **rules("layout >= 4"))
    assert "re-evaluated" not in graded(suite, "--reuse", "none", code=1)
    assert suite.called == (generated, judged + 1)


COUNT = """
from mine import Look


def note(case):
    with open("graded", "a") as file:
        file.write(case.id + "\\n")


class Counted(Look):
    async def grade(self, subject):
        note(subject.case)
        return await super().grade(subject)
"""
COUNTED = {**LOOK, "type": "counted:Counted"}


class Measured:
    """A run of toy graders, and the cases that they graded since the last look."""

    def __init__(self, toy: Toy) -> None:
        self.toy = toy
        (toy.folder / "counted.py").write_text(COUNT)

    def run(self, *cases: dict[str, Any], **changes: Any) -> list[str]:
        result = self.toy.run(*cases, arguments=("--run-id", "a"), **{"graders": [COUNTED], **changes})
        assert result.exit_code in (0, 1, 3), result.output
        return self.graded

    def again(self, *cases: dict[str, Any], code: int = 0, **changes: Any) -> list[str]:
        """Grades the run again with a changed suite."""
        suite = self.toy.write(*cases, name="new.yaml", **{"graders": [COUNTED], **changes})
        result = self.toy("grade", "a", "--suite", suite, "--run-id", "b", "--trust-suite")
        assert result.exit_code == code, result.output
        return self.graded

    @property
    def graded(self) -> list[str]:
        path = self.toy.folder / "graded"
        names = sorted(path.read_text().split()) if path.exists() else []
        path.unlink(missing_ok=True)
        return names

    def records(self, run_id: str) -> dict[str, Record]:
        return {record.test_id: record for record in read_records(self.toy.folder / "runs" / run_id)}


@pytest.fixture
def measured(toy: Toy) -> Measured:
    return Measured(toy)


def test_local_measures_do_not_run_for_changed_rules(measured: Measured) -> None:
    assert measured.run({}, {}) == ["case0", "case1"]
    scoped = {"rule": "level >= 0.9", "cases": ["case1"]}
    assert measured.again({}, {}, verdict=["fine", scoped], code=1) == []
    assert {name: record.verdict for name, record in measured.records("b").items()} == {
        "case0": "PASS",
        "case1": "FAIL",
    }


def test_a_grade_without_changes_runs_the_graders(measured: Measured) -> None:
    measured.run({}, {})
    assert measured.again({}, {}) == ["case0", "case1"]


@pytest.mark.parametrize(
    ("changes", "code"), [({"verdict": ["level >= 0.2"]}, 3), ({"graders": [{**COUNTED, "optional": True}]}, 0)]
)
def test_a_cell_with_a_failed_grader_is_graded_again(measured: Measured, changes: dict[str, Any], code: int) -> None:
    cases: list[dict[str, Any]] = [{}, {"metadata": {"look": "half"}}]
    measured.run(*cases)
    assert measured.again(*cases, code=code, **changes) == ["case1"]


def test_a_failed_optional_grader_that_is_needed_now_is_graded_again(measured: Measured) -> None:
    cases: list[dict[str, Any]] = [{"metadata": {"second": "raises"}}]
    measured.run(*cases, graders=[COUNTED, {**SECOND, "optional": True}])
    assert measured.again(*cases, code=3, graders=[COUNTED, SECOND]) == ["case0"]
    assert measured.records("b")["case0"].verdict == "ERROR"


def test_a_grader_that_is_optional_now_keeps_its_scores(measured: Measured) -> None:
    measured.run({}, graders=[COUNTED, SECOND])
    assert measured.again({}, graders=[COUNTED, {**SECOND, "optional": True}]) == []
    assert [grader.is_optional for grader in measured.records("b")["case0"].graders] == [False, True]


def test_reevaluated_cells_keep_the_files_of_their_graders(measured: Measured) -> None:
    cases: list[dict[str, Any]] = [{"metadata": {"look": "saves"}}, {"metadata": {"look": "saves"}}]
    measured.run(*cases)
    (measured.toy.folder / "runs/a/artifacts/case1/toy/0.look.map.png").unlink()
    assert measured.again(*cases, verdict=["level >= 0.4"]) == ["case1"]
    for record in measured.records("b").values():
        assert (measured.toy.folder / "runs/b" / str(record.graders[0].details["map"])).is_file()


def test_counter_examples_are_reevaluated_too(measured: Measured) -> None:
    cases: list[dict[str, Any]] = [{}, {"output_of": "case0", "prompt": "two trees"}]
    measured.run(*cases)
    assert measured.again(*cases, verdict=["level >= 0.9"], code=1) == []
    after = {name: (record.verdict, record.prompt) for name, record in measured.records("b").items()}
    assert after == {"case0": ("FAIL", "a tree"), "case1": ("FAIL", "two trees")}


def test_a_changed_image_is_an_error_although_its_scores_are_stored(measured: Measured) -> None:
    measured.run({})
    path = measured.toy.folder / "runs/a" / str(measured.records("a")["case0"].artifact_path)
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data + b"x")
    assert measured.again({}, verdict=["level >= 0.4"], code=3) == []
    error = measured.records("b")["case0"].error
    assert error is not None
    assert "was changed after it was generated" in error.message


def test_compare_names_the_verdicts_that_moved_by_changed_rules_only(measured: Measured) -> None:
    toy = measured.toy
    cases: list[dict[str, Any]] = [{}, {}, {"metadata": {"look": "bad"}}]
    measured.run(*cases)
    scoped = {"rule": "level >= 0.9", "cases": ["case1"]}
    measured.again(*cases, verdict=["fine", scoped], code=1)
    compared = toy("compare", "a", "b", "--json")
    assert compared.exit_code == 1
    moved = {pair["test_id"]: pair["moved_by_rules"] for pair in json.loads(compared.stdout)["changes"]}
    assert moved == {"case1": True, "case2": False}
    text = toy("compare", "a", "b", "--markdown", "c.md", COLUMNS="200").stdout
    line = "1 verdict moved by changed rules only (same output, same scores): case1 [0] PASS -> FAIL"
    assert line in text
    assert "verdict rules" in text
    written = (toy.folder / "c.md").read_text()
    assert line in written
    assert "same output, changed rules only" in written


def test_a_verdict_that_moved_with_its_scores_is_not_attributed_to_rules(measured: Measured) -> None:
    measured.run({})
    cases: list[dict[str, Any]] = [{"metadata": {"look": "bad"}}]
    measured.again(*cases, verdict=["fine", "level >= 0.2"], code=1)
    assert "moved by changed rules" not in measured.toy("compare", "a", "b").stdout
