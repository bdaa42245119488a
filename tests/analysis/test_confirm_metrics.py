"""``compare --confirm`` with metrics: those of ``regressed`` in two steps, and the gates ``METRIC:NUMBER``."""

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
from test_confirm import Answers, new_records
from typer.testing import Result

import visioneval as ve

pytestmark = pytest.mark.slow

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen")


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


def two_runs(
    runner: SuiteRunner, scores: Scores, b: Mapping[str, str], names: Sequence[str] = NAMES, **changes: Any
) -> None:
    """Runs ``a``, with a 5 everywhere, and ``b`` with these digits by case. Every cell passes but those with a 0."""
    write(runner, **{"cases": [{"id": name, "prompt": f"a {name}"} for name in names], **changes})
    scores.set()
    assert runner.run("--quiet", run_id="a").exit_code == 0
    scores.set(**b)
    assert runner.run("--quiet", run_id="b").exit_code in (0, 1)


def write(runner: SuiteRunner, **changes: Any) -> None:
    runner.write(**{"graders": [GRADER], "verdict": ["fine >= 1"], **changes})


def compare(runner: SuiteRunner, *arguments: str, gate: str = "regressed") -> tuple[int, dict[str, Any], Result]:
    """The exit code, the gate, and everything else."""
    result = runner("compare", "a", "b", "--runs", str(runner.out), "--fail-on", gate, "--json", *arguments)
    assert result.stdout, result.output
    gates = {item["fail_on"]: item for item in json.loads(result.stdout)["gates"]}
    return result.exit_code, gates[gate], result


def sampled(runner: SuiteRunner) -> Counter[str]:
    return Counter(record.test_id for record in new_records(runner))


