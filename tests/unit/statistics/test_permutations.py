"""The permutation test of scores within cases, against all permutations."""

from __future__ import annotations

from itertools import combinations, product
from math import nan
from statistics import fmean

import pytest

from visioneval.analysis.stats.tests import Samples, lowest_p, mean_change, permutation_test


def one_turn(*cases: tuple[list[float], list[float]]) -> list[Samples]:
    """Cases of one turn that count the same."""
    return [Samples([[x] for x in a], [[x] for x in b], [1 / len(cases)]) for a, b in cases]


def exact_p(*cases: tuple[list[float], list[float]]) -> float:
    """The mid-p over all ways to deal the samples."""
    by_case = []
    for a, b in cases:
        scores = [*a, *b]
        chosen = [set(rows) for rows in combinations(range(len(scores)), len(a))]
        by_case.append(
            [
                fmean(x for at, x in enumerate(scores) if at not in rows) - fmean(scores[at] for at in rows)
                for rows in chosen
            ]
        )
    changes = [sum(parts) for parts in product(*by_case)]
    observed = sum(fmean(b) - fmean(a) for a, b in cases)
    same = sum(abs(change - observed) < 1e-9 for change in changes)
    return (sum(change < observed - 1e-9 for change in changes) + same / 2) / len(changes)


@pytest.mark.parametrize(
    "cases",
    [
        [([5], [2, 2]), ([5], [2, 4]), ([4], [4, 5])],
        [([5, 4, 4], [2, 2]), ([5, 3], [2, 4, 1, 3])],
        [([0.1, 0.2, 0.3], [0.3, 0.1, 0.1, 0.7]), ([1], [1, 1, 1]), ([0], [1, 0, 0, 0])],
        [([5], [5, 5, 2])] * 5,
    ],
)
def test_the_p_value_is_that_of_all_permutations(cases: list[tuple[list[float], list[float]]]) -> None:
    p, variance = permutation_test(one_turn(*cases))
    assert p == pytest.approx(exact_p(*cases), abs=0.015)  # 10,000 are drawn: three standard errors
    assert variance > 0
    assert permutation_test(one_turn(*cases)) == (p, variance)


def test_it_is_about_lower_values_only() -> None:
    lower, higher = (permutation_test(one_turn(*[([5], [new] * 3)] * 4)).p for new in (2, 8))
    assert lower < 0.01
    assert higher > 0.99
    assert permutation_test(one_turn(([5], [5, 5]))) == (0.5, 0)


def test_the_lowest_p_is_that_of_cases_that_all_fall() -> None:
    cases = one_turn(*[([5], [2, 2])] * 3)
    assert lowest_p(cases) == pytest.approx(1 / 54)
    assert permutation_test(cases).p == pytest.approx(1 / 54, abs=0.004)


def test_turns_are_dealt_together() -> None:
    """Two turns that always agree say no more than one."""
    single = [Samples([[5]], [[2], [2], [2]], [0.25])] * 4
    double = [Samples([[5, 5]], [[2, 2], [2, 2], [2, 2]], [0.125, 0.125])] * 4
    assert mean_change(double) == mean_change(single) == -3
    assert permutation_test(double) == permutation_test(single)


def test_a_sample_without_a_turn_counts_in_the_others() -> None:
    cases = [Samples([[5, nan], [3, 4]], [[2, 2], [nan, 4]], [0.5, 0.5])]
    assert mean_change(cases) == pytest.approx((2 - 4 + 3 - 4) / 2)
    assert 0 < permutation_test(cases).p < 0.5


def test_many_tests_get_more_permutations() -> None:
    """So that the p-value can be below their shared level."""
    cases = one_turn(*[([5, 5, 5], [1, 1, 1, 1])] * 6)
    assert permutation_test(cases).p == pytest.approx(0.5 / 10_000)
    assert permutation_test(cases, 40).p == pytest.approx(0.5 / 40_000)


def test_rounding_is_no_change() -> None:
    assert mean_change(one_turn(([0.1, 0.7, 0.3], [0.1, 0.3, 0.7] * 2))) == 0
