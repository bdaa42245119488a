"""Detectable differences, and how often gates fail: oracles and exact sums."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from calibration import gates
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from visioneval.analysis.stats.variance import (
    cells_of,
    counts_at_rate,
    detectable_mean,
    detectable_rate,
    failing_share,
    repeated_above,
    repeated_counts,
)
from visioneval.analysis.summary.gates import repeat_fails
from visioneval.rules import parse_gate


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.92, 1.0, 0.0])
def test_equal_cases_are_binomial(rate: float) -> None:
    chances = dict(counts_at_rate(30, rate, rate * (1 - rate)))
    expected = [comb(30, k) * rate**k * (1 - rate) ** (30 - k) for k in range(31)]
    assert [chances.get(k, 0.0) for k in range(31)] == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 400), st.floats(0.01, 0.99), st.floats(0, 1))
@settings(max_examples=50)
def test_less_variance_within_cases_keeps_the_mean(cells: int, rate: float, share: float) -> None:
    chances = dict(counts_at_rate(cells, rate, share * rate * (1 - rate)))
    assert sum(chances.values()) == pytest.approx(1)
    assert min(chances) >= 0
    assert max(chances) <= cells
    mean = sum(count * chance for count, chance in chances.items())
    assert mean == pytest.approx(cells * rate, abs=0.6)


def test_the_probability_is_that_of_cases_whose_rates_differ() -> None:
    rows = list(gates.plans(300))
    stated, fails = ({row.design: row.value for row in rows if row.figure == figure} for figure in ("stated", "fails"))
    large = [design for design in stated if not design.startswith("10 cases")]
    assert [stated[design] for design in large] == pytest.approx([fails[design] for design in large], abs=0.09)


def by_hand(passed: int, cells: int) -> list[float]:
    """The beta-binomial numbers of passes after ``passed`` of ``cells``, with half a cell more of each outcome."""
    a, b = passed + 0.5, cells - passed + 0.5
    weights = [1.0]
    for k in range(cells):
        weights.append(weights[-1] * (cells - k) * (a + k) / ((k + 1) * (b + cells - k - 1)))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("passed", [0, 1, 15, 29, 30])
def test_with_one_sample_per_case_all_variance_is_noise(passed: int) -> None:
    observed = cells_of([[1.0]] * passed + [[0.0]] * (30 - passed), is_rate=True)
    assert observed.within == observed.variance
    chances = dict(repeated_counts(observed))
    assert [chances.get(k, 0.0) for k in range(31)] == pytest.approx(by_hand(passed, 30), abs=1e-9)


def fails(cases: list[list[float]], gate: str = "pass_rate >= 0.9") -> float:
    values = [value for case in cases for value in case]
    share = repeat_fails(parse_gate(gate), sum(values) / len(values), [(1.0, cases)], is_rate=True)
    assert share is not None
    return share


def test_cases_that_always_fail_are_less_noise_than_samples_that_fail() -> None:
    whole = [[1.0] * 3] * 28 + [[0.0] * 3] * 2
    spread = [[1.0] * 3] * 24 + [[1.0, 1.0, 0.0]] * 6
    assert fails(whole) < 0.7 * fails(spread)


def test_nothing_is_certain_at_the_ends() -> None:
    assert fails([[1.0]]) == pytest.approx(0.25)
    assert 0 < fails([[1.0]] * 30) < 0.05
    assert fails([[1.0]] * 30, "pass_rate == 1") == pytest.approx(1 - by_hand(30, 30)[30])
    assert 0.95 < fails([[0.0]] * 30) <= 1
    assert fails([[1.0] * 3] * 30, "pass_rate >= 0.9") > 0


def test_a_better_value_fails_less_often_and_a_limit_is_the_mirror_of_a_minimum() -> None:
    shares = [fails([[1.0]] * passed + [[0.0]] * (40 - passed)) for passed in range(41)]
    assert shares == sorted(shares, reverse=True)
    mirrored = [fails([[0.0]] * passed + [[1.0]] * (40 - passed), "refusal_rate <= 0.1") for passed in range(41)]
    assert mirrored == pytest.approx(shares)


def test_a_mean_is_predicted_by_its_samples() -> None:
    varying, steady = [[3.0, 5.0]] * 10, [[4.0, 4.0]] * 5 + [[3.0, 3.0]] * 5
    low, high = parse_gate("mean(m) >= 3.9"), parse_gate("mean(m) <= 3.9")
    above = repeat_fails(low, 4.0, [(1.0, varying)], is_rate=False)
    below = repeat_fails(high, 4.0, [(1.0, varying)], is_rate=False)
    assert above + below == pytest.approx(1)
    assert above == pytest.approx(float(student.sf(0.1 / (2 * (20 / 19) / 20) ** 0.5, 19)))
    assert cells_of(steady, is_rate=False).within < cells_of(steady, is_rate=False).variance / 4
    assert repeat_fails(low, 4.0, [(1.0, [[4.0], [4.0]])], is_rate=False) is None, "no noise is known"
    assert repeat_fails(low, 4.0, [(1.0, [[4.0]])], is_rate=False) is None
    assert repeat_fails(parse_gate("mean(m) == 4"), 4.0, [(1.0, varying)], is_rate=False) is None
    assert repeat_fails(parse_gate("error_rate <= 0.1"), 0.0, [(1.0, [[0.0]] * 9)], is_rate=True) is None


def test_the_shares_of_a_weighted_mean_count() -> None:
    noisy, steady = cells_of([[0.0], [1.0]] * 10, is_rate=True), cells_of([[1.0]] * 20, is_rate=True)
    mostly_noisy = repeated_above(0.8, 0.7, [(0.9, noisy), (0.1, steady)])
    mostly_steady = repeated_above(0.8, 0.7, [(0.1, noisy), (0.9, steady)])
    assert mostly_noisy < mostly_steady


def test_a_quantile_fails_where_too_few_cells_are_on_its_right_side() -> None:
    random = np.random.default_rng(1)
    gate = parse_gate("p90(m) <= 2.4")
    stated, failed = [], []
    for _ in range(200):
        first, second = random.lognormal(0.0, 0.65, (2, 60))
        share = repeat_fails(gate, 0.0, [(1.0, [[value] for value in first.tolist()])], is_rate=False)
        stated.append(share)
        failed.append(float(np.quantile(second, 0.9)) > 2.4)
    assert np.mean(stated) == pytest.approx(np.mean(failed), abs=0.12)


@pytest.mark.slow
def test_a_repeated_run_fails_no_more_often_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.gates.SIZES", ((30, 1), (20, 8)))
    rows = list(gates.repeats(700))
    for stated, failed in zip(rows[::2], rows[1::2], strict=True):
        if stated.value < 0.3:
            assert failed.value < stated.value + 0.1, stated.design


def test_shares_of_all_numbers_add_up() -> None:
    chances = list(repeated_counts(cells_of([[1.0, 0.0]] * 12, is_rate=True)))
    assert failing_share(chances, lambda _: False) == pytest.approx(1)
    assert failing_share(chances, lambda _: True) == 0


def test_mean_difference_matches_the_power_of_the_t_test() -> None:
    from statsmodels.stats.power import TTestPower

    effect = TTestPower().solve_power(nobs=50, alpha=0.05, power=0.8)
    assert detectable_mean(50, 4.0) == pytest.approx(effect * 2, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "samples", "correlation"), [(20, 1, 0.0), (20, 8, 0.8), (200, 1, 0.8), (200, 8, 0.0)]
)
def test_rate_difference_has_the_requested_power(cases: int, samples: int, correlation: float) -> None:
    """Every case loses the same share of what passed; the test is written out with NumPy."""

    from scipy import stats

    rate, worlds = 0.8, 3000
    variance = 2 * rate * (1 - rate) * (1 - correlation) / samples
    difference = detectable_rate(cases, rate, variance, samples)
    random = np.random.default_rng(cases + samples)
    spread = (1 - correlation) / correlation if correlation else 1e9
    odds = random.beta(rate * spread, (1 - rate) * spread, (worlds, cases))
    before = random.binomial(samples, odds) / samples
    changes = random.binomial(samples, odds * (1 - difference / rate)) / samples - before
    squares, differing = np.square(changes).sum(axis=1), np.maximum(1, (changes != 0).sum(axis=1))
    mean = changes.sum(axis=1) / (cases + 1)
    error = np.sqrt(((squares + squares / differing) / (cases + 1) - mean**2) / (cases + 1))
    power = np.mean(mean + stats.t.ppf(0.975, cases - 1) * error < 0)
    assert power == pytest.approx(0.8, abs=0.12)


def test_more_cases_samples_or_a_laxer_level_detect_less() -> None:
    sizes = [
        detectable_rate(50, 0.8, 0.32, 1, alpha=0.01),
        detectable_rate(50, 0.8, 0.32, 1),
        detectable_rate(50, 0.8, 0.11, 3),
        detectable_rate(200, 0.8, 0.11, 3),
    ]
    assert None not in sizes
    assert sizes == sorted(sizes, key=lambda size: -(size or 0))


def test_no_difference_larger_than_possible_is_stated() -> None:
    """From a rate of 0.5, no run can lose more than 0.5."""
    assert detectable_rate(10, 0.5, 0.5, 1) is None


def test_too_few_cases_detect_nothing() -> None:
    assert detectable_rate(1, 0.8, 0.3, 1) is None
    assert detectable_rate(3, 0.8, 0.3, 1) is None
    assert detectable_mean(1, 1.0) is None
    assert detectable_mean(50, 0.0) is None


def test_a_run_in_which_everything_passed_still_has_a_detectable_difference() -> None:
    size = detectable_rate(48, 1.0, 0.0, 1)
    assert 0.1 < size < 0.2
