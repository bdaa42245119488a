"""Rank correlations, compared with SciPy."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.analysis.stats.correlation import kendall, pearson, spearman


@given(st.lists(st.tuples(st.integers(-4, 4), st.floats(0, 1).map(lambda x: round(x, 1))), min_size=2, max_size=60))
def test_correlations_with_ties_match_scipy(rows: list[tuple[int, float]]) -> None:
    from scipy import stats

    first, second = (np.asarray(column, dtype=float) for column in zip(*rows, strict=True))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert isnan(spearman(first, second))
        assert isnan(kendall(first, second))
        assert isnan(pearson(first, second))
        return
    assert pearson(first, second) == pytest.approx(stats.pearsonr(first, second).statistic, abs=1e-9)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert kendall(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


def test_correlations_of_many_rows_match_scipy() -> None:
    from scipy import stats

    random = np.random.default_rng(1)
    first = random.normal(size=20_000)
    second = np.round(first + random.normal(size=20_000), 1)
    assert kendall(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic)
    assert pearson(first * 1e150, second) == pytest.approx(stats.pearsonr(first, second).statistic), "no overflow"


def test_correlations_of_too_few_rows_are_nan() -> None:
    for rows in ([], [1.0]):
        assert isnan(spearman(rows, rows))
        assert isnan(kendall(rows, rows))
        assert isnan(pearson(rows, rows))
    assert pearson([1, 2, 4], [-1, -2, -4]) == -1
    assert (spearman([1, 2], [2, 1]), kendall([1, 2], [2, 1])) == (-1, -1)
