"""``compare --confirm`` with the gate ``regressed``: cases in doubt first, and all cases where the pass rate is in doubt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_api import Fault, Script
from suite_runner import SuiteRunner
from test_confirm import Answers, new_records
from typer.testing import Result

pytestmark = pytest.mark.slow

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")


@pytest.fixture
def answers(runner: SuiteRunner, script: Script) -> Answers:
    return Answers(script)


def two_runs(runner: SuiteRunner, answers: Answers, names: tuple[str, ...] = NAMES, samples: int = 1, **b: str) -> None:
    """Runs ``a``, in which everything passes, and ``b`` with these letters by case."""
    runner.write(cases=[{"id": name, "prompt": f"a {name}"} for name in names], samples=samples)
    answers.set()
    assert runner.run("--quiet", run_id="a").exit_code == 0
    answers.set(**b)
    assert runner.run("--quiet", run_id="b").exit_code in (0, 1)


def compare(runner: SuiteRunner, *arguments: str) -> tuple[int, dict[str, Any], Result]:
    """The exit code, the gate ``regressed`` and everything else."""
    result = runner("compare", "a", "b", "--runs", str(runner.out), "--json", *arguments)
    assert result.stdout, result.output
    gates = {gate["fail_on"]: gate for gate in json.loads(result.stdout)["gates"]}
    return result.exit_code, gates["regressed"], result


def sampled(runner: SuiteRunner) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in new_records(runner):
        counts[record.test_id] = counts.get(record.test_id, 0) + 1
    return counts


def test_nothing_in_doubt_costs_nothing(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers)
    before = runner.called
    code, gate, result = compare(runner, "--confirm", "3")
    assert (code, gate["state"], runner.called) == (0, "passed", before)
    assert "used 0 of 24 new samples that would confirm every case" in result.stderr


def test_one_broken_case_is_sampled_first_and_then_all(runner: SuiteRunner, answers: Answers) -> None:
    """One of eight broke, so that the pass rate is in doubt only with more: p is 1/2 * 1/2."""
    two_runs(runner, answers, ant="F")
    code, gate, _ = compare(runner)
    assert (code, gate["state"]) == (0, "passed")
    answers.set()
    code, gate, result = compare(runner, "--confirm", "3")
    assert (code, gate["state"]) == (0, "passed")
    assert (
        "was in doubt (p 0.5, not below 0.01), and is not confirmed: with 3 new samples of each case -3.1 points"
        in (gate["message"])
    )
    assert sampled(runner) == dict.fromkeys(NAMES, 3)
    assert "used 24 of 24" in result.stderr


def test_a_real_loss_is_confirmed_by_new_samples(runner: SuiteRunner, answers: Answers) -> None:
    lost = dict.fromkeys(NAMES[:4], "F")
    two_runs(runner, answers, **lost)
    code, gate, _ = compare(runner)
    assert (code, gate["state"]) == (0, "passed"), "four of eight may be chance"
    answers.set(**dict.fromkeys(lost, "FFF"))
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"]) == (1, "failed")
    assert "with 3 new samples of each case -50.0 points (p " in gate["message"]


def test_few_cases_that_all_broke_are_decided(runner: SuiteRunner, answers: Answers) -> None:
    names = NAMES[:4]
    two_runs(runner, answers, names, **dict.fromkeys(names, "F"))
    code, gate, _ = compare(runner)
    assert (code, gate["state"]) == (3, "cannot_tell")
    assert gate["message"] == "4 of 4 cells broke; 4 cases x 1 sample cannot show it at 5 %: --confirm 1 would"
    answers.set(**dict.fromkeys(names, "F"))
    assert compare(runner, "--confirm", "1")[0] == 1
    code, gate, _ = compare(runner, "--allow", "cannot-tell")
    assert (code, gate["state"]) == (0, "passed")
    assert gate["message"].endswith("(allowed)")


def test_what_cannot_be_sampled_stays_in_doubt_and_exits_3(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, **dict.fromkeys(NAMES[:3], "F"))
    answers.faults += [Fault("bad_request")] * 200
    code, gate, _ = compare(runner, "--confirm", "2", "--budget", "0.05")
    assert (code, gate["state"]) == (3, "unmeasured")
    assert "could not be confirmed (" in gate["message"]


def test_offline_or_without_a_key_it_stays_in_doubt(
    runner: SuiteRunner, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_runs(runner, answers, **dict.fromkeys(NAMES[:3], "F"))
    for flags in (("--offline",), ()):
        if not flags:
            monkeypatch.delenv("LOCAL_KEY")
        code, gate, _ = compare(runner, "--confirm", "2", *flags)
        assert (code, gate["state"]) == (3, "unmeasured")
        assert "8 cases could not be confirmed" in gate["message"]
    code, gate, _ = compare(runner)
    assert (code, gate["state"]) == (0, "passed"), "without --confirm, one step decides"


def test_new_samples_are_used_again_and_only_missing_ones_are_paid(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, ant="F", bee="F")
    answers.set()
    compare(runner, "--confirm", "2")
    before = runner.called
    compare(runner, "--confirm", "2")
    assert runner.called == before
    compare(runner, "--confirm", "1")
    assert runner.called == before, "a smaller number may not choose among them"
    compare(runner, "--confirm", "3")
    assert runner.called[0] - before[0] == 8


def test_half_of_what_passed_is_too_much_to_call_chance(runner: SuiteRunner, answers: Answers) -> None:
    names, lost = NAMES[:4], dict.fromkeys(NAMES[:2], "F")
    two_runs(runner, answers, names, **lost)
    assert compare(runner)[0] == 3
    answers.set(**lost)
    code, gate, _ = compare(runner, "--confirm", "1")
    assert (code, gate["state"]) == (3, "cannot_tell")
    assert "-50.0 points (p 0.11, not below 0.04): too few cases and samples to show it" in gate["message"]


def test_less_than_half_may_be_chance(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, NAMES[:4], **dict.fromkeys(NAMES[:2], "F"))
    answers.set(ant="F")
    code, gate, _ = compare(runner, "--confirm", "1")
    assert (code, gate["state"]) == (0, "passed")
    assert "is not confirmed: with 1 new sample of each case -37.5 points" in gate["message"]


def test_a_case_that_a_run_did_not_measure_gets_no_new_samples(runner: SuiteRunner, answers: Answers) -> None:
    """No number would use them."""
    runner.write(cases=[{"id": name, "prompt": f"a {name}"} for name in NAMES])
    answers.judge_faults = [Fault("bad_request")]
    runner.run("--quiet", run_id="a")
    answers.set(**dict.fromkeys(NAMES[:3], "F"))
    runner.run("--quiet", run_id="b")
    answers.set()
    (unmeasured,) = (cell[0] for cell, record in runner.records("a").items() if record.verdict == "ERROR")
    _, _, result = compare(runner, "--confirm", "2")
    assert sampled(runner) == {name: 2 for name in NAMES if name != unmeasured}
    assert "confirming all 7 compared cases" in result.stderr
    assert "used 14 of 14 new samples" in result.stderr


def test_a_baseline_of_several_runs_is_confirmed_too(runner: SuiteRunner, answers: Answers, monkeypatch: Any) -> None:
    two_runs(runner, answers, **dict.fromkeys(NAMES[:3], "F"))
    monkeypatch.chdir(runner.out.parent)
    assert runner("baseline", "set", "a", "--runs", str(runner.out)).exit_code == 0
    for run in ("a2", "a3"):
        answers.set()
        runner.run("--quiet", run_id=run)
        assert runner("baseline", "add", run, "--runs", str(runner.out)).exit_code == 0
    answers.set(**dict.fromkeys(NAMES[:3], "FF"))
    result = runner("compare", "baseline", "b", "--runs", str(runner.out), "--confirm", "2")
    assert result.exit_code == 1, result.output


def test_new_samples_that_all_fail_never_make_a_loss_green(
    runner: SuiteRunner, answers: Answers, monkeypatch: Any
) -> None:
    """The runs of A differ so much that no number of samples of B shows a regression: that is no reason to pass."""
    two_runs(runner, answers, NAMES[:6], **dict.fromkeys(NAMES[:6], "F"))
    monkeypatch.chdir(runner.out.parent)
    answers.set(ant="F", bee="F")
    runner.run("--quiet", run_id="a2")
    assert runner("baseline", "set", "a", "--runs", str(runner.out)).exit_code == 0
    assert runner("baseline", "add", "a2", "--runs", str(runner.out)).exit_code == 0
    answers.set(**dict.fromkeys(NAMES[:6], "F" * 9))
    for flags in ((), ("--confirm", "3")):
        result = runner("compare", "baseline", "b", "--runs", str(runner.out), *flags)
        assert result.exit_code in (1, 3), result.output
