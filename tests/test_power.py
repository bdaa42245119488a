"""Detectable differences, compared with statsmodels and simulation."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.stats.power import NormalIndPower

from visioneval.analysis.stats.basic import mcnemar_exact
from visioneval.analysis.stats.power import detectable_mean_difference, detectable_rate_difference


@pytest.mark.parametrize("n", [12, 30, 80])
@pytest.mark.parametrize("discordant", [0.0, 0.3])
def test_exact_rate_difference_has_the_requested_power(n: int, discordant: float) -> None:
    difference = detectable_rate_difference(n, discordant)
    assert difference is not None
    share = max(discordant, difference)
    odds = [(share + difference) / 2, (share - difference) / 2, 1 - share]
    worlds = np.random.default_rng(0).multinomial(n, odds, size=4000)
    seen = np.mean([mcnemar_exact(int(counts[0]), int(counts[1])) <= 0.05 for counts in worlds])
    assert seen == pytest.approx(0.8, abs=0.03)


def test_approximation_continues_the_exact_values() -> None:
    counted, approximate = detectable_rate_difference(100, 0.3), detectable_rate_difference(101, 0.3)
    assert counted is not None
    assert approximate is not None
    assert approximate == pytest.approx(counted, rel=0.1)


def test_rate_difference_matches_connors_sample_size() -> None:
    """n = (z_a sqrt(p) + z_b sqrt(p - d^2))^2 / d^2, solved by hand for p = 0.3, d = 0.1, 90 % power: 311.4."""
    assert detectable_rate_difference(312, 0.3, power=0.9) == pytest.approx(0.1, abs=2e-4)


def test_mean_difference_matches_the_normal_test() -> None:
    effect = NormalIndPower(ddof=0).solve_power(nobs1=50, alpha=0.05, power=0.8, ratio=0)
    result = detectable_mean_difference(50, 2.0)
    assert result == pytest.approx(effect * 2 * np.sqrt(np.pi / 3), rel=1e-4)


def test_too_few_cases_detect_nothing() -> None:
    assert detectable_rate_difference(5) is None
    assert detectable_rate_difference(6) is not None
    assert detectable_rate_difference(0) is None
    assert detectable_mean_difference(5, 1.0) is None
    assert detectable_mean_difference(50, 0.0) is None
