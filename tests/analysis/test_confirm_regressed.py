"""``compare --confirm`` with the gate ``regressed`` and with ``METRIC:NUMBER``: single cases in doubt first, and all cases
where the pass rate or a metric is in doubt."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fake_api import Fault, JudgeRequest, Script
from PIL import Image
from suite_runner import SuiteRunner
from test_confirm import Answers, model, new_records
from typer.testing import Result

import visioneval as ve

pytestmark = pytest.mark.slow

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")
SIX = NAMES[:6]
IN_DOUBT = "1 case was uncertain: ant (4 of 4 -> 0 of 4, p 0.014); new samples: "
"""Of 4 samples, 4 that break are p 1/70."""


@pytest.fixture
def answers(script: Script) -> Answers:
    return Answers(script)


def two_runs(runner: SuiteRunner, answers: Answers, names: Sequence[str] = NAMES, samples: int = 1, **b: str) -> None:
    """Runs ``a``, in which everything passes, and ``b`` with these letters by case."""
    run_both(runner, answers, b, names, samples=samples)


def run_both(
    runner: SuiteRunner, answers: Answers, b: Mapping[str, str], names: Sequence[str] = NAMES, **suite: Any
) -> None:
    runner.write(**{"cases": [{"id": name, "prompt": f"a {name}"} for name in names], **suite})
    answers.set()
    assert runner.run("--quiet", run_id="a").exit_code == 0
    answers.set(**b)
    assert runner.run("--quiet", run_id="b").exit_code in (0, 1)


def compare(runner: SuiteRunner, *arguments: str, gate: str = "") -> tuple[int, dict[str, Any], Result]:
    """The exit code, the gate (of the default ones, ``regressed``) and everything else."""
    named = ("--fail-on", gate) if gate else ()
    result = runner("compare", "a", "b", "--runs", str(runner.out), *named, "--json", *arguments)
    assert result.stdout, result.output
    gates = {item["fail_on"]: item for item in json.loads(result.stdout)["gates"]}
    return result.exit_code, gates[gate or "regressed"], result


def sampled(runner: SuiteRunner) -> Counter[str]:
    return Counter(record.test_id for record in new_records(runner))


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
        "was uncertain (p 0.5, not below 0.01), and is not confirmed: with 3 new samples of each case -3.1 points"
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
    advice = "1 new sample of each in B (--confirm 1) would"
    assert gate["message"] == f"4 of 4 cells broke; 4 cases x 1 sample cannot show it at 5 %: {advice}"
    answers.set(**dict.fromkeys(names, "F"))
    assert compare(runner, "--confirm", "1")[0] == 1
    code, gate, _ = compare(runner, "--allow", "cannot-tell")
    assert (code, gate["state"]) == (0, "passed")
    assert gate["message"].endswith("(allowed)")


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


@pytest.mark.parametrize(
    ("confirm", "letters", "ending"),
    [
        (3, "FPF", "2 of 3 failed: confirmed"),
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


def test_a_case_is_cleared_where_most_new_samples_pass(runner: SuiteRunner, answers: Answers) -> None:
    """The pass rate is in doubt too, and gets the new samples of all cases."""
    two_runs(runner, answers, SIX, 4, ant="FFFF")
    answers.set(ant="FPP")
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"]) == (0, "passed")
    assert gate["message"].startswith(f"{IN_DOUBT}1 of 3 failed: not confirmed; pass_rate -16.7 points was uncertain")
    assert sampled(runner) == dict.fromkeys(SIX, 3)


def test_a_case_that_is_surely_worse_fails_at_once(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, NAMES[:3], 6, ant="FFFFFF")
    before = runner.called
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"], runner.called) == (1, "failed", before)
    assert "1 case: ant (6 of 6 -> 0 of 6, p 0.0011)" in gate["message"]


def test_a_case_that_could_be_chance_gets_no_new_samples(runner: SuiteRunner, answers: Answers) -> None:
    """As many cells were gained, so the pass rate is in no doubt either."""
    runner.write(cases=[{"id": name, "prompt": f"a {name}"} for name in NAMES], samples=3)
    for run_id, lost in (("a", "ant"), ("b", "bee")):
        answers.set(**{lost: "FFF"})
        runner.run("--quiet", run_id=run_id)
    before = runner.called
    code, gate, _ = compare(runner, "--confirm", "3")
    assert (code, gate["state"], runner.called) == (0, "passed", before)


def test_a_doubt_never_passes_for_want_of_a_sample(runner: SuiteRunner, answers: Answers) -> None:
    two_runs(runner, answers, SIX, 4, ant="FFFF")
    answers.set()
    for flags, cause in ((("--offline",), ""), (("--budget", "0.000001"), "the budget of 1e-06 USD is too small")):
        code, gate, _ = compare(runner, "--confirm", "3", *flags)
        assert (code, gate["state"]) == (3, "unmeasured")
        assert gate["message"].startswith(f"{IN_DOUBT}none measured: could not be confirmed ({cause}")
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


def test_the_advice_counts_turns_as_turns_and_is_enough(runner: SuiteRunner, answers: Answers) -> None:
    runner.folder.mkdir(exist_ok=True)
    Image.new("RGB", (32, 24)).save(runner.folder / "base.png")
    runner.write(cases=[{"id": "ant", "images": ["base.png"], "turns": ["a ant", "a ant in red"]}], samples=1)
    for run_id, letters in (("a", ""), ("b", "FF")):
        answers.set(ant=letters)
        runner.run("--quiet", run_id=run_id)
    _, gate, _ = compare(runner)
    advice = "2 new samples of each in B (--confirm 2) would"
    assert gate["message"] == f"2 of 2 cells broke; 1 case x 2 turns cannot show it at 5 %: {advice}"
    answers.set(ant="FFFF")
    assert compare(runner, "--confirm", "1")[1]["state"] == "cannot_tell"
    answers.set(ant="FFFF")
    assert compare(runner, "--confirm", "2")[1]["state"] == "failed"


def test_the_advice_counts_model_runs_as_model_runs(runner: SuiteRunner, answers: Answers) -> None:
    models = [model(runner, "x"), model(runner, "y", quality="low")]
    run_both(runner, answers, {"ant": "FF"}, ["ant"], models=models)
    _, gate, _ = compare(runner)
    assert "2 of 2 cells broke; 1 case x 1 sample x 2 model runs cannot show it at 5 %: " in gate["message"]


def lost(cases: int, digits: str = "2") -> dict[str, str]:
    """The scores of the first cases. With 8 cases, 2 are in doubt (p .25), 5 (p .03) and 6 (p .01), and 7 are sure."""
    return dict.fromkeys(NAMES[:cases], digits)


GRADER: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "judge": "default",
    "metrics": {"fine": {"type": "score", "description": "how fine it is", "scale": [0, 5]}},
}


class Scores(Answers):
    """The judge gives the images of a prompt the scores of the digits, and 5 to the others. ``x`` is no answer."""

    def _judge(self, request: JudgeRequest) -> Any:
        letters = next((left for name, left in self.letters.items() if f"a {name}" in request.text and left), ["5"])
        letter = letters.pop(0)
        if letter == "x":
            return "no answer"
        return {"fine": int(letter), "reason": "as it is", "verdict": "PASS"}


@pytest.fixture
def scores(script: Script) -> Scores:
    return Scores(script)


def scored_runs(
    runner: SuiteRunner, scores: Scores, b: Mapping[str, str], names: Sequence[str] = NAMES, **suite: Any
) -> None:
    """Runs ``a``, with a 5 everywhere, and ``b`` with these digits by case. Every cell passes but those with a 0."""
    run_both(runner, scores, b, names, **{"graders": [GRADER], "verdict": ["fine >= 1"], **suite})


class TestRegressed:
    def test_what_is_sure_costs_nothing(self, runner: SuiteRunner, scores: Scores) -> None:
        scored_runs(runner, scores, lost(7))
        before = runner.called
        code, gate, result = compare(runner, "--confirm", "3")
        assert (code, gate["state"], runner.called) == (1, "failed", before)
        assert "used 0 of 24 new samples" in result.stderr

    def test_a_metric_in_doubt_is_not_confirmed(self, runner: SuiteRunner, scores: Scores) -> None:
        """One step would fail it."""
        scored_runs(runner, scores, lost(5))
        assert compare(runner)[0] == 1
        scores.set()
        code, gate, result = compare(runner, "--confirm", "3")
        assert (code, gate["state"]) == (0, "passed")
        after = r"with 3 new samples of each case -0.469 \(p 0.\d+, not below 0.04\); a drop below"
        first = r"fine -1.88 was uncertain \(p 0.027, not below 0.01\)"
        assert re.match(f"{first}, and is not confirmed: {after}", gate["message"]), gate["message"]
        assert sampled(runner) == dict.fromkeys(NAMES, 3)
        assert "used 24 of 24 new samples" in result.stderr
        assert "confirming all 8 compared cases with up to 3 new samples each" in result.stderr
        assert "uncertain case" not in result.stderr

    def test_a_fall_that_stays_is_confirmed(self, runner: SuiteRunner, scores: Scores) -> None:
        scored_runs(runner, scores, lost(5))
        scores.set(**lost(5, "333"))
        code, gate, _ = compare(runner, "--confirm", "3")
        assert (code, gate["state"]) == (1, "failed")
        assert re.fullmatch(
            r"fine -1.88 was uncertain \(p 0.027, not below 0.01\),"
            r" with 3 new samples of each case -1.41 \(p 0.0\d+, below 0.04\)",
            gate["message"],
        )

    def test_new_samples_are_used_again_and_only_missing_ones_are_paid(
        self, runner: SuiteRunner, scores: Scores
    ) -> None:
        scored_runs(runner, scores, lost(5))
        scores.set(**lost(5, "33"))
        for samples, paid in ((2, 16), (2, 0), (1, 0), (3, 8)):
            before = runner.called
            compare(runner, "--confirm", str(samples))
            assert runner.called[0] - before[0] == paid

    @pytest.mark.parametrize(
        ("optional", "text"),
        [
            (False, ", and 1 case could not be confirmed (hen, sample 1: "),
            (True, ", and 2 of 16 new samples were not measured, more than 5%: hen (--allow unmeasured=RATE"),
        ],
    )
    def test_a_new_sample_without_the_score_is_not_measured(
        self, runner: SuiteRunner, scores: Scores, optional: bool, text: str
    ) -> None:
        """It is an ERROR, or with an optional grader a PASS whose score is null. A flag accepts some of these."""
        scored_runs(runner, scores, lost(5), graders=[{**GRADER, "optional": optional}], verdict=["attempts >= 1"])
        scores.set(hen="x" * 9)
        code, gate, _ = compare(runner, "--confirm", "2")
        assert (code, gate["state"]) == (3, "unmeasured")
        assert text in gate["message"]
        assert gate["message"].endswith("(--allow unmeasured=RATE accepts more)")
        for rate, allowed in (("0.1", 3), ("0.2", 0)):
            scores.set(hen="x" * 9)
            assert compare(runner, "--confirm", "2", "--allow", f"unmeasured={rate}")[0] == allowed
        assert compare(runner, "--confirm", "2", "--allow", "unmeasured=0.2", gate="fine:1.2")[0] == 0

    def test_no_new_sample_with_the_score_decides_nothing(self, runner: SuiteRunner, scores: Scores) -> None:
        """Whatever is allowed: the run's own samples left the doubt."""
        scored_runs(runner, scores, lost(5), graders=[{**GRADER, "optional": True}], verdict=["attempts >= 1"])
        scores.set(**dict.fromkeys(NAMES, "x" * 9))
        code, gate, _ = compare(runner, "--confirm", "1", "--allow", "unmeasured")
        assert (code, gate["state"]) == (3, "unmeasured")
        assert "8 of 8 new samples were not measured" in gate["message"]

    def test_a_metric_that_is_sure_spares_the_samples_of_a_pass_rate_in_doubt(
        self, runner: SuiteRunner, scores: Scores
    ) -> None:
        scored_runs(runner, scores, {**lost(7), "ant": "0"})
        before = runner.called
        code, gate, _ = compare(runner, "--confirm", "3")
        assert (code, gate["state"], runner.called) == (1, "failed", before)
        assert gate["message"].startswith("fine ")

    def test_a_failed_gate_spares_the_samples_of_a_metric_in_doubt(self, runner: SuiteRunner, scores: Scores) -> None:
        """``broken`` is about cells, and new samples say nothing about them."""
        scored_runs(runner, scores, {**lost(5), "ant": "0"})
        code, gate, _ = compare(runner, "--confirm", "3", "--fail-on", "broken", gate="regressed")
        assert (code, gate["state"], sampled(runner)) == (1, "cannot_tell", {})
        assert gate["message"].endswith("; only new samples of all cases can decide, and broken failed without them")

    def test_flaky_cases_get_no_new_samples(self, runner: SuiteRunner, scores: Scores) -> None:
        cases = [{"id": name, "prompt": f"a {name}", "flaky": name == "hen"} for name in NAMES]
        scored_runs(runner, scores, lost(5), cases=cases)
        scores.set()
        assert compare(runner, "--confirm", "1")[0] == 0
        assert sampled(runner) == dict.fromkeys(NAMES[:-1], 1)

    def test_all_turns_and_all_model_runs_are_sampled(self, runner: SuiteRunner, scores: Scores) -> None:
        runner.folder.mkdir(exist_ok=True)
        Image.new("RGB", (32, 24)).save(runner.folder / "base.png")
        cases = [{"id": name, "images": ["base.png"], "turns": [f"a {name}", f"a {name} in red"]} for name in NAMES]
        models = json.loads(runner.write().read_text())["models"]
        both = [{**models[0], "label": label} for label in ("m", "n")]
        scored_runs(runner, scores, lost(5, "2222"), cases=cases, models=both)
        scores.set(**lost(5, "2222"))
        code, gate, result = compare(runner, "--confirm", "1")
        assert (code, gate["state"]) == (1, "failed"), gate
        assert sampled(runner) == {f"{name}/{turn}": 2 for name in NAMES for turn in (1, 2)}
        assert "used 32 of 32 new samples" in result.stderr

    def test_a_baseline_of_several_runs(
        self, runner: SuiteRunner, scores: Scores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scored_runs(runner, scores, lost(5))
        monkeypatch.chdir(runner.out.parent)
        assert runner("baseline", "set", "a", "--runs", runner.out).exit_code == 0
        scores.set()
        assert runner.run("--quiet", run_id="a2").exit_code == 0
        assert runner("baseline", "add", "a2", "--runs", runner.out).exit_code == 0
        scores.set(**lost(5, "33"))
        result = runner("compare", "baseline", "b", "--runs", runner.out, "--fail-on", "regressed", "--confirm", "2")
        assert result.exit_code == 1, result.output

    def test_the_api_and_the_files_have_the_same_result(self, runner: SuiteRunner, scores: Scores) -> None:
        scored_runs(runner, scores, lost(5))
        scores.set(**lost(5, "333"))
        junit = runner.folder / "gates.xml"
        _, gate, _ = compare(runner, "--confirm", "3", "--junit", str(junit))
        (failure,) = ET.parse(junit).iter("failure")
        assert failure.get("message") == gate["message"]
        before = runner.called
        result = ve.compare("a", "b", runs=runner.out, fail_on=["regressed"], confirm=3)
        assert (result.exit_code, result.gates[0].message, runner.called) == (1, gate["message"], before)


class TestBounds:
    @pytest.mark.parametrize(
        ("new", "code", "after"),
        [("333", 1, "-1.406, which decides"), ("555", 0, "-0.4688, which decides"), ("x" * 20, 3, "")],
    )
    def test_a_value_in_doubt_is_that_of_all_samples(
        self, runner: SuiteRunner, scores: Scores, new: str, code: int, after: str
    ) -> None:
        scored_runs(runner, scores, lost(5))
        assert compare(runner, gate="fine:1.2")[0] == 1
        scores.set(**lost(5, new))
        exit_code, gate, result = compare(runner, "--confirm", "3", gate="fine:1.2")
        first = "5 -> 3.125 (-1.875)"
        expected = (
            f"{first}; over all samples, with 3 new samples of each case, {after}"
            if after
            else f"{first} was uncertain, and 5 cases could not be confirmed (ant, sample 1: "
        )
        assert exit_code == code
        assert gate["message"].startswith(expected)
        assert sampled(runner).total() == 24
        assert f"used {24 if after else 9} of 24 new samples" in result.stderr  # an ERROR is none

    @pytest.mark.parametrize(("cases", "bound", "code"), [(8, "fine:0.5", 1), (1, "fine:0.5", 0)])
    def test_what_is_sure_or_within_the_bound_costs_nothing(
        self, runner: SuiteRunner, scores: Scores, cases: int, bound: str, code: int
    ) -> None:
        scored_runs(runner, scores, lost(cases))
        before = runner.called
        exit_code, _, result = compare(runner, "--confirm", "3", gate=bound)
        assert (exit_code, runner.called) == (code, before)
        assert "used 0 of 24 new samples" in result.stderr

    def test_the_pass_rate(self, runner: SuiteRunner, scores: Scores) -> None:
        scored_runs(runner, scores, {"ant": "0"})
        scores.set(ant="55")
        exit_code, gate, _ = compare(runner, "--confirm", "2", gate="pass_rate:0.1")
        decides = "over all samples, with 2 new samples of each case, -0.04167, which decides"
        assert (exit_code, gate["message"]) == (0, f"1 -> 0.875 (-0.125); {decides}")

    def test_a_built_in_metric(self, runner: SuiteRunner, scores: Scores) -> None:
        """The suite does not read it, so that records have it beside their scores."""
        runner.write(
            graders=[GRADER], verdict=["fine >= 1"], cases=[{"id": name, "prompt": f"a {name}"} for name in NAMES]
        )
        assert runner.run("--quiet", run_id="a").exit_code == 0
        scores.faults += [Fault("unavailable")] * 2
        assert runner.run("--quiet", run_id="b").exit_code == 0
        code, gate, _ = compare(runner, "--confirm", "3", gate="attempts:0.1")
        assert code == 0, gate
        assert gate["message"].endswith(", which decides")

    def test_two_gates_in_doubt_share_their_samples(self, runner: SuiteRunner, scores: Scores) -> None:
        scored_runs(runner, scores, lost(5))
        scores.set(**lost(5, "333"))
        code, gate, _ = compare(runner, "--confirm", "3", "--fail-on", "regressed", gate="fine:1.6")
        assert (code, gate["state"]) == (1, "passed")
        assert sampled(runner).total() == 24

    def test_a_bound_that_no_metric_has_costs_no_call(self, runner: SuiteRunner, scores: Scores) -> None:
        scored_runs(runner, scores, lost(5))
        before = runner.called
        result = runner("compare", "a", "b", "--runs", runner.out, "--fail-on", "fien:1", "--confirm", "3")
        assert (result.exit_code, runner.called) == (2, before)
        assert "did you mean 'fine'" in result.stderr
