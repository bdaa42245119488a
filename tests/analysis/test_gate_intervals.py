"""Gates of a run: the interval of every value, how often a repeat fails, and gates that the bound decides."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from record_factory import UNMEASURED, record, run_of

from visioneval import Record, Summary
from visioneval.analysis.stats.intervals import mean_interval, rate_interval, rate_separation_interval
from visioneval.analysis.summary.gates import GateFinding
from visioneval.analysis.summary.summary import summarize
from visioneval.report.outcome import outcome
from visioneval.report.text import gate_note, gate_repeat, gate_value, show_interval, show_share_of_runs
from visioneval.suite.rules import GateRule
from visioneval.suite.runs import Selection, Shard

METRICS: dict[str, Any] = {"fine": {"type": "bool"}, "level": {"type": "number", "range": [0, 1]}}
CASES: dict[str, dict[str, Any]] = {
    **{f"c{number}": {"tags": ["even" if number % 2 == 0 else "odd"]} for number in range(20)},
    **{f"not{number}": {"expect": {"aligned": False}} for number in range(4)},
}


def cells(*, failing: int = 2, errors: int = 0) -> list[Record]:
    """A cell for each case, of which the first are errors, then fail; counter-examples fail."""
    created = []
    for number, (name, case) in enumerate(CASES.items()):
        verdict = "ERROR" if number < errors else "FAIL" if number < errors + failing or "expect" in case else "PASS"
        measured = {"fine": verdict == "PASS", "level": (0.1 if "expect" in case else 0.8) + number / 200}
        created.append(
            record(
                test_id=name,
                tags=case.get("tags", []),
                verdict=verdict,
                status="error" if verdict == "ERROR" else "completed",
                error=UNMEASURED if verdict == "ERROR" else None,
                scores={} if verdict == "ERROR" else measured,
            )
        )
    return created


def summary_of(*gates: Any, measured: list[Record] | None = None, **changes: Any) -> Summary:
    return summarize(run_of(CASES, ["m"], list(gates), METRICS, **changes), cells() if measured is None else measured)


def gate_of(gate: Any, **changes: Any) -> GateFinding:
    return summary_of(gate, **changes).gates[0]


RATE = rate_interval([(1.0, 1)] * 18 + [(0.0, 1)] * 6)
ALIGNED = {number: [float(number >= 2)] for number in range(20)}
COUNTER = {number: [0.0] for number in range(20, 24)}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("pass_rate >= 0.5", RATE),
        ("rate(fine) >= 0.5", RATE),
        ("mean(fine) >= 0.5", RATE),
        ("error_rate <= 0.5", rate_interval([(0.0, 1)] * 24)),
        ("unmeasured_rate <= 0.5", rate_interval([(0.0, 1)] * 24)),
        ("refusal_rate <= 0.5", rate_interval([(0.0, 1)] * 24)),
        ("mean(level) >= 0.5", mean_interval([(cell.scores["level"] or 0.0, 1) for cell in cells()], (0, 1))),
        ("separation(fine) >= 0.5", rate_separation_interval(ALIGNED, COUNTER)),
    ],
)
def test_every_gate_has_the_interval_of_its_value(rule: str, expected: Any) -> None:
    found = gate_of(rule)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.n == 24


@pytest.mark.parametrize("rule", ["separation(level) >= 0.5", "p50(level) >= 0.5"])
def test_separations_and_quantiles_of_numbers_have_intervals(rule: str) -> None:
    found = gate_of(rule)
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("rule", "is_known"),
    [
        ("pass_rate >= 0.7", True),
        ("refusal_rate <= 0.1", True),
        ("mean(level) >= 0.7", True),
        ("separation(level) >= 0.5", True),
        ("p50(level) >= 0.8", True),
        ("mean(level) == 0.7", False),
        ("error_rate <= 0.1", False),
        ("unmeasured_rate <= 0.1", False),
    ],
)
def test_how_often_a_repeat_fails_is_known_of_all_but_errors_and_equal_numbers(rule: str, is_known: bool) -> None:
    assert (gate_of(rule).repeat_fails is not None) == is_known


def test_a_gate_that_is_not_decided_states_no_repeat() -> None:
    shard = gate_of("pass_rate >= 0.5", selection=Selection(shard=Shard(number=1, count=4)))
    assert (shard.state, shard.repeat_fails) == ("deferred", None)
    skipped = gate_of({"rule": "pass_rate >= 0.5", "tags": ["odd"]}, selection=Selection(cases=("c0",)))
    assert (skipped.state, skipped.repeat_fails) == ("skipped", None)


BOUNDS = [
    ("pass_rate >= 0.5", "passed"),  # 0.75 [0.55, 0.88]
    ("pass_rate >= 0.55", "passed"),
    ("pass_rate >= 0.56", "cannot_tell"),
    ("pass_rate > 0.75", "failed"),
    ("pass_rate < 0.89", "passed"),
    ("pass_rate < 0.87", "cannot_tell"),
    ("pass_rate <= 0.74", "failed"),
    ("refusal_rate <= 0.13", "cannot_tell"),
    ("refusal_rate <= 0.14", "passed"),
    ("p95(level) <= 1", "cannot_tell"),  # no upper limit from so few cases
]


@pytest.mark.parametrize(("rule", "state"), BOUNDS)
def test_the_bound_decides_where_it_is_asked_for(rule: str, state: str) -> None:
    summary = summary_of({"rule": rule, "decide": "bound"})
    assert summary.gates[0].state == state
    assert summary.exit_code == {"passed": 0, "failed": 1, "cannot_tell": 3}[state]
    by_value = summary_of(rule)
    assert by_value.gates[0].state == ("failed" if state == "failed" else "passed")
    assert by_value.gates[0].scope == ""
    assert summary.gates[0].scope == "decide: bound"


def test_a_gate_that_cannot_tell_says_why() -> None:
    summary = summary_of({"rule": "pass_rate >= 0.7", "decide": "bound"})
    assert outcome(summary) == ("error", "1 of 3 gates cannot tell")
    why = "cannot tell: the value passes, its lower bound 0.55 does not"
    assert gate_note(summary.gates[0]) == f"pass_rate >= 0.7: {why}"
    upper = gate_of({"rule": "p95(level) <= 1", "decide": "bound"})
    assert gate_note(upper).endswith("its upper bound is unknown")


def test_a_failed_gate_beside_one_that_cannot_tell_is_named_too() -> None:
    summary = summary_of({"rule": "pass_rate >= 0.7", "decide": "bound"}, "mean(level) >= 0.9")
    assert (summary.exit_code, outcome(summary)[1]) == (3, "1 of 4 gates cannot tell; 1 of 4 gates failed")


def test_too_many_unmeasured_cells_are_named_whatever_the_bound_is() -> None:
    gate = {"rule": "pass_rate >= 0.5", "decide": "bound"}
    summary = summary_of(gate, measured=cells(failing=4, errors=4))
    assert (summary.gates[0].is_unreliable, summary.exit_code) == (True, 3)
    assert "4 of 24 cells were not measured" in gate_note(summary.gates[0])


def test_one_more_pass_never_turns_a_passed_bound() -> None:
    order = {"failed": 0, "cannot_tell": 1, "passed": 2}
    gate = {"rule": "pass_rate >= 0.6", "decide": "bound"}
    states = [order[gate_of(gate, measured=cells(failing=failing)).state] for failing in range(20, -1, -1)]
    assert states == sorted(states)
    assert set(states) == {0, 1, 2}


@pytest.mark.parametrize("rule", ["pass_rate == 1", "mean(level) != 0"])
def test_a_gate_without_a_side_has_no_bound(rule: str) -> None:
    with pytest.raises(ValidationError, match="has no bound to decide by: write >=, >, <= or <"):
        GateRule.model_validate({"rule": rule, "decide": "bound"})
    assert GateRule.model_validate({"rule": rule, "decide": "value"}).decide == "value"


def test_weighted_gates_are_decided_by_their_bound_too() -> None:
    weights = {"odd": 1, "even": 1}
    states = [
        gate_of({"rule": f"pass_rate >= {limit}", "weights": weights, "decide": "bound"}).state
        for limit in (0.6, 0.85, 0.95)
    ]
    assert states == ["passed", "cannot_tell", "failed"]
    assert gate_of({"rule": "pass_rate >= 0.85", "weights": weights}).repeat_fails is not None


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "under 1 of 1,000 runs"),
        (0.001, "1 of 1,000 runs"),
        (0.05, "1 of 20 runs"),
        (0.2, "2 of 10 runs"),
        (0.949, "9 of 10 runs"),
        (0.96, "nearly all runs"),
        (1.0, "nearly all runs"),
    ],
)
def test_a_probability_in_words(share: float, text: str) -> None:
    assert show_share_of_runs(share) == text


def test_an_unknown_repeat_is_not_shown() -> None:
    assert gate_repeat(gate_of("error_rate <= 0.1")) == ""


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.003, 0.42, " [0.003, 0.420]"),
        (-0.42, -0.004, " [-0.420, -0.004]"),
        (-0.003, 0.0, " [-0.003, 0.000]"),
        (0.0, 1.0, " [0.00, 1.00]"),
        (-1e-12, 0.126, " [0.00, 0.13]"),
        (1.2345, 40.0, " [1.23, 40]"),
        (0.003, 40.0, " [0.003, 40]"),
        (None, 0.5, ""),
        (0.5, None, ""),
    ],
)
def test_an_end_of_an_interval_shows_its_side_of_0(low: float | None, high: float | None, text: str) -> None:
    assert show_interval(low, high) == text


@pytest.mark.parametrize(
    ("low", "shown"),
    [
        (0.8996, "0.8996, 0.9900"),
        (0.9004, "0.9004, 0.9900"),
        (0.9, "0.90, 0.99"),
        (0.0004, "0.00, 0.99"),
        (None, "no limit, 0.99"),
    ],
)
def test_the_interval_of_a_gate_shows_the_side_of_its_threshold(low: float | None, shown: str) -> None:
    gate = GateFinding(
        rule="pass_rate >= 0.9", scope="", value=0.95, low=low, high=0.99, n=40, errors=0, state="cannot_tell"
    )
    assert gate_value(gate) == f"0.95 [{shown}]"