class TestRegressed:
    @pytest.mark.parametrize(("cases", "state"), [(1, "passed"), (7, "failed")])
    def test_what_is_sure_costs_nothing(self, runner: SuiteRunner, scores: Scores, cases: int, state: str) -> None:
        two_runs(runner, scores, lost(cases))
        before = runner.called
        code, gate, result = compare(runner, "--confirm", "3")
        assert (code, gate["state"], runner.called) == (int(state == "failed"), state, before)
        assert "used 0 of 24 new samples" in result.stderr

    def test_a_metric_in_doubt_is_not_confirmed(self, runner: SuiteRunner, scores: Scores) -> None:
        """One step would fail it."""
        two_runs(runner, scores, lost(5))
        assert compare(runner)[0] == 1
        scores.set()
        code, gate, result = compare(runner, "--confirm", "3")
        assert (code, gate["state"]) == (0, "passed")
        after = r"with 3 new samples of each case -0.469 \(p 0.\d+, not below 0.04\); a drop below"
        first = r"fine -1.88 was in doubt \(p 0.027, not below 0.01\)"
        assert re.match(f"{first}, and is not confirmed: {after}", gate["message"]), gate["message"]
        assert sampled(runner) == dict.fromkeys(NAMES, 3)
        assert "used 24 of 24 new samples" in result.stderr
        assert "confirming all 8 compared cases with up to 3 new samples each" in result.stderr
        assert "in doubt with" not in result.stderr

    def test_a_fall_that_stays_is_confirmed(self, runner: SuiteRunner, scores: Scores) -> None:
        two_runs(runner, scores, lost(5))
        scores.set(**lost(5, "333"))
        code, gate, _ = compare(runner, "--confirm", "3")
        assert (code, gate["state"]) == (1, "failed")
        assert re.fullmatch(
            r"fine -1.88 was in doubt \(p 0.027, not below 0.01\),"
            r" with 3 new samples of each case -1.41 \(p 0.0\d+, below 0.04\)",
            gate["message"],
        )

    def test_a_smaller_fall_is_in_doubt_and_not_confirmed_by_the_same_again(
        self, runner: SuiteRunner, scores: Scores
    ) -> None:
        """Without --confirm, one step passes it and makes no call; with it, the second level is not reached either."""
        two_runs(runner, scores, lost(2))
        assert compare(runner)[0] == 0
        scores.set(**lost(2, "222"))
        code, gate, _ = compare(runner, "--confirm", "3")
        assert (code, gate["state"]) == (0, "passed")
        assert "and is not confirmed: with 3 new samples of each case -0.75 (p 0.0" in gate["message"]
        assert ", not below 0.04)" in gate["message"]

    def test_two_cases_cost_nothing(self, runner: SuiteRunner, scores: Scores) -> None:
        two_runs(runner, scores, lost(2), NAMES[:2])
        before = runner.called
        code, _, result = compare(runner, "--confirm", "3")
        assert (code, runner.called) == (0, before)
        assert "used 0 of 6 new samples" in result.stderr

    @pytest.mark.parametrize(("digits", "code"), [("222", 1), ("555", 0)])
    def test_four_cases_are_decided(self, runner: SuiteRunner, scores: Scores, digits: str, code: int) -> None:
        """One step cannot show anything with so few; samples of each case can."""
        two_runs(runner, scores, lost(4), NAMES[:4])
        assert compare(runner)[0] == 0
        scores.set(**lost(4, digits))
        assert compare(runner, "--confirm", "3")[0] == code

    def test_new_samples_are_used_again_and_only_missing_ones_are_paid(
        self, runner: SuiteRunner, scores: Scores
    ) -> None:
        two_runs(runner, scores, lost(5))
        scores.set(**lost(5, "33"))
        for samples, paid in ((2, 16), (2, 0), (1, 0), (3, 8)):
            before = runner.called
            compare(runner, "--confirm", str(samples))
            assert runner.called[0] - before[0] == paid

    def test_without_new_samples_the_doubt_stays(
        self, runner: SuiteRunner, scores: Scores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        two_runs(runner, scores, lost(5))
        for flags in (("--offline",), ("--budget", "0.2"), ()):
            if not flags:
                monkeypatch.delenv("LOCAL_KEY")
            code, gate, _ = compare(runner, "--confirm", "2", *flags)
            assert (code, gate["state"]) == (3, "unmeasured")
            assert re.search(
                r"fine -1.88 was in doubt \(p 0.027, not below 0.01\), and \d cases could not be confirmed \(",
                gate["message"],
            )
        monkeypatch.setenv("LOCAL_KEY", "any")

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
        two_runs(runner, scores, lost(5), graders=[{**GRADER, "optional": optional}], verdict=["attempts >= 1"])
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
        two_runs(runner, scores, lost(5), graders=[{**GRADER, "optional": True}], verdict=["attempts >= 1"])
        scores.set(**dict.fromkeys(NAMES, "x" * 9))
        code, gate, _ = compare(runner, "--confirm", "1", "--allow", "unmeasured")
        assert (code, gate["state"]) == (3, "unmeasured")
        assert "8 of 8 new samples were not measured" in gate["message"]

    def test_a_metric_that_is_sure_spares_the_samples_of_a_pass_rate_in_doubt(
        self, runner: SuiteRunner, scores: Scores
    ) -> None:
        two_runs(runner, scores, {**lost(7), "ant": "0"})
        before = runner.called
        code, gate, _ = compare(runner, "--confirm", "3")
        assert (code, gate["state"], runner.called) == (1, "failed", before)
        assert gate["message"].startswith("fine ")

    def test_a_failed_gate_spares_the_samples_of_a_metric_in_doubt(self, runner: SuiteRunner, scores: Scores) -> None:
        """``broken`` is about cells, and new samples say nothing about them."""
        two_runs(runner, scores, {**lost(5), "ant": "0"})
        code, gate, _ = compare(runner, "--confirm", "3", "--fail-on", "broken")
        assert (code, gate["state"], sampled(runner)) == (1, "cannot_tell", {})
        assert gate["message"].endswith("; only new samples of all cases can decide, and broken failed without them")

    def test_flaky_cases_get_no_new_samples(self, runner: SuiteRunner, scores: Scores) -> None:
        cases = [{"id": name, "prompt": f"a {name}", "flaky": name == "hen"} for name in NAMES]
        two_runs(runner, scores, lost(5), cases=cases)
        scores.set()
        assert compare(runner, "--confirm", "1")[0] == 0
        assert sampled(runner) == dict.fromkeys(NAMES[:-1], 1)

    def test_all_turns_and_all_model_runs_are_sampled(self, runner: SuiteRunner, scores: Scores) -> None:
        runner.folder.mkdir(exist_ok=True)
        Image.new("RGB", (32, 24)).save(runner.folder / "base.png")
        cases = [{"id": name, "images": ["base.png"], "turns": [f"a {name}", f"a {name} in red"]} for name in NAMES]
        models = json.loads(runner.write().read_text())["models"]
        both = [{**models[0], "label": label} for label in ("m", "n")]
        two_runs(runner, scores, lost(5, "2222"), cases=cases, models=both)
        scores.set(**lost(5, "2222"))
        code, gate, result = compare(runner, "--confirm", "1")
        assert (code, gate["state"]) == (1, "failed"), gate
        assert sampled(runner) == {f"{name}/{turn}": 2 for name in NAMES for turn in (1, 2)}
        assert "used 32 of 32 new samples" in result.stderr

    @pytest.mark.parametrize(("digits", "code"), [("3", 1), ("5", 0)])
    def test_a_baseline_of_several_runs(
        self, runner: SuiteRunner, scores: Scores, monkeypatch: pytest.MonkeyPatch, digits: str, code: int
    ) -> None:
        two_runs(runner, scores, lost(5))
        monkeypatch.chdir(runner.out.parent)
        assert runner("baseline", "set", "a", "--runs", runner.out).exit_code == 0
        scores.set()
        assert runner.run("--quiet", run_id="a2").exit_code == 0
        assert runner("baseline", "add", "a2", "--runs", runner.out).exit_code == 0
        scores.set(**lost(5, digits * 2))
        result = runner("compare", "baseline", "b", "--runs", runner.out, "--fail-on", "regressed", "--confirm", "2")
        assert result.exit_code == code, result.output

    def test_the_api_and_the_files_have_the_same_result(self, runner: SuiteRunner, scores: Scores) -> None:
        two_runs(runner, scores, lost(5))
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
        two_runs(runner, scores, lost(5))
        assert compare(runner, gate="fine:1.2")[0] == 1
        scores.set(**lost(5, new))
        exit_code, gate, result = compare(runner, "--confirm", "3", gate="fine:1.2")
        first = "5 -> 3.125 (-1.875)"
        expected = (
            f"{first}; over all samples, with 3 new samples of each case, {after}"
            if after
            else f"{first} was in doubt, and 5 cases could not be confirmed (ant, sample 1: "
        )
        assert exit_code == code
        assert gate["message"].startswith(expected)
        assert sampled(runner).total() == 24
        assert f"used {24 if after else 9} of 24 new samples" in result.stderr  # an ERROR is none

    @pytest.mark.parametrize(("cases", "bound", "code"), [(8, "fine:0.5", 1), (1, "fine:0.5", 0)])
    def test_what_is_sure_or_within_the_bound_costs_nothing(
        self, runner: SuiteRunner, scores: Scores, cases: int, bound: str, code: int
    ) -> None:
        two_runs(runner, scores, lost(cases))
        before = runner.called
        exit_code, _, result = compare(runner, "--confirm", "3", gate=bound)
        assert (exit_code, runner.called) == (code, before)
        assert "used 0 of 24 new samples" in result.stderr

    @pytest.mark.parametrize(("new", "code", "after"), [("55", 0, "-0.04167"), ("00", 1, "-0.125")])
    def test_the_pass_rate(self, runner: SuiteRunner, scores: Scores, new: str, code: int, after: str) -> None:
        two_runs(runner, scores, {"ant": "0"})
        scores.set(ant=new)
        exit_code, gate, _ = compare(runner, "--confirm", "2", gate="pass_rate:0.1")
        decides = f"over all samples, with 2 new samples of each case, {after}, which decides"
        assert (exit_code, gate["message"]) == (code, f"1 -> 0.875 (-0.125); {decides}")

    def test_a_built_in_metric(self, runner: SuiteRunner, scores: Scores) -> None:
        """The suite does not read it, so that records have it beside their scores."""
        write(runner, cases=[{"id": name, "prompt": f"a {name}"} for name in NAMES])
        assert runner.run("--quiet", run_id="a").exit_code == 0
        scores.faults += [Fault("unavailable")] * 2
        assert runner.run("--quiet", run_id="b").exit_code == 0
        code, gate, _ = compare(runner, "--confirm", "3", gate="attempts:0.1")
        assert code == 0, gate
        assert gate["message"].endswith(", which decides")

    def test_two_gates_in_doubt_share_their_samples(self, runner: SuiteRunner, scores: Scores) -> None:
        two_runs(runner, scores, lost(5))
        scores.set(**lost(5, "333"))
        code, gate, _ = compare(runner, "--confirm", "3", "--fail-on", "regressed", gate="fine:1.6")
        assert (code, gate["state"]) == (1, "passed")
        assert sampled(runner).total() == 24

    def test_a_bound_that_no_metric_has_costs_no_call(self, runner: SuiteRunner, scores: Scores) -> None:
        two_runs(runner, scores, lost(5))
        before = runner.called
        result = runner("compare", "a", "b", "--runs", runner.out, "--fail-on", "fien:1", "--confirm", "3")
        assert (result.exit_code, runner.called) == (2, before)
        assert "did you mean 'fine'" in result.stderr
