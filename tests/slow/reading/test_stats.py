"""Rates and paired tests against published values, SciPy and statsmodels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.analysis.stats.basic import wilson_interval
from visioneval.analysis.stats.clusters import auroc
from visioneval.analysis.stats.tests import holm

# R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17 (1998), table I,
# method 3 (score without continuity correction)
NEWCOMBE = [
    (81, 263, 0.2553, 0.3662),
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0000, 0.1611),
    (1, 29, 0.0061, 0.1718),
]


@pytest.mark.parametrize(("successes", "n", "low", "high"), NEWCOMBE)
def test_wilson_interval_matches_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95]))
def test_wilson_interval_matches_scipy(pair: tuple[int, int], confidence: float) -> None:
    from scipy.stats import binomtest

    successes, n = pair
    expected = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    low, high = wilson_interval(successes, n, confidence)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= low <= successes / n <= high <= 1


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (-1, 3), (4, 3)])
def test_wilson_interval_rejects_invalid_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"not a rate: {successes} of {n}"):
        wilson_interval(successes, n)


@pytest.mark.parametrize("p_values", [[0.3], [0.01, 0.04, 0.03], [0.5, 0.5, 0.001, 0.9, 0.0, 1.0, 0.02]])
def test_holm_matches_statsmodels(p_values: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_the_largest_scaled_p_value_so_far(p_values: list[float]) -> None:
    ranked = sorted(p_values)
    scaled = [p * (len(ranked) - at) for at, p in enumerate(ranked)]
    expected = {p: min(1.0, max(scaled[: at + 1])) for at, p in enumerate(ranked)}
    assert holm(p_values) == pytest.approx([expected[p] for p in p_values])


def test_holm_of_an_empty_list() -> None:
    assert holm([]) == []


def test_auroc_counts_ties_half() -> None:
    assert auroc([1, 1], [0, 0.5]) == 1
    assert auroc([0, 0], [1]) == 0
    assert auroc([1, 0], [1, 0]) == 0.5
    assert auroc([2, 1, 1], [1, 0]) == pytest.approx(5 / 6)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_auroc_matches_scipy(above: list[int], below: list[int]) -> None:
    from scipy.stats import mannwhitneyu

    expected = mannwhitneyu(above, below, method="asymptotic").statistic / (len(above) * len(below))
    assert auroc(above, below) == pytest.approx(expected, abs=1e-12)


def test_auroc_needs_values_on_both_sides() -> None:
    with pytest.raises(ValueError, match="AUROC needs values"):
        auroc([], [1.0])
