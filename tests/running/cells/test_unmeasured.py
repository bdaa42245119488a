"""A grader that failed: which verdict, gate and exit code follow, and what ``optional`` changes."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from toys import LOOK, SECOND, Toy

FAILING: dict[str, Any] = {"metadata": {"second": "raises"}}
BOTH: list[dict[str, Any]] = [LOOK, SECOND]
WARN: dict[str, Any] = {"rule": "second", "level": "warn"}


def optional(value: bool | None) -> list[dict[str, Any]]:
    return [LOOK, SECOND if value is None else {**SECOND, "optional": value}]


@pytest.mark.parametrize(
    ("option", "verdict", "gates", "code", "expected"),
    [
        (None, ["fine"], [], 3, "ERROR"),  # no rule reads the metric
        (None, ["fine", "second"], [], 3, "ERROR"),
        (True, ["fine"], [], 0, "PASS"),
        (True, ["fine", "second"], [], 0, "PASS"),  # the rule is skipped
        (True, ["second"], [], 3, "ERROR"),  # no rule is left
        (None, ["fine", WARN], [], 0, "PASS"),  # only a warning reads it
        (False, ["fine", WARN], [], 3, "ERROR"),
        (None, ["fine", WARN], ["pass_rate == 1", "rate(second) >= 0"], 3, "ERROR"),  # a gate reads it too
        (None, ["fine"], ["error_rate <= 1"], 0, "ERROR"),
        (None, ["fine"], ["error_rate <= 1", "unmeasured_rate == 0"], 3, "ERROR"),
        (None, ["fine"], ["unmeasured_rate <= 1"], 3, "ERROR"),  # the cell is an ERROR all the same
    ],
)
def test_verdict_and_exit_code_of_a_failed_grader(
    toy: Toy, option: bool | None, verdict: list[Any], gates: list[str], code: int, expected: str
) -> None:
    more = {"gates": gates} if gates else {}
    result = toy.run(FAILING, graders=optional(option), verdict=verdict, **more)
    assert (toy.record.verdict, result.exit_code) == (expected, code), result.output
    assert toy.record.scores == {"fine": True, "level": 0.5, "second": None}


def test_the_error_suggests_optional_only_if_no_rule_reads_the_scores(toy: Toy) -> None:
    for verdict, is_suggested in ((["fine"], True), (["fine", "second"], False)):
        toy.run(FAILING, graders=BOTH, verdict=verdict)
        assert ("'optional: true' on the grader 'second'" in toy.record.error.message) is is_suggested


def test_a_failed_cell_with_a_failed_grader_exits_3_even_with_no_fail(toy: Toy) -> None:
    case = {"metadata": {"look": "bad", "second": "raises"}}
    result = toy.run(case, graders=BOTH, gates=["pass_rate <= 1"], arguments=("--no-fail", "--json"))
    assert (toy.record.verdict, result.exit_code) == ("FAIL", 3)
    summary = json.loads(result.stdout)
    assert summary["counts"]["unmeasured"] == 1
    assert {gate["rule"]: gate["state"] for gate in summary["gates"]} == {
        "pass_rate <= 1": "passed",
        "error_rate == 0": "passed",
        "unmeasured_rate == 0": "failed",
    }


def test_all_outputs_agree_that_the_run_is_incomplete(toy: Toy) -> None:
    case = {"metadata": {"look": "bad", "second": "raises"}}
    toy.run(case, graders=BOTH, gates=["pass_rate <= 1"], arguments=("--markdown", "report"))
    assert "1 cell with a failed grader" in toy("show", "latest").stdout
    assert "**1 cell with a failed grader**" in (toy.folder / "report").read_text()


def test_the_summary_counts_what_optional_graders_could_not_measure(toy: Toy) -> None:
    result = toy.run(FAILING, {}, FAILING, graders=optional(True), arguments=("--json",))
    summary = json.loads(result.stdout)
    assert (summary["optional_unmeasured"], summary["counts"]["unmeasured"]) == ({"second": 2}, 0)
    assert "Not measured by optional graders" in toy("show", "latest").stdout


def test_resume_grades_again_what_was_not_measured(toy: Toy) -> None:
    """A FAIL with a failed grader keeps the exit code at 3, so resuming must be able to change it."""
    code = toy.folder / "mine.py"
    broken = code.read_text()
    case = {"metadata": {"look": "bad", "second": "raises"}}
    assert toy.run(case, graders=BOTH, gates=["pass_rate <= 1"], arguments=("--run-id", "r")).exit_code == 3
    code.write_text(broken.replace('raise RuntimeError("the lens is broken")', 'return Grade(scores={"second": True})'))
    del sys.modules["mine"]  # monkeypatch would put it back, after the modules of this test are forgotten
    result = toy("run", "--resume", "r", "--trust-suite")
    assert result.exit_code == 0, result.output
    assert toy.record.scores["second"] is True
    assert not toy.record.is_unmeasured
