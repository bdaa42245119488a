"""``compare --confirm`` with single cases: one that is worse, and not surely so, fails unless most new samples pass."""

from __future__ import annotations

from typing import Any

import pytest
from fake_api import Fault, Script
from PIL import Image
from suite_runner import SuiteRunner
from test_confirm import Answers
from test_confirm_regressed import NAMES, compare, sampled, two_runs

pytestmark = pytest.mark.slow

SIX = NAMES[:6]
IN_DOUBT = "1 case was in doubt: ant (4 of 4 -> 0 of 4, p 0.014); new samples: "
"""Of 4 samples, 4 that break are p 1/70."""


@pytest.fixture
def answers(runner: SuiteRunner, script: Script) -> Answers:
    return Answers(script)


@pytest.mark.parametrize(
    ("confirm", "letters", "ending"),
    [
        (3, "FF", "2 of 2 failed: confirmed"),  # a majority of three is certain
        (3, "FPF", "2 of 3 failed: confirmed"),
        (1, "F", "1 of 1 failed: confirmed"),
        (2, "PF", "1 of 2 failed: confirmed"),  # a tie does not clear it
    ],
)
def test_a_case_in_doubt_fails_unless_most_new_samples_pass(
    runner: SuiteRunner, answers: Answers, confirm: int, letters: str, ending: str
) -> None:
    two_runs(runner, answers, SIX, 4, ant="FFFF")
    assert compare(runner)[0] == 1
    answers.set(ant=letters)
    code, gate, result = compare(runner, "--confirm", str(confirm))
    assert (code, gate["state"]) == (1, "failed")
    assert gate["message"] == f"{IN_DOUBT}{ending}"
    assert sampled(runner) == {"ant": len(letters)}
    assert f"used {len(letters)} of {6 * confirm} new samples" in result.stderr


@pytest.mark.parametrize(
    ("confirm", "letters", "failed"), [(3, "PPP", "0 of 3"), (3, "FPP", "1 of 3"), (2, "PP", "0 of 2")]
)
def test_a_case_is_cleared_where_most_new_samples_pass(
    runner: SuiteRunner, answers: Answers, confirm: int, letters: str, failed: str
) -> None:
    """The pass rate is in doubt too, and gets the new samples of all cases."""
    two_runs(runner, answers, SIX, 4, ant="FFFF")
    answers.set(ant=letters)
    code, gate, _ = compare(runner, "--confirm", str(confirm))
    assert (code, gate["state"]) == (0, "passed")
    assert gate["message"].startswith(f"{IN_DOUBT}{failed} failed: not confirmed; pass_rate -16.7 points was in doubt")
    assert sampled(runner) == dict.fromkeys(SIX, confirm)


def test_a_case_that_is_surely_worse_fails_at_once(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, NAMES[:3], 6, ant="FFFFFF")
    before = runner.called
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"], runner.called) == (1, "failed", before)
    assert "1 case: ant (6 of 6 -> 0 of 6, p 0.0011)" in gate["message"]


@pytest.mark.parametrize("samples", [1, 3])
def test_a_case_that_could_be_chance_gets_no_new_samples(runner: SuiteRunner, answers: Answers, samples: int) -> None:
    """As many cells were gained, so the pass rate is in no doubt either."""
    runner.write(cases=[{"id": name, "prompt": f"a {name}"} for name in NAMES], samples=samples)
    for run_id, lost in (("a", "ant"), ("b", "bee")):
        answers.set(**{lost: "F" * samples})
        runner.run("--quiet", run_id=run_id)
    before = runner.called
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"], runner.called) == (0, "passed", before)


