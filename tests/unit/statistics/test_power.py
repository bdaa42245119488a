"""Detectable differences, compared with statsmodels and with simulation."""

from __future__ import annotations

import numpy as np
import pytest

from visioneval.analysis.stats.power import detectable_mean, detectable_rate


def test_mean_difference_matches_the_power_of_the_t_test() -> None:
    from statsmodels.stats.power import TTestPower

    effect = TTestPower().solve_power(nobs=50, alpha=0.05, power=0.8)
    assert detectable_mean(50, 4.0) == pytest.approx(effect * 2, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("cases", [20, 200])
@pytest.mark.parametrize("samples", [1, 8])
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_rate_difference_has_the_requested_power(cases: int, samples: int, correlation: float) -> None:
    """Every case loses the same share of what passed; the test is written out with NumPy."""

    from scipy import stats

    rate, worlds = 0.8, 3000
    variance = 2 * rate * (1 - rate) * (1 - correlation) / samples
    difference = detectable_rate(cases, rate, variance, samples)
    assert difference is not None
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
    assert size is not None
    assert 0.1 < size < 0.2
