"""Gates of a comparison and its exit codes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from compare_factory import cell, scored, side, verdicts

from visioneval import Metric, UsageError, Verdict
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.confirm import Confirmation, SingleCase
from visioneval.analysis.compare.gates import (
    DEFAULT,
    GateResult,
    check_gates,
    decide,
    exit_code,
    parse_criteria,
    parse_fail_on,
)
from visioneval.analysis.compare.regressed import check_regressed, samples_in_doubt
from visioneval.analysis.sides import Cell

SAME: dict[str, Any] = {"artifact_sha256": "f" * 64}
MUST: dict[str, Any] = {"tags": ("must_pass",)}


def checked(
    before: list[Cell], after: list[Cell], *fail_on: str, state: str = "complete"
) -> tuple[tuple[GateResult, ...], int]:
    result = compare(side(before), side(after, "b", state=state))
    gates = decide(result, parse_criteria(fail_on))[:-4]
    return gates, exit_code(result, gates)


@pytest.mark.parametrize(
    ("before", "after", "changes", "fail_on", "code"),
    [
        ("PPPPPP", "PPPPPF", {}, [], 0),  # generated again, a single flip is noise
        ("PPPP", "PPPF", {}, ["broken"], 1),
        ("PPPP", "PPPF", SAME, [], 1),
        ("PPPP", "PPPF", SAME, ["regressed"], 3),  # four cases could not show it
        ("PPPPPP", "PPPPPF", SAME, ["regressed"], 0),
        ("PPPP", "FFFF", {}, [], 3),
        ("PPPPP", "FFFFF", {}, [], 1),
        ("PPPPPPP", "PPFFFFF", {}, [], 1),
        ("PPPPP", "PFFFF", {}, [], 3),  # more than half broke, and chance is not excluded
        ("PPPPPP", "PPPFFF", {}, [], 0),
        ("PPPF", "PPFP", {}, [], 0),  # nothing got worse
        ("PPPP", "PPPP", {}, ["must_pass"], 3),  # named, and about nothing
        ("PPPP", "PPPP", {}, ["must_pass", "broken_same_output"], 3),
        ("PPPP", "PPPP", {}, ["must_pass", "broken"], 0),
        ("PPPP", "PPPF", MUST, [], 1),
        ("PPPPPP", "PPPPPF", MUST, ["regressed", "broken_same_output"], 0),
        ("PPPP", "PPPF", {**MUST, **SAME, "flaky": True}, [], 3),  # every case is flaky: no gate could fail
        ("PPPP", "PPPF", {**MUST, **SAME, "flaky": True}, ["broken", *DEFAULT, "pass_rate:0"], 3),
        ("PPPPPPP", "FFFFFFF", {}, [], 1),
        ("FFFFFFF", "PPPPPPP", {}, [], 0),  # significantly better is no loss
        ("FFFF", "FFFF", {**MUST, **SAME}, [], 0),
        ("PPPP", "PPP!", MUST, [], 3),
        ("PPPP", "PPP!", SAME, [], 3),
        ("PPPP", "PPP!", {}, [], 0),
        ("PPPP", "PPP!", {}, ["broken"], 3),
        ("PPPP", "PPF!", {}, ["broken"], 1),
        ("PPPP", "!!!!", {}, [], 3),
        ("!!!!", "PPPP", {}, [], 3),
        ("PPPP", "PPFF", {}, ["pass_rate:0.5"], 0),
        ("PPPP", "PPFF", {}, ["pass_rate:0.49"], 1),
    ],
)
def test_exit_codes(before: str, after: str, changes: dict[str, Any], fail_on: list[str], code: int) -> None:
    assert checked(verdicts(before, **changes), verdicts(after, **changes), *fail_on)[1] == code


def test_unmeasured_gate_takes_precedence_over_a_failed_one() -> None:
    before = scored("look", [3, 4])
    after = [replace(item, verdict="FAIL", scores={"look": None}) for item in before]
    assert checked(before, after, "broken", "look:0.5")[1] == 3


def test_incomplete_run_exits_3() -> None:
    assert checked(verdicts("PP"), verdicts("PP"), state="interrupted")[1] == 3


@pytest.mark.parametrize(
    ("metric", "after", "state"),
    [("look:0.5", [3, 3.5], "passed"), ("look:0.4", [3, 3], "failed"), ("look:0", [5, 5], "passed"),
     ("look:0.25", [None, None], "unmeasured")],
)  # fmt: skip
def test_bound_on_a_metric(metric: str, after: list[float], state: str) -> None:
    ((result,), _) = checked(scored("look", [3, 4]), scored("look", after), metric)
    assert result.state == state


def test_bound_uses_the_direction_of_the_metric() -> None:
    ((result,), code) = checked(scored("copy.cer", [0.1, 0.1]), scored("copy.cer", [0.5, 0.1]), "copy.cer:0.1")
    assert (result.message, code) == ("0.1 -> 0.3 (+0.2)", 1)


def test_messages_of_gates() -> None:
    gates, _ = checked(verdicts("PPP", **MUST), verdicts("PF!", **MUST), "must_pass", "broken_same_output", "regressed")
    assert [item.message for item in gates] == [
        "1 of 2 cases tagged must_pass broke: c1 (failed 1 of 1);"
        " 1 that passed in A could not be measured in B: c2 (failed 0 of 1, 1 not measured)",
        "no cells with the same output",
        "1 of 2 cells broke; 2 cases x 1 sample cannot show it at 5 %: more cases would",
    ]
    (result,) = checked(verdicts("P" * 9), verdicts("F" * 9), "regressed")[0]
    assert result.message == "pass_rate -100.0 points (p 0.002)"
    before = [cell(), cell("gone", tags=("must_pass",)), cell("two", tags=("must_pass",))]
    (result,) = checked(before, [cell(), cell("two")], "must_pass")[0]
    assert result.message == "0 of 1 case tagged must_pass broke; 1 more cell of A missing from B: gone"


@pytest.mark.parametrize(
    ("before", "flaky"),
    [("P", False), ("F", False), ("P", True), ("PPPPPPP", False)],
)
def test_missing_must_pass_case_makes_its_gate_unmeasured(before: str, flaky: bool) -> None:
    unchanged = cell("kept", flaky=flaky)
    (result,), code = checked([unchanged, *verdicts(before, **MUST)], [unchanged], "must_pass")
    assert (result.state, code) == ("unmeasured", 3)
    assert "missing from B: c0" in result.message
    assert result.message.endswith(" and 2 more") == (len(before) == 7)


def test_missing_flaky_or_ungated_case_fails_nothing() -> None:
    assert checked([cell("kept"), cell("gone", flaky=True, **MUST)], [cell("kept")])[1] == 0
    assert checked([cell("kept"), cell("gone", **MUST)], [cell("kept")], "broken")[1] == 0
    assert checked([cell("kept", **MUST), cell("gone", **MUST)], [cell("kept", "FAIL")], "must_pass")[1] == 1


def test_model_run_excluded_by_a_flag_is_not_missing() -> None:
    before = side([cell("one", **MUST), cell("one", model_label="n", **MUST)])
    for narrowed, state in ((True, "passed"), (False, "unmeasured")):
        result = compare(before, side([cell("one", **MUST)], "b", is_narrowed=narrowed))
        assert [item.state for item in check_gates(result, parse_fail_on(["must_pass"]))] == [state]
    missing_case = compare(side([cell("one"), cell("two", **MUST)]), side([cell("one")], "b", is_narrowed=True))
    assert [item.state for item in check_gates(missing_case, parse_fail_on(["must_pass"]))] == ["unmeasured"]


def test_default_gates() -> None:
    assert tuple(item.text for item in parse_fail_on([])) == ("broken_same_output", "regressed", "must_pass")
    assert [item.text for item in parse_fail_on(["broken", "broken"])] == ["broken"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("brokn", r"unknown gate \(did you mean 'broken'\?\)"),
        ("look:much", "'much' is not a number >= 0"),
        ("look:-1", "'-1' is not a number"),
        ("look:nan", "'nan' is not a number"),
        (":0.2", "unknown gate"),
        ("pass_rate:5", "no rate can fall by more than 1: write pass_rate:0.05 for 5 points"),
        ("pass_rate:1", "no rate can fall by more than 1"),
    ],
)
def test_invalid_gates_are_rejected(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_fail_on([word])


def test_unknown_metric_or_metric_without_direction_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"no metric 'lok' in both runs \(did you mean 'look'\?\)"):
        checked(scored("look", [1]), scored("look", [1]), "lok:0.2")
    mood = {"mood": Metric(type="number", better="none")}
    a, b = (side(scored("mood", [1]), name, metrics=mood) for name in "ab")
    with pytest.raises(UsageError, match="cannot tell which values of mood are better"):
        check_gates(compare(a, b), parse_fail_on(["mood:0.2"]))


@pytest.mark.parametrize(
    ("metric", "allowed", "most"),
    [
        (Metric(type="bool"), 1, "1"),
        (Metric(type="number", range=(0, 5)), 5, "5"),
        (Metric(type="number", range=(0, 5)), 4.9, None),
        (Metric(type="number"), 1000, None),
    ],
)
def test_a_bound_that_no_difference_can_exceed_is_rejected(metric: Metric, allowed: float, most: str | None) -> None:
    a, b = (side(scored("look", [1, 0]), name, metrics={"look": metric}) for name in "ab")
    result, gates = compare(a, b), parse_fail_on([f"look:{allowed}"])
    if most is None:
        assert check_gates(result, gates)[0].state == "passed"
    else:
        with pytest.raises(UsageError, match=f"look cannot get worse by more than {most}: write less than that"):
            check_gates(result, gates)


def sampled(letters: str, **changes: Any) -> list[Cell]:
    """Samples of cases: ``PPP FFF`` are three of each of two cases."""
    return [
        replace(item, test_id=f"c{case}", sample_index=sample)
        for case, group in enumerate(letters.split())
        for sample, item in enumerate(verdicts(group, **changes))
    ]


@pytest.mark.parametrize(("samples", "state"), [(3, "passed"), (8, "failed"), (20, "failed")])
@pytest.mark.parametrize("others", [3, 199])
def test_one_case_that_breaks_is_a_regression_among_any_number_of_others(samples: int, others: int, state: str) -> None:
    steady = " ".join(["P" * samples] * others)
    before, after = sampled(f"{'P' * samples} {steady}"), sampled(f"{'F' * samples} {steady}")
    ((result,), _) = checked(before, after, "regressed")
    assert result.state == state
    assert (f"1 case: c0 ({samples} of {samples} -> 0 of {samples}" in result.message) == (state == "failed")


def test_a_case_is_named_with_its_model_run_where_there_are_several() -> None:
    labels = "one", "two"
    before = [replace(item, model_label=label) for label in labels for item in sampled("PPPPPPPP PPPPPPPP")]
    after = [
        replace(item, verdict="FAIL") if item.model_label == "two" and item.test_id == "c1" else item for item in before
    ]
    ((result,), code) = checked(before, after, "regressed")
    assert "c1 on two (8 of 8 -> 0 of 8" in result.message
    assert code == 1


def test_a_regression_of_single_cases_beside_equal_gains() -> None:
    """The mean is the same, and two cases are lost."""
    before = sampled("PPPPPPPP PPPPPPPP FFFFFFFF FFFFFFFF")
    after = sampled("FFFFFFFF FFFFFFFF PPPPPPPP PPPPPPPP")
    ((result,), code) = checked(before, after, "regressed")
    assert result.message.startswith("2 cases: c0 (8 of 8 -> 0 of 8")
    assert code == 1


@pytest.mark.parametrize(
    ("points", "cases", "state"), [(10, 300, "passed"), (10, 30, "cannot_tell"), (100, 4, "cannot_tell")]
)
def test_a_drop_that_must_be_found(points: float, cases: int, state: str) -> None:
    cells = verdicts("PPPPF" * (cases // 5) + "P" * (cases % 5))
    comparison = compare(side(cells), side(cells, "b"))
    result, lifted = (
        decide(comparison, parse_criteria(["broken"], allow, points))[1] for allow in ([], ["cannot-tell"])
    )
    assert result.state == state
    assert lifted.state == "passed"
    assert lifted.message.endswith("(allowed)") == (state == "cannot_tell")


def test_what_would_be_missed_is_stated_where_nothing_got_worse() -> None:
    ((result,), _) = checked(verdicts("P" * 28 + "FF"), verdicts("P" * 28 + "FF"), "regressed")
    assert re.fullmatch(r"no regression found over 30 cases; a drop below \d+ points can be missed", result.message)
    ((few,), _) = checked(verdicts("PPP"), verdicts("PPP"), "regressed")
    assert few.message == "no regression found over 3 cases; any drop can be missed"


def test_the_former_gate_is_refused_with_its_replacement() -> None:
    with pytest.raises(UsageError, match=r"significant: it is now part of regressed, .* write --fail-on regressed"):
        parse_fail_on(["significant"])


def test_gates_that_are_about_nothing_are_not_lifted() -> None:
    comparison = compare(side(verdicts("PP")), side(verdicts("PP"), "b"))
    result = decide(comparison, parse_criteria(["must_pass"], ["cannot-tell"]))[0]
    assert (result.state, result.message) == ("unmeasured", "no cases tagged must_pass, so no gate could fail")


SIX_LOST = (
    sampled(" ".join(["P" * 20, *["P" * 19 + "F"] * 60])),
    sampled(" ".join(["P" * 14 + "F" * 6, *["P" * 20] * 60])),
)


NEW: dict[str, list[Verdict]] = {
    letters: [Verdict.PASS if letter == "P" else Verdict.FAIL for letter in letters]
    for letters in ("F" * 11 + "P" * 9, "F" * 10 + "P" * 10, "F" * 9 + "P" * 11, "")
}


@pytest.mark.parametrize(
    ("new", "state", "ending"),
    [
        ("F" * 11 + "P" * 9, "failed", "11 of 20 failed: confirmed"),
        ("F" * 10 + "P" * 10, "failed", "10 of 20 failed: confirmed"),
        ("F" * 9 + "P" * 11, "passed", "9 of 20 failed: not confirmed"),
        ("", "unmeasured", "none measured: could not be confirmed (no key is set)"),
    ],
)
def test_a_case_that_fails_without_confirmation_needs_new_samples_with_it(new: str, state: str, ending: str) -> None:
    """20 of 20 to 14 of 20: it is worse by one step, but not by the first of two."""
    comparison = compare(side(SIX_LOST[0]), side(SIX_LOST[1], "b"))
    assert check_regressed(comparison).state == "failed"
    assert [case.key for case in samples_in_doubt(comparison)] == [("c0", "m")]
    result = check_regressed(comparison, Confirmation(20, {("c0", "m"): NEW[new]} if new else {}, "no key is set"))
    assert result.state == state
    start = "1 case was uncertain: c0 (20 of 20 -> 14 of 20, p 0.01); new samples: "
    assert result.message.startswith(f"{start}{ending}")


def test_cases_in_doubt_are_named_with_their_ends_and_model_runs() -> None:
    """As much is gained by the other model run, so that the pass rate is in no doubt."""
    lost, gained = "FFFFF FFFFF PPPPP", "PPPPP PPPPP PPPPP"
    before, after = (
        [replace(item, model_label=label) for label, letters in by_run for item in sampled(letters)]
        for by_run in ((("one", lost), ("two", gained)), (("one", gained), ("two", lost)))
    )
    comparison = compare(side(before), side(after, "b"))
    verdicts_of_new = {("c0", "two"): NEW["F" * 9 + "P" * 11], ("c1", "two"): NEW["F" * 11 + "P" * 9]}
    result = check_regressed(comparison, Confirmation(20, verdicts_of_new))
    assert (result.state, result.message) == (
        "failed",
        "2 cases were uncertain: c1 on two (5 of 5 -> 0 of 5, p 0.016); new samples: 11 of 20 failed: confirmed;"
        " c0 on two (5 of 5 -> 0 of 5, p 0.016); new samples: 9 of 20 failed: not confirmed",
    )


def test_a_tie_of_new_samples_is_decided_as_soon_as_it_is_certain() -> None:
    case = SingleCase("c0", "m")
    letters = {"P": Verdict.PASS, "F": Verdict.FAIL, "!": Verdict.ERROR}
    for planned, new, state, needed in (
        (4, "", "unmeasured", 2),
        (4, "F", "unmeasured", 1),
        (4, "FF", "broken", 0),
        (4, "FPP", "unmeasured", 1),
        (4, "PPP", "passed", 0),
        (3, "P", "unmeasured", 1),
        (3, "PP", "passed", 0),
        (3, "!P", "unmeasured", 1),
        (3, "!!P", "unmeasured", 0),
        (3, "!!", "unmeasured", 0),
    ):
        judged = case.with_new(planned, [letters[letter] for letter in new])
        assert (judged.state, judged.needed) == (state, needed), (planned, new)
