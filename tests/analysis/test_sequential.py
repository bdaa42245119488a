"""Tests that may be looked at after every sample: e-values, and the chance that further samples change an outcome."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb, exp, inf

import pytest

from visioneval.analysis.stats.sequential import (
    E_ALPHA,
    chance_of_change,
    is_above,
    log_evidence_above,
)

BETS = [Fraction(number, 100) for number in (3, 6, 12, 25, 50, 75, 95)]


def exact(values: list[Fraction], limit: Fraction) -> Fraction:
    """The mean over the bets of the products of what they win and lose, in fractions."""
    total = Fraction(0)
    for bet in BETS:
        won = Fraction(1)
        for value in values:
            won *= 1 + bet * (value / limit - 1)
        total += won
    return total / len(BETS)


@pytest.mark.parametrize("values", [[0, 1, 1], [1] * 30, [0] * 9, [Fraction(1, 4), Fraction(3, 2), Fraction(1, 2)]])
@pytest.mark.parametrize("limit", [Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
def test_the_e_value_is_the_mean_of_all_bets(values: list[Fraction], limit: Fraction) -> None:
    found = exp(log_evidence_above(map(float, values), float(limit)))
    assert found == pytest.approx(float(exact(list(map(Fraction, values)), limit)))


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.1, 0.9), (0.0, 1.0), (0.4, 0.5)])
def test_it_rejects_too_seldom_over_all_looks_whatever_the_cases_are(rates: tuple[float, ...]) -> None:
    """All outcomes of two cases with seven samples each, of which the mean rate is at most the limit."""
    crossed = mean = 0.0
    for outcome in product(product((0.0, 1.0), repeat=len(rates)), repeat=7):
        chance = 1.0
        for look in outcome:
            for value, rate in zip(look, rates, strict=True):
                chance *= rate if value else 1 - rate
        if not chance:
            continue
        flat = [value for look in outcome for value in look]
        mean += chance * exp(log_evidence_above(flat, 0.5))
        crossed += chance * any(is_above(flat[: 2 * number], 0.5) for number in range(1, 8))
    assert mean <= 1 + 1e-9
    assert crossed <= E_ALPHA


def test_enough_values_show_a_mean_above_the_limit_and_none_below() -> None:
    assert is_above([1.0] * 60, 0.9)
    assert not is_above([1.0] * 20, 0.9)
    assert not is_above([1.0] * 500 + [0.0] * 500, 0.5)
    assert not is_above([0.0] * 500, 0.5)


def test_a_limit_at_the_end_of_the_range() -> None:
    assert log_evidence_above([0.0, 0.0], 0.0) == 0
    assert log_evidence_above([0.0, 0.1], 0.0) == inf
    assert not is_above([1.0] * 1000, 1.0)


@pytest.mark.parametrize(("passed", "seen", "left"), [(9, 10, 10), (9, 10, 70), (30, 30, 30), (5, 10, 10)])
def test_the_chance_of_another_outcome_is_binomial_where_all_variance_is_noise(
    passed: int, seen: int, left: int
) -> None:
    limit = 0.8

    def outcome(mean: float) -> bool:
        return mean >= limit - 1e-9

    now = outcome(passed / seen)
    expected = sum(
        comb(left, count) * limit**count * (1 - limit) ** (left - count)
        for count in range(left + 1)
        if outcome((passed + count) / (seen + left)) != now
    )
    found = chance_of_change(passed, seen, left, limit, limit * (1 - limit), outcome)
    assert found == pytest.approx(expected, abs=1e-9)


def test_less_noise_changes_an_outcome_less_often() -> None:
    def chance(within: float) -> float:
        return chance_of_change(27, 30, 30, 0.8, within, lambda mean: mean >= 0.8)

    assert chance(0.16) > chance(0.08) > chance(0.02)
