"""Wilcoxon's signed-rank test, compared with SciPy, full enumeration and a published example."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, wilcoxon

from visioneval.analysis.stats.basic import mcnemar_exact
from visioneval.analysis.stats.signed_rank import signed_rank

# C. Darwin's heights of crossed less self-fertilised plants, in eighths of an inch, as R. A. Fisher prints them in
# "The Design of Experiments" (1935), chapter III
DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def test_published_example() -> None:
    assert signed_rank(DARWIN) == pytest.approx(0.04126, abs=5e-6)
    assert signed_rank(DARWIN) == pytest.approx(wilcoxon(DARWIN, method="exact").pvalue, rel=1e-12)


@given(st.integers(1, 60), st.integers(0, 1000))
def test_exact_p_value_matches_scipy(n: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(0.3, 1, n)
    assert signed_rank(values) == pytest.approx(wilcoxon(values, method="exact").pvalue, rel=1e-9)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=10))
def test_exact_p_value_with_ties_and_zeros_matches_enumeration(values: list[int]) -> None:
    nonzero = np.array([value for value in values if value])
    ranks = rankdata(np.abs(nonzero)) if len(nonzero) else np.zeros(0)
    seen = abs(ranks[nonzero > 0].sum() - ranks.sum() / 2) if len(nonzero) else 0
    sums = [
        abs(sum(rank for rank, up in zip(ranks, signs, strict=True) if up) - ranks.sum() / 2)
        for signs in product((0, 1), repeat=len(nonzero))
    ]
    assert signed_rank(values) == pytest.approx(np.mean([value_sum >= seen - 1e-9 for value_sum in sums]))


def test_many_differences_use_the_normal_approximation() -> None:
    values = np.random.default_rng(1).integers(-5, 6, 800) + np.random.default_rng(2).integers(0, 2, 800)
    expected = wilcoxon(values, zero_method="wilcox", method="approx").pvalue
    assert signed_rank(values) == pytest.approx(expected, rel=1e-9)


def test_equal_sizes_match_mcnemar() -> None:
    assert signed_rank([1] * 9 + [-1] * 2 + [0] * 30) == pytest.approx(mcnemar_exact(9, 2))


def test_rounding_preserves_ties() -> None:
    assert signed_rank([0.3 - 0.2, 0.2 - 0.1, -(0.9 - 0.8)]) == signed_rank([1, 1, -1])


def test_no_difference_has_p_value_one() -> None:
    assert signed_rank([]) == 1
    assert signed_rank([0.0, 0.0]) == 1
