"""What fails a comparison, and with which exit code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sides import cell, scored, side, verdicts

from visioneval.analysis.cells import Cell
from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import DEFAULT, GateResult, check_gates, exit_code, parse_fail_on
from visioneval.errors import UsageError
from visioneval.types import Metric

SAME: dict[str, Any] = {"artifact_sha256": "f" * 64}
MUST: dict[str, Any] = {"tags": ("must_pass",)}


def held(
    before: list[Cell], after: list[Cell], *fail_on: str, state: str = "complete"
) -> tuple[tuple[GateResult, ...], int]:
    found = compare(side(before), side(after, "b", state=state))
    gates = check_gates(found, parse_fail_on(fail_on))
    return gates, exit_code(found, gates)


@pytest.mark.parametrize(
    ("before", "after", "changes", "fail_on", "code"),
    [
        ("PPPP", "PPPF", {}, [], 0),  # generated again, a single flip is noise
        ("PPPP", "PPPF", {}, ["broken"], 1),
        ("PPPP", "PPPF", SAME, [], 1),
        ("PPPP", "PPPF", SAME, ["significant"], 0),
        ("PPPP", "PPPF", MUST, [], 1),
        ("PPPP", "PPPF", MUST, ["significant", "broken_same_output"], 0),
        ("PPPP", "PPPF", {**MUST, **SAME, "flaky": True}, ["broken", *DEFAULT, "pass_rate:0"], 0),
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
    assert held(verdicts(before, **changes), verdicts(after, **changes), *fail_on)[1] == code


def test_an_unmeasured_gate_comes_before_an_unmet_one() -> None:
    before = scored("look", [3, 4])
    after = [replace(one, verdict="FAIL", scores={"look": None}) for one in before]
    assert held(before, after, "broken", "look:0.5")[1] == 3


def test_a_run_that_is_not_complete_is_not_held_good() -> None:
    assert held(verdicts("PP"), verdicts("PP"), state="interrupted")[1] == 3


@pytest.mark.parametrize(
    ("metric", "after", "state"),
    [("look:0.5", [3, 3.5], "passed"), ("look:0.4", [3, 3], "failed"), ("look:0", [5, 5], "passed"),
     ("look:0.25", [None, None], "unmeasured")],
)  # fmt: skip
def test_a_bound_on_a_metric(metric: str, after: list[float], state: str) -> None:
    ((found,), _) = held(scored("look", [3, 4]), scored("look", after), metric)
    assert found.state == state


def test_lower_is_better_where_the_metric_says_so() -> None:
    ((found,), code) = held(scored("copy.cer", [0.1, 0.1]), scored("copy.cer", [0.5, 0.1]), "copy.cer:0.1")
    assert (found.message, code) == ("0.1 -> 0.3 (+0.2)", 1)


def test_findings_in_words() -> None:
    gates, _ = held(verdicts("PPP", **MUST), verdicts("PF!", **MUST), "must_pass", "broken_same_output", "significant")
    assert [one.message for one in gates] == [
        "1 of 3 cells tagged must_pass broke, 1 that passed could not be measured",
        "no cells with the same image",
        "none of 1 metrics is significantly worse, by 2 cases",
    ]
    (found,) = held(verdicts("P" * 9), verdicts("F" * 9), "significant")[0]
    assert found.message == "pass_rate -100.0 points (p 0.0039)"
    before = [cell(), cell("gone", tags=("must_pass",)), cell("two", tags=("must_pass",))]
    (found,) = held(before, [cell(), cell("two")], "must_pass")[0]
    assert found.message == "0 of 1 cells tagged must_pass broke, 1 more of A are not in B: gone"


@pytest.mark.parametrize(
    ("before", "flaky"),
    [("P", False), ("F", False), ("P", True), ("PPPPPPP", False)],
)
def test_a_must_pass_case_that_is_gone_leaves_its_gate_unmeasured(before: str, flaky: bool) -> None:
    kept = cell("kept", flaky=flaky)
    (found,), code = held([kept, *verdicts(before, **MUST)], [kept], "must_pass")
    assert (found.state, code) == ("unmeasured", 3)
    assert "not in B: c0" in found.message
    assert found.message.endswith(" and 2 more") == (len(before) == 7)


def test_what_is_gone_and_is_flaky_or_not_gated_on_fails_nothing() -> None:
    assert held([cell("kept"), cell("gone", flaky=True, **MUST)], [cell("kept")])[1] == 0
    assert held([cell("kept"), cell("gone", **MUST)], [cell("kept")], "broken")[1] == 0
    assert held([cell("kept", **MUST), cell("gone", **MUST)], [cell("kept", "FAIL")], "must_pass")[1] == 1


def test_a_model_run_that_a_flag_left_out_of_b_is_not_gone() -> None:
    before = side([cell("one", **MUST), cell("one", model_label="n", **MUST)])
    for narrowed, state in ((True, "passed"), (False, "unmeasured")):
        found = compare(before, side([cell("one", **MUST)], "b", is_narrowed=narrowed))
        assert [one.state for one in check_gates(found, parse_fail_on(["must_pass"]))] == [state]
    case_gone = compare(side([cell("one"), cell("two", **MUST)]), side([cell("one")], "b", is_narrowed=True))
    assert [one.state for one in check_gates(case_gone, parse_fail_on(["must_pass"]))] == ["unmeasured"]


def test_the_default_is_the_middle_three() -> None:
    assert tuple(one.text for one in parse_fail_on([])) == ("broken_same_output", "significant", "must_pass")
    assert [one.text for one in parse_fail_on(["broken", "broken"])] == ["broken"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("brokn", r"there is no such gate \(did you mean 'broken'\?\)"),
        ("look:much", "'much' is not a number from 0 on"),
        ("look:-1", "'-1' is not a number"),
        ("look:nan", "'nan' is not a number"),
        (":0.2", "there is no such gate"),
    ],
)
def test_what_is_no_gate(word: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_fail_on([word])


def test_a_metric_that_is_not_there_or_has_no_direction() -> None:
    with pytest.raises(UsageError, match=r"no metric 'lok' is in both runs \(did you mean 'look'\?\)"):
        held(scored("look", [1]), scored("look", [1]), "lok:0.2")
    mood = {"mood": Metric(type="number", better="none")}
    a, b = (side(scored("mood", [1]), name, metrics=mood) for name in "ab")
    with pytest.raises(UsageError, match="of mood it is not known which way is better"):
        check_gates(compare(a, b), parse_fail_on(["mood:0.2"]))