def test_a_doubt_never_passes_for_want_of_a_sample(
    runner: SuiteRunner, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_runs(runner, answers, SIX, 4, ant="FFFF")
    answers.set()

    def is_unmeasured(cause: str, *flags: str) -> str:
        code, gate, _ = compare(runner, "--confirm", "3", *flags)
        assert (code, gate["state"]) == (3, "unmeasured")
        assert gate["message"].startswith(f"{IN_DOUBT}none measured: could not be confirmed ({cause}")
        return str(gate["message"])

    is_unmeasured("", "--offline")
    is_unmeasured("the budget of 1e-06 USD is too small", "--budget", "0.000001")
    with monkeypatch.context() as patch:
        patch.setenv("LOCAL_KEY", "sk-wrong-0123456789abcdef")
        is_unmeasured("")
    with monkeypatch.context() as patch:
        patch.delenv("LOCAL_KEY")
        is_unmeasured("set the environment variable LOCAL_KEY")
    answers.faults = [Fault("bad_request")] * 99
    assert is_unmeasured("sample 4: invalid").count(" on m") == 0
    answers.faults = [Fault("bad_request")]
    answers.set(ant="PF")
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"]) == (3, "unmeasured")
    assert f"{IN_DOUBT}1 of 2 failed: could not be confirmed (sample " in gate["message"]
    assert compare(runner, "--confirm", "3")[0] == 0


@pytest.mark.parametrize(
    ("suite", "flags", "confirm", "images", "passed", "usd"),
    [({}, ("--budget", "0.3"), 3, 7, 2, "0.3000"), ({"budget_usd": 1.5}, (), 10, 36, 6, "1.50")],
)
def test_both_steps_share_one_budget(
    runner: SuiteRunner,
    answers: Answers,
    suite: Any,
    flags: tuple[str, ...],
    confirm: int,
    images: int,
    passed: int,
    usd: str,
) -> None:
    """An image costs 0.04 USD and its answer 0.01. The case in doubt is cleared, and then there is too little left."""
    runner.write(cases=[{"id": name, "prompt": f"a {name}"} for name in SIX], samples=4, **suite)
    for run_id, letters in (("a", ""), ("b", "FFFF")):
        answers.set(ant=letters)
        runner.run("--quiet", run_id=run_id)
    answers.set()
    before = runner.called[0]
    code, gate, result = compare(runner, "--confirm", str(confirm), *flags)
    assert (code, gate["state"]) == (3, "unmeasured")
    assert "USD is used up" in gate["message"]
    assert f"new samples: {passed} pass 0 fail" in result.stderr
    assert f" {usd} USD" in result.stderr
    assert runner.called[0] - before == images


def test_only_the_case_with_more_stored_samples_has_more(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, SIX, 4, ant="FFFF")
    answers.set()
    compare(runner, "--confirm", "3", "--case", "ant")
    assert sampled(runner) == {"ant": 3}
    code, gate, result = compare(runner, "--confirm", "1")
    assert (code, sampled(runner)) == (0, {**dict.fromkeys(SIX, 1), "ant": 3})
    assert f"{IN_DOUBT}0 of 3 failed: not confirmed" in gate["message"]
    assert "with 1 to 3 new samples of each case" in gate["message"]
    assert "used 8 of 8 new samples" in result.stderr


def test_a_case_of_both_gates_gets_what_either_needs(runner: SuiteRunner, answers: Answers) -> None:
    """4 of 7 have failed whatever the new samples of ``must_pass`` are; the single case is cleared by two of three."""
    cases = [{"id": name, "prompt": f"a {name}", "tags": ["must_pass"] * (name == "ant")} for name in SIX]
    runner.write(cases=cases, samples=4)
    for run_id, letters in (("a", ""), ("b", "FFFF")):
        answers.set(ant=letters)
        runner.run("--quiet", run_id=run_id)
    answers.set()
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"], sampled(runner)) == (1, "cannot_tell", {"ant": 2})
    assert f"{IN_DOUBT}0 of 2 failed: not confirmed" in gate["message"]
    assert "only new samples of all cases can decide, and must_pass failed without them" in gate["message"]


def test_turns_are_samples_of_their_case(runner: SuiteRunner, answers: Answers) -> None:
    runner.folder.mkdir(exist_ok=True)
    Image.new("RGB", (32, 24)).save(runner.folder / "base.png")
    cases = [{"id": name, "images": ["base.png"], "turns": [f"a {name}", f"a {name} in red"]} for name in SIX]
    runner.write(cases=cases, samples=2)
    for run_id, letters in (("a", ""), ("b", "FFFF")):
        answers.set(ant=letters)
        runner.run("--quiet", run_id=run_id)
    answers.set(ant="FFFF")
    code, gate, _ = compare(runner, "--confirm", "2")
    assert (code, gate["message"]) == (1, f"{IN_DOUBT}4 of 4 failed: confirmed")
    assert sampled(runner) == {"ant/1": 2, "ant/2": 2}
