"""Samples until the gates of a run are decided: what samples decide, and how its summary states it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from calibration.until import BOUND_GATE, MEAN_GATE, MOST, RATE_GATE, figures, simulated_run
from record_factory import UNMEASURED, record, run_of

from visioneval import Record, RunInfo
from visioneval.analysis.summary.summary import summarize
from visioneval.analysis.summary.until import decide_gates, next_samples, why_not_sampled
from visioneval.records.until import SampledGate, UntilDecided
from visioneval.report.text import gate_note

METRICS: dict[str, Any] = {
    "fine": {"type": "bool"},
    "level": {"type": "number", "range": [0, 10]},
    "free": {"type": "number"},
}
CASES: dict[str, dict[str, Any]] = {f"c{number}": {"tags": ["odd" if number % 2 else "even"]} for number in range(10)}
Value = Callable[[int, int], float | None]


def run_with(gate: Any, labels: tuple[str, ...] = ("m",)) -> RunInfo:
    return run_of(CASES, list(labels), [gate], METRICS)


def cells(samples: int, value: Value, labels: tuple[str, ...] = ("m",)) -> list[Record]:
    """A cell of each case, sample and model run, with its level in 0..1 by case and sample; ``None`` is an error."""
    created = []
    for number, (name, case) in enumerate(CASES.items()):
        for label in labels:
            for sample in range(samples):
                level = value(number, sample)
                facts: dict[str, Any] = {
                    "verdict": "PASS" if level == 1 else "FAIL",
                    "scores": {"fine": level == 1, "level": None if level is None else 10 * level},
                }
                if level is None:
                    facts = {"verdict": "ERROR", "status": "error", "error": UNMEASURED}
                at = {"test_id": name, "model_label": label, "sample_index": sample, "tags": case["tags"]}
                created.append(record(**at, **facts))
    return created


def decided(gate: Any, value: Value, samples: int = 8, most: int = 8, **changes: Any) -> tuple[int, str]:
    info = run_with(gate, **changes)
    labels = changes.get("labels", ("m",))
    case_samples = {(name, label): samples for name in CASES for label in labels}
    (found,) = decide_gates(info, cells(samples, value, labels), case_samples, most)
    return found.samples, found.outcome


def all_pass(_case: int, _sample: int) -> float:
    return 1


def half(case: int, sample: int) -> float:
    return float((case + sample) % 2)


def clear_half(case: int, _sample: int) -> float:
    return float(case % 2)


def two_fail(case: int, _sample: int) -> float:
    return float(case > 1)


@pytest.mark.parametrize(
    ("gate", "value", "expected"),
    [
        ("pass_rate >= 0.5", all_pass, (1, "decided")),
        ("pass_rate >= 0.9", all_pass, (5, "decided")),
        ("pass_rate >= 0.9", half, (2, "decided")),
        ("pass_rate >= 0.5", half, (8, "undecided")),
        ("pass_rate > 0.5", half, (8, "undecided")),
        ("rate(fine) <= 0.5", all_pass, (1, "decided")),
        ("rate(fine) <= 0.9", half, (2, "decided")),
        ("rate(fine) == 0", half, (1, "decided")),
        ("rate(fine) == 1", all_pass, (8, "undecided")),
        ("mean(level) >= 5", all_pass, (1, "decided")),
        ("mean(level) >= 9", all_pass, (5, "decided")),
        ("mean(level) <= 9", all_pass, (5, "decided")),
        ("mean(level) == 10", half, (1, "decided")),
        ("p50(level) >= 10", all_pass, (1, "decided")),
        ("p5(level) >= 10", all_pass, (8, "undecided")),
        ("p95(level) <= 9", all_pass, (1, "decided")),
        ("p50(level) >= 10", half, (8, "undecided")),
        ({"rule": "pass_rate >= 0.5", "weights": {"odd": 1, "even": 1}}, all_pass, (1, "decided")),
        ({"rule": "pass_rate >= 0.5", "weights": {"odd": 9, "even": 1}}, clear_half, (5, "decided")),
        ({"rule": "pass_rate >= 0.8", "tags": ["odd"]}, clear_half, (4, "decided")),
    ],
)
def test_the_first_look_that_decides_counts(gate: Any, value: Value, expected: tuple[int, str]) -> None:
    assert decided(gate, value) == expected


@pytest.mark.parametrize(
    ("value", "samples", "expected"),
    [
        (all_pass, 8, (1, "decided")),
        (half, 1, (1, "between_cases")),
        (lambda case, sample: float(case != sample), 1, (1, "open")),
        (two_fail, 8, (2, "between_cases")),
        (lambda case, sample: float(case < 2 and sample < 2), 8, (3, "decided")),
    ],
)
def test_a_bound_is_decided_over_cases(value: Value, samples: int, expected: tuple[int, str]) -> None:
    rule = {"rule": "pass_rate >= 0.5", "decide": "bound"}
    assert decided(rule, value, samples) == expected


def test_more_model_runs_are_more_samples_of_a_case() -> None:
    assert decided("pass_rate >= 0.9", all_pass, labels=("m", "n")) == (3, "decided")


def test_further_samples_are_of_the_cases_of_open_gates() -> None:
    info = run_with({"rule": "pass_rate >= 0.9", "tags": ["odd"]})
    case_samples = {("c0", "m"): 3}
    gates = decide_gates(info, cells(3, all_pass), case_samples, 8)
    assert gates[0] == SampledGate(rule="pass_rate >= 0.9", samples=1, outcome="open")
    assert next_samples(info, gates, case_samples) == {("c0", "m"): 3, **{(f"c{at}", "m"): 2 for at in range(1, 10, 2)}}
    closed = [gates[0].model_copy(update={"outcome": "decided"})]
    assert next_samples(info, closed, case_samples) == case_samples


@pytest.mark.parametrize(("errors", "outcome"), [(0, "open"), (1, "unmeasured")])
def test_a_gate_that_leaves_out_too_many_cells_gets_no_more(errors: int, outcome: str) -> None:
    def value(case: int, _sample: int) -> float | None:
        return None if case < errors else 1

    assert decided("pass_rate >= 0.9", value, 1) == (1, outcome)


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        ("error_rate <= 0.1", "it is about errors"),
        ("separation(level) >= 1", "a separation is not tested by samples"),
        ("mean(free) >= 1", "its metric has no range"),
        ("pass_rate == 0.5", "no limit on one side"),
        ({"rule": "p5(level) >= 1", "decide": "bound"}, "the bound of a quantile is not tested by samples"),
        ({"rule": "pass_rate >= 0.5", "cases": ["gone"]}, "no case is in its scope"),
        ("p5(free) >= 1", ""),
        ("mean(level) == 10", ""),
    ],
)
def test_gates_that_samples_do_not_decide(gate: Any, why: str) -> None:
    info = run_with(gate)
    assert why_not_sampled(info.suite.gates[0], info) == why


@pytest.mark.parametrize(
    ("rule", "outcome", "value", "state", "text"),
    [
        ("pass_rate >= 0.5", "decided", all_pass, "passed", "decided with 2 samples of each case"),
        ("pass_rate >= 0.5", "open", all_pass, "cannot_tell", "not decided with 2 samples of each case, of at most 8"),
        ("pass_rate >= 0.9", "open", half, "cannot_tell", "not decided with 2 samples of each case, of at most 8"),
        ("pass_rate >= 0.9", "undecided", half, "failed", "not decided with 2 samples of each case, so their value"),
        ("pass_rate >= 0.5", "undecided", half, "passed", "not decided with 2 samples of each case, so their value"),
        ("pass_rate >= 0.5", "not_sampled", half, "passed", ""),
    ],
)
def test_the_summary_counts_the_samples_that_decided(
    rule: str, outcome: Any, value: Value, state: str, text: str
) -> None:
    """Further samples, which all fail, do not count."""
    gate = SampledGate(rule=rule, samples=2, outcome=outcome)
    until = UntilDecided(max_samples=8, most_cells=80, gates=(gate,))
    info = run_with(rule).model_copy(update={"until_decided": until, "planned_cells": 30})
    finding = summarize(info, cells(3, lambda case, sample: value(case, sample) if sample < 2 else 0.0)).gates[0]
    assert (finding.n, finding.samples, finding.state) == (20, 2, state)
    assert finding.sampling.startswith(text)
    assert (text in gate_note(finding)) is (state == "cannot_tell" or not text)


@pytest.mark.parametrize("outcome", ["undecided", "between_cases"])
def test_a_bound_that_passes_only_without_further_looks_cannot_tell(outcome: Any) -> None:
    rule = {"rule": "pass_rate >= 0.5", "decide": "bound"}
    gate = SampledGate(rule="pass_rate >= 0.5", samples=2, outcome=outcome)
    until = UntilDecided(max_samples=8, most_cells=80, gates=(gate,))
    info = run_with(rule).model_copy(update={"until_decided": until, "planned_cells": 20})
    summary = summarize(info, cells(2, all_pass))
    assert (summary.gates[0].state, summary.exit_code) == ("cannot_tell", 3)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "passes"), [(0.7, False), (0.9, True)])
def test_fewer_samples_have_the_outcome_of_all(rate: float, passes: bool) -> None:
    random = np.random.default_rng(5)
    runs = (random.random((60, 30, MOST)) < rate).astype(float)
    for gate in (RATE_GATE, MEAN_GATE):
        shares = {row.figure: row.value for row in figures("", simulated_run(30, gate), runs, is_true=passes)}
        assert shares["wrong"] <= 0.025
        assert shares["passes"] == pytest.approx(float(passes), abs=0.05)
        assert shares["samples"] < 5


@pytest.mark.slow
def test_a_bound_over_cases_keeps_its_error_rate() -> None:
    random = np.random.default_rng(6)
    suites = random.beta(0.8, 0.2, (200, 30, 1))
    runs = (random.random((200, 30, MOST)) < suites).astype(float)
    shares = {row.figure: row.value for row in figures("", simulated_run(30, BOUND_GATE), runs, is_true=False)}
    assert shares["passes"] <= 0.05
    assert shares["samples"] < MOST
