"""The gate ``regressed`` over many simulated comparisons: equal runs seldom fail, and large drops are found."""

from __future__ import annotations

import pytest
from calibration.metrics import AtCeiling, Worse, Yes, size
from calibration.metrics import simulate as simulate_metrics
from calibration.regression import CONFIRM, SHOWN, Design, Drop, Population, simulate

from visioneval import ExitCode

EQUAL, LARGE = Drop(), Drop(20)


@pytest.fixture(autouse=True)
def fewer_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough of them for a level of .04, which the metrics of these simulations share."""
    monkeypatch.setattr("visioneval.analysis.stats.tests._PERMUTATIONS", 2000)


@pytest.mark.slow
@pytest.mark.parametrize("population", SHOWN, ids=str)
def test_equal_runs_seldom_fail(population: Population) -> None:
    """At most 6 of 120 are expected at 5 %, and about 2 at the size of these suites."""
    results = simulate(Design(30, 1, population), [EQUAL], 120)
    for (runs, _), tally in results.items():
        assert tally.plain[ExitCode.GATE_FAILED] <= 6, f"{runs} runs"
        assert tally.confirmed[ExitCode.GATE_FAILED] <= 6, f"{runs} runs, {CONFIRM} new samples"
        assert tally.plain[ExitCode.INCOMPLETE] == 0  # 30 cases can show a regression


@pytest.mark.slow
def test_large_drops_are_found() -> None:
    """Several runs of a baseline and new samples find more."""
    results = simulate(Design(30, 1, SHOWN[0]), [LARGE], 100)
    one, five = results[1, LARGE], results[5, LARGE]
    assert one.before < one.plain[ExitCode.GATE_FAILED] + 10
    assert one.plain[ExitCode.GATE_FAILED] + 10 < one.confirmed[ExitCode.GATE_FAILED]
    assert one.plain[ExitCode.GATE_FAILED] < five.plain[ExitCode.GATE_FAILED]
    assert five.confirmed[ExitCode.GATE_FAILED] > 75


@pytest.mark.slow
def test_new_samples_of_metrics_fail_equal_runs_no_more_often_and_find_more() -> None:
    """5 of 100 are expected at 5 %; 15 % fewer yeses are found in 50 and 63 % of comparisons."""
    equal = {row.figure: row.value for row in simulate_metrics(30, 1, Worse(), 100)}
    fewer = {row.figure: row.value for row in simulate_metrics(30, 3, Worse(share=0.15), 60)}
    assert equal["regressed"] <= 0.075
    assert equal["regressed, confirm"] <= 0.075
    assert equal["quality:0.1, confirm"] < equal["quality:0.1"]
    assert fewer["regressed, confirm"] > fewer["regressed"] + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("population", [Yes(0.95, 0.05), AtCeiling()], ids=str)
def test_new_samples_of_metrics_at_their_ceiling_fail_equal_runs_no_more_often(population: Yes | AtCeiling) -> None:
    """2.5 of 100 are expected at 2.5 %; by a t test over cases, the yeses failed 6.5."""
    assert size(population, (30, 1), 1, 3, 100).value <= 0.05
