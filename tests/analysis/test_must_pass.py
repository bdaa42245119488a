"""The gate ``must_pass``: a case is judged by the majority of its samples, and by new samples where they confirm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from calibration.must_pass import Design, rate
from compare_factory import cell, side

from visioneval import Verdict
from visioneval.analysis.compare.compare import Comparison, compare
from visioneval.analysis.compare.confirm import Confirmation, MustPassCase
from visioneval.analysis.compare.gates import GateResult, check_gates, exit_code, parse_fail_on
from visioneval.analysis.compare.metrics import SampleCounts
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.sides import Cell
from visioneval.report.compare import comparison_json

MUST = ("must_pass",)
LETTERS = {"P": Verdict.PASS, "F": Verdict.FAIL, "!": Verdict.ERROR}


def samples(letters: str, test_id: str = "boat", **changes: Any) -> list[Cell]:
    """One sample per letter; ``.`` is a sample that the run does not have."""
    marks = {"tags": MUST, **changes}
    return [
        cell(test_id, LETTERS[letter], sample_index=at, **marks) for at, letter in enumerate(letters) if letter != "."
    ]


def comparison(before: list[Cell], after: list[Cell], *names: str, **changes: Any) -> Comparison:
    return compare(side(before), side(after, "b", **changes), ComparisonFilters(cases=names))


def gate(compared: Comparison, confirmation: Confirmation | None = None) -> GateResult:
    (result,) = check_gates(compared, parse_fail_on(["must_pass"]), confirmation)
    return result


def confirmed(before: str, after: str, new: str, planned: int = 4) -> GateResult:
    verdicts = {("boat", "m"): [LETTERS[letter] for letter in new]}
    return gate(comparison(samples(before), samples(after)), Confirmation(planned, verdicts))


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        ("P", "F", "failed"),
        ("F", "F", "passed"),
        ("PPP", "PPF", "passed"),  # a single flip among three is noise
        ("PPP", "PFF", "failed"),
        ("PPF", "FFP", "failed"),  # by the majorities, whichever samples they are
        ("PFF", "FFF", "passed"),  # A did not pass either
        ("PPPP", "PPFF", "passed"),  # a tie is not broken
        ("PPPP", "PFFF", "failed"),
        ("PF", "FF", "passed"),  # nor has a tie passed
        ("P", "PFF", "failed"),
        ("PPP", "F", "unmeasured"),  # two samples are missing: they could have passed
        ("PPP", "P", "unmeasured"),
        ("PPP", "FF.", "failed"),
        ("PPP", "PP.", "unmeasured"),  # decided, but deleted samples never pass
        ("PPP", "PP!", "passed"),
        ("PPP", "FF!", "failed"),
        ("PPP", "PF!", "unmeasured"),
        ("PPPP", "PP!!", "passed"),
        ("PPPP", "PF!!", "unmeasured"),
        ("PPP", "!!!", "unmeasured"),
        ("FFF", "!!!", "passed"),
        ("P!!", "FFF", "failed"),  # the measured samples of A
        ("!!!", "FFF", "unmeasured"),  # whether it broke is unknown
        ("!!!", "PPF", "passed"),  # it passes now, whatever it did
        ("!!!", "PPP", "passed"),
        ("!!!", "PF!", "unmeasured"),
        ("!!!", "!!!", "unmeasured"),
        ("F!!", "!!!", "passed"),
    ],
)
def test_a_case_is_judged_by_the_majority_of_its_samples(before: str, after: str, state: str) -> None:
    assert gate(comparison(samples(before), samples(after))).state == state


def test_the_message_counts_the_samples() -> None:
    before = [*samples("PPPPP"), *samples("PPPPP", "tree"), *samples("PPPPP", "car"), *samples("FFFFF", "hat")]
    after = [*samples("FPFFF"), *samples("FFF!P", "tree"), *samples("PPF!!", "car"), *samples("FFFFF", "hat")]
    assert gate(comparison(before, after)).message == (
        "2 of 3 cases tagged must_pass broke: boat (failed 4 of 5), tree (failed 3 of 5, 1 not measured);"
        " 1 that passed in A could not be measured in B: car (failed 1 of 5, 2 not measured)"
    )
    assert gate(comparison(samples("PPP"), samples("PP."))).message == (
        "0 of 1 case tagged must_pass broke; 1 more cell of A missing from B: boat"
    )


def test_the_message_lists_five_cases_at_most() -> None:
    before, after = ([item for at in range(7) for item in samples(letter, f"c{at}")] for letter in "PF")
    message = gate(comparison(before, after)).message
    assert message.startswith("7 of 7 cases tagged must_pass broke: c0 (failed 1 of 1), ")
    assert message.endswith(" and 2 more")


def test_each_model_run_has_its_own_majority() -> None:
    before = [*samples("PPP", model_label="x"), *samples("PPP", model_label="y")]
    after = [*samples("PPF", model_label="x"), *samples("FFF", model_label="y")]
    result = gate(comparison(before, after))
    assert (result.state, [case.state for case in result.cases]) == ("failed", ["passed", "broken"])
    assert "boat on y (failed 3 of 3)" in result.message


def test_a_renamed_model_run_keeps_its_samples() -> None:
    a = side([*samples("PPP", model_label="old"), *samples("PPP", "tree", model_label="z")])
    b = side([*samples("FFP", model_label="new"), *samples("PPP", "tree", model_label="z")], "b")
    result = gate(compare(a, b, renamed=["old=new"]))
    assert [(case.key, case.state) for case in result.cases] == [(("boat", "new"), "broken"), (("tree", "z"), "passed")]


def test_flaky_cases_never_fail_it() -> None:
    for sides in ((True, False), (True, True)):
        before, after = (samples(letters, flaky=flaky) for letters, flaky in zip(("PPP", "FFF"), sides, strict=True))
        result = gate(comparison([cell(), *before], [cell(), *after]))
        assert (result.state, result.message) == ("not_applicable", "1 case tagged must_pass is flaky")
        two = [*before, *samples("P", "car", flaky=True)]
        assert gate(comparison([cell(), *two], [cell(), *after])).message == "2 cases tagged must_pass are flaky"
        assert gate(comparison(before, after)).message == "every case is flaky"


def test_a_case_that_only_b_calls_flaky_fails_it() -> None:
    assert gate(comparison(samples("PPP"), samples("FFF", flaky=True))).state == "failed"


def test_a_case_that_neither_run_measured_is_not_counted() -> None:
    before = [item for name in ("one", "two", "three") for item in samples("P", name)]
    result = gate(comparison([*before, *samples("!")], [*before, *samples("!")]))
    assert (result.state, result.message) == (
        "unmeasured",
        "0 of 3 cases tagged must_pass broke; 1 not measured: boat (failed 0 of 1, 1 not measured, ERROR in A)",
    )


def test_a_tag_on_either_side_counts() -> None:
    for tags in (((), MUST), (MUST, ())):
        before, after = (samples(letters, tags=tag) for letters, tag in zip("PF", tags, strict=True))
        assert gate(comparison(before, after)).state == "failed"
    assert gate(comparison(samples("P", tags=()), samples("F", tags=()))).message == "no cases tagged must_pass"


def test_samples_that_flags_left_out_are_not_missing() -> None:
    result = gate(comparison(samples("PPP"), samples("P"), samples_flag=1))
    assert (result.state, result.message) == ("passed", "0 of 1 case tagged must_pass broke")
    assert gate(comparison(samples("PPP"), samples("F"), samples_flag=1)).state == "failed"
    before = [*samples("PPP"), *samples("PPP", "tree")]
    assert gate(comparison(before, samples("PPP"), left_out_cases=frozenset(["tree"]))).state == "passed"
    assert gate(comparison(before, samples("PPP"))).state == "unmeasured"
    assert gate(comparison(before, samples("PPP"), "boat")).state == "passed"


def test_a_new_case_of_b_is_not_judged() -> None:
    assert gate(comparison([cell()], [cell(), *samples("FFF", "new")])).message == "no cases tagged must_pass"


@pytest.mark.parametrize(
    ("before", "after", "new", "state", "text"),
    [
        ("P", "F", "FF", "failed", "broke: boat (failed 3 of 3)"),
        ("P", "F", "FPF", "failed", "broke: boat (failed 3 of 4)"),
        ("P", "F", "PFPF", "failed", "broke: boat (failed 3 of 5)"),
        ("P", "F", "PPP", "passed", "1 broke, but new samples did not confirm it: boat (failed 1 of 4)"),
        ("P", "F", "FPPP", "passed", "did not confirm it: boat (failed 2 of 5)"),
        ("P", "F", "", "unmeasured", "1 broke and could not be confirmed: boat (failed 1 of 1)"),
        ("P", "F", "FP", "unmeasured", "could not be confirmed: boat (failed 2 of 3)"),
        ("P", "F", "!PPP", "passed", "boat (failed 1 of 4)"),  # a new sample without a verdict is none
        ("P", "F", "!FPP", "unmeasured", "boat (failed 2 of 4)"),
        ("P", "F", "!FF", "failed", "boat (failed 3 of 3)"),
        ("P", "F", "PPPFFFF", "failed", "boat (failed 5 of 8)"),  # all of an earlier confirmation count
        ("P!P", "FF!", "PPPP", "passed", "boat (failed 2 of 7, 1 not measured)"),
        ("PPP", "PFF", "PPP", "passed", "boat (failed 2 of 6)"),
        ("PPP", "PFF", "FF", "failed", "boat (failed 4 of 5)"),
        ("PPP", "PPF", "FFFF", "passed", "0 of 1 case tagged must_pass broke"),  # did not break: nothing to confirm
        ("PPP", "PF!", "FFFF", "unmeasured", "1 that passed in A could not be measured in B"),
    ],
)
def test_new_samples_confirm_a_break(before: str, after: str, new: str, state: str, text: str) -> None:
    result = confirmed(before, after, new)
    assert (result.state, text in result.message) == (state, True), result.message


def test_an_even_number_of_samples_needs_more_than_half() -> None:
    assert [confirmed("P", "F", new, planned=3).state for new in ("FPP", "PFF", "FF")] == ["passed", "failed", "failed"]
    assert [confirmed("P", "F", new, planned=1).state for new in ("P", "F")] == ["passed", "failed"]


def test_the_reason_why_samples_are_missing_is_in_the_message() -> None:
    compared = comparison(samples("P"), samples("F"))
    result = gate(compared, Confirmation(4, {}, "the budget is used up"))
    assert "1 broke and could not be confirmed (the budget is used up): boat" in result.message
    assert exit_code(compared, [result]) == 3


@pytest.mark.parametrize(
    ("letters", "new", "needed"),
    [("F", "", 2), ("F", "F", 1), ("F", "P", 2), ("F", "FF", 0), ("F", "PPP", 0), ("F", "PFP", 1), ("F", "!", 2),
     ("F", "!!", 2), ("F", "!!!", 0), ("FFP", "", 2), ("FFF", "", 1), ("FFF", "F", 0), ("FF", "", 2)],
)  # fmt: skip
def test_no_more_samples_are_needed_than_may_decide(letters: str, new: str, needed: int) -> None:
    case = MustPassCase("boat", "m", a=SampleCounts(1), b=SampleCounts.of([LETTERS[letter] for letter in letters]))
    assert case.with_new(4, [LETTERS[letter] for letter in new]).needed == needed


def test_json_has_every_case_with_its_samples() -> None:
    compared = comparison(samples("PP"), samples("FF"))
    gates = [gate(compared, Confirmation(4, {("boat", "m"): [LETTERS["F"], LETTERS["P"], LETTERS["F"]]}))]
    (entry,) = json.loads("".join(comparison_json(compared, gates, 1)))["gates"]
    assert entry["cases"] == [
        {
            "test_id": "boat",
            "model_label": "m",
            "state": "broken",
            "a": {"passed": 2, "failed": 0, "errors": 0},
            "b": {"passed": 0, "failed": 2, "errors": 0},
            "missing": 0,
            "new": {"passed": 1, "failed": 2, "errors": 0},
        }
    ]
    (other,) = json.loads("".join(comparison_json(compared, check_gates(compared, parse_fail_on(["broken"])), 1)))[
        "gates"
    ]
    assert "cases" not in other


def broken_probability(count: int, fails_a: float, fails_b: float, planned: int = 0) -> float:
    """The exact probability that one case is judged as broken, by the real rule."""

    from scipy.stats import binom

    return sum(
        binom.pmf(failed_a, count, fails_a) * binom.pmf(failed_b, count, fails_b) * _confirmed(case, fails_b, planned)
        for failed_a in range(count + 1)
        for failed_b in range(count + 1)
        if (case := _case(count, failed_a, failed_b)).state == "broken"
    )


def _case(count: int, failed_a: int, failed_b: int) -> MustPassCase:
    a, b = (SampleCounts(count - failed, failed) for failed in (failed_a, failed_b))
    return MustPassCase("boat", "m", a=a, b=b)


def _confirmed(case: MustPassCase, fails: float, planned: int) -> float:
    def judge(new: list[Verdict]) -> float:
        judged = case.with_new(planned, new)
        if not judged.needed:
            return float(judged.state == "broken")
        return fails * judge([*new, Verdict.FAIL]) + (1 - fails) * judge([*new, Verdict.PASS])

    return judge([]) if planned else 1.0


def false_alarm(count: int, noise: float, planned: int = 0) -> float:
    """The exact probability that equal runs with five tagged cases fail."""
    return 1 - (1 - broken_probability(count, noise, noise, planned)) ** 5


@pytest.mark.parametrize(("noise", "limit"), [(0.02, 0.05), (0.05, 0.10), (0.10, 0.20)])
def test_equal_runs_seldom_fail_at_three_samples_or_more(noise: float, limit: float) -> None:
    assert all(false_alarm(count, noise) <= limit for count in range(3, 13))


@pytest.mark.parametrize(("noise", "limit"), [(0.02, 0.005), (0.05, 0.01), (0.10, 0.03)])
def test_equal_runs_seldom_fail_with_confirmation(noise: float, limit: float) -> None:
    assert all(false_alarm(count, noise, planned=4) <= limit for count in (1, 3, 8))


def test_confirmation_is_the_binomial_majority() -> None:
    """The rule that stops early gives what all planned samples would."""

    from scipy.stats import binom

    for fails in (0.02, 0.1, 0.5, 0.8):
        assert broken_probability(1, 0, fails, planned=4) == pytest.approx(fails * binom.sf(1, 4, fails))


def test_a_case_that_fails_most_of_the_time_is_seen() -> None:
    assert broken_probability(3, 0, 0.8) >= 0.88
    assert broken_probability(8, 0, 0.8) >= 0.9
    assert broken_probability(1, 0, 0.8, planned=4) >= 0.75


@pytest.mark.slow
def test_simulated_comparisons_fail_as_often_as_calculated() -> None:
    share, _ = rate(Design(5, 3, 0, 0.1, 0.1), 100)
    probability = false_alarm(3, 0.1)
    assert share == pytest.approx(probability, abs=4 * (probability * (1 - probability) / 100) ** 0.5)
    assert rate(Design(1, 1, 4, 0.0, 1.0), 1)[0] == 1
