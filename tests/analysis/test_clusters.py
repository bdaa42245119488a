"""Intervals and tests over cases, against statsmodels and SciPy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.intervals import (
    auroc_interval,
    case_sums,
    mean_interval,
    rate_interval,
    rate_separation_interval,
    separation_interval,
)
from visioneval.analysis.stats.tests import paired_test

RANDOM = np.random.default_rng(7)


def sums_of(values: np.ndarray) -> list[tuple[float, int]]:
    return [(float(row.sum()), len(row)) for row in values]


def apart(values: Iterable[float], first: int = 0) -> dict[int, list[float]]:
    """Cases with one value each, numbered from ``first``."""
    return {case: [float(value)] for case, value in enumerate(values, first)}


def ends(interval: Interval | None) -> tuple[float, float]:
    return interval.low, interval.high


@pytest.mark.parametrize(("passed", "cases"), [(0, 5), (3, 7), (29, 30), (120, 200)])
def test_one_cell_per_case_is_wilsons_interval(passed: int, cases: int) -> None:
    from statsmodels.stats.proportion import proportion_confint

    interval = rate_interval([(float(case < passed), 1) for case in range(cases)])
    assert ends(interval) == pytest.approx(proportion_confint(passed, cases, method="wilson"), abs=1e-12)


def test_samples_that_always_agree_count_once() -> None:
    """The effective number of cells is then the number of cases (minus one, as it is estimated)."""

    from scipy import stats

    interval = rate_interval([(8.0 * (case < 12), 8) for case in range(20)])
    cases = 20
    t, n = stats.t.ppf(0.975, cases - 1), (cases - 1)
    middle, half = (0.6 + t * t / (2 * n)) / (1 + t * t / n), t / (1 + t * t / n)
    half *= np.sqrt(0.24 / n + t * t / (4 * n * n))
    assert ends(interval) == pytest.approx((middle - half, middle + half), abs=1e-12)


def test_samples_without_any_difference_between_cases_count_as_independent_cells() -> None:
    """Every case passes 4 of 8: no variance between cases is no reason for an interval without width."""
    low, high = ends(rate_interval([(4.0, 8)] * 20))
    assert 0.38 < low < 0.45 < 0.55 < high < 0.62


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_all_or_none_counts_each_case_once(rate: float) -> None:
    from statsmodels.stats.proportion import proportion_confint

    interval = rate_interval([(8 * rate, 8)] * 10)
    assert ends(interval) == pytest.approx(proportion_confint(10 * rate, 10, method="wilson"), abs=1e-12)


def test_ties_narrow_the_interval_of_a_rate() -> None:
    decided = ends(rate_interval([(float(case % 2), 1) for case in range(20)]))
    tied = ends(rate_interval([(0.5 if case < 10 else float(case % 2), 1) for case in range(20)], ties=10))
    assert decided[0] < tied[0] < 0.5 < tied[1] < decided[1]
    only_ties = ends(rate_interval([(0.5, 1)] * 20, ties=20))
    assert only_ties[0] < 0.35, "only ties show no variance, which is no certainty"


@pytest.mark.slow
def test_the_mean_is_an_intercept_with_errors_clustered_by_case() -> None:
    import statsmodels.api as sm

    counts = np.full(15, 3)
    values = [RANDOM.normal(case % 4, 1, count) for case, count in enumerate(counts)]
    model = sm.OLS(np.concatenate(values), np.ones(counts.sum())).fit(
        cov_type="cluster", cov_kwds={"groups": np.repeat(np.arange(15), counts)}, use_t=True
    )
    interval = mean_interval([(float(row.sum()), len(row)) for row in values])
    assert ends(interval) == pytest.approx(tuple(model.conf_int()[0]), rel=1e-9)


def test_one_large_case_counts_as_few_cases() -> None:
    """A case with 20 cells among 19 with one: as if there were 3.6 cases of equal size."""
    even = ends(mean_interval([(float(case % 2), 1) for case in range(20)]))
    uneven = ends(mean_interval([(20.0, 20), *((float(case % 2), 1) for case in range(19))]))
    assert uneven[1] - uneven[0] > 2 * (even[1] - even[0])
    low, high = ends(rate_interval([(20.0, 20), *((float(case % 2), 1) for case in range(19))]))
    assert high - low > 0.4


def test_a_mean_without_known_variance_has_no_interval() -> None:
    assert mean_interval([(3.0, 1)]) is None
    assert mean_interval([(0.1 + 0.2, 1), (0.3, 1), (0.6, 2)]) is None
    assert mean_interval([]) is None
    assert mean_interval([], (0, 5)) is None
    assert rate_interval([]) is None


def test_a_bounded_mean_of_yes_or_no_is_nearly_the_rate() -> None:
    """With values at the ends only, it is Wilson's interval with one more case, half of it at each end."""
    cases = [(float(case < 27), 1) for case in range(30)]
    mean, rate = ends(mean_interval(cases, (0, 1))), ends(rate_interval(cases))
    assert mean == pytest.approx(rate, abs=0.03)
    assert mean[0] < rate[0]
    scaled = ends(mean_interval([(5 * total, count) for total, count in cases], (0, 5)))
    assert scaled == pytest.approx((5 * mean[0], 5 * mean[1]))


def test_few_failing_cases_hardly_show_that_samples_are_independent() -> None:
    """One error in 160 does not make the bound better than none does: none counts each case once."""
    perfect = ends(rate_interval([(8.0, 8)] * 20))
    flawed = ends(rate_interval([(7.0, 8), *[(8.0, 8)] * 19]))
    assert flawed[0] < perfect[0]
    broken = ends(rate_interval([(0.0, 8), *[(8.0, 8)] * 19]))
    assert broken == pytest.approx(ends(rate_interval([(0.0, 1), *[(1.0, 1)] * 19])), abs=0.03)


def test_intervals_stay_within_the_range_of_the_metric() -> None:
    assert ends(mean_interval([(5.0, 1), (5.0, 1), (4.0, 1)], (None, 5)))[1] == 5
    low, high = ends(mean_interval([(5.0, 1)] * 9, (0, 5)))
    assert 2 < low < high == 5, "nine cases do not show that none is at the other end"
    assert ends(separation_interval({1: [1.0], 2: [0.9]}, {3: [0.0], 4: [0.2]}, (-1, 1)))[1] == 1


def test_separation_with_one_cell_per_case_is_welchs_interval() -> None:
    from scipy import stats

    above, below = RANDOM.normal(2, 1, 12), RANDOM.normal(0, 3, 9)
    expected = stats.ttest_ind(above, below, equal_var=False).confidence_interval()
    low, high = ends(separation_interval(apart(above), apart(below, 100)))
    assert (low, high) == pytest.approx(tuple(expected), abs=0.05), "degrees of freedom are rounded down"
    assert low <= expected.low < expected.high <= high


def test_the_separation_of_rates_is_newcombes_interval() -> None:
    """56 of 70 against 48 of 80: the example of Newcombe (1998), method 10, gives 0.0524 to 0.3339."""
    above, below = (apart([float(case < passed) for case in range(n)], 100 * n) for passed, n in ((56, 70), (48, 80)))
    assert ends(rate_separation_interval(above, below)) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_a_side_on_which_everything_passes_is_not_certain() -> None:
    interval = ends(rate_separation_interval(apart([1.0] * 10), apart([float(case < 4) for case in range(40)], 100)))
    assert interval[0] < 0.65
    assert rate_separation_interval(apart([1.0]), apart([0.0] * 5, 100)) is None


def test_the_variance_of_an_auroc_is_delongs() -> None:
    from scipy import stats

    above, below = RANDOM.normal(1, 1, 30).round(1), RANDOM.normal(0, 1, 25).round(1)
    wins = (above[:, None] > below[None, :]) + 0.5 * (above[:, None] == below[None, :])
    rate = wins.mean()
    variance = wins.mean(axis=1).var(ddof=1) / 30 + wins.mean(axis=0).var(ddof=1) / 25
    variance += rate * (1 - rate) * (1 / 30**2 + 1 / 25**2)  # one case more on each side
    t, n = stats.t.ppf(0.975, 24), rate * (1 - rate) / variance
    middle = (rate + t * t / (2 * n)) / (1 + t * t / n)
    half = t / (1 + t * t / n) * np.sqrt(rate * (1 - rate) / n + t * t / (4 * n * n))
    interval = auroc_interval(apart(above), apart(below, 100))
    assert ends(interval) == pytest.approx((middle - half, middle + half), rel=1e-9)


def test_a_perfect_auroc_is_not_certain() -> None:
    low, high = ends(auroc_interval(apart([1.0] * 8), apart([0.0] * 8, 100)))
    assert high == 1
    assert low < 0.7
    assert auroc_interval({1: [1.0, 1.0]}, apart([0.0, 0.0], 100)) is None


@given(st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0]), min_size=2, max_size=40))
def test_a_paired_test_is_significant_exactly_where_its_interval_excludes_0(differences: list[float]) -> None:
    test = paired_test(differences, scale=1.0)
    assert (test.p < 0.05) == (not test.interval.low <= 0 <= test.interval.high)
    assert test.interval.low <= np.mean(differences) <= test.interval.high


@pytest.mark.parametrize(
    ("worse", "better", "is_significant"), [(4, 0, False), (6, 0, True), (8, 1, True), (9, 4, False)]
)
def test_pairs_that_differ_by_one_are_about_as_significant_as_in_mcnemars_exact_test(
    worse: int, better: int, is_significant: bool
) -> None:
    from scipy import stats

    test = paired_test([-1.0] * worse + [1.0] * better + [0.0] * (50 - worse - better))
    assert (test.p < 0.05) is is_significant
    assert (stats.binomtest(worse, worse + better).pvalue < 0.05) == is_significant


def test_many_cases_approach_the_t_test() -> None:
    from scipy import stats

    differences = RANDOM.normal(0.2, 1, 3000)
    test = paired_test(list(differences))
    assert test.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=0.01)


def test_a_few_large_drops_do_not_contradict_many_small_gains() -> None:
    """36 of 40 cases gain 1 and four lose 20: the mean is negative, and not significantly so."""
    test = paired_test([1.0] * 36 + [-20.0] * 4)
    assert test.p > 0.05
    assert test.interval.low < 0 < test.interval.high


def test_no_difference_at_all_is_not_certainty() -> None:
    assert paired_test([0.0] * 20) is None
    test = paired_test([0.0] * 20, scale=1.0)
    assert test.p == 1
    assert test.interval.high == -test.interval.low == pytest.approx(0.0997, abs=1e-4)
    assert paired_test([1.0]) is None


def test_the_sum_of_a_case_does_not_depend_on_the_order_of_its_values() -> None:
    values = [0.1, 1e16, 0.3, -1e16, 0.2]
    assert case_sums({0: values}) == case_sums({0: sorted(values)}) == [(0.6, 5)]


def test_the_separation_of_cases_on_both_sides_is_the_paired_interval() -> None:
    from scipy import stats

    below = RANDOM.normal(0, 2, 14)
    above = below + RANDOM.normal(1, 0.5, 14)
    expected = stats.ttest_rel(above, below).confidence_interval()
    assert ends(separation_interval(apart(above), apart(below))) == pytest.approx(tuple(expected), rel=1e-9)
    welch = ends(separation_interval(apart(above), apart(below, 100)))
    assert welch[1] - welch[0] > 3 * (expected.high - expected.low)


def test_the_variance_of_a_separation_has_the_covariance_of_the_shared_cases() -> None:
    """By the jackknife over all images, of which some are on both sides and have several samples."""
    above = {case: RANDOM.normal(1, 1, 2).tolist() for case in range(30)}
    below = {case: [value - 1 for value in above[case]] for case in range(12)} | {
        case: RANDOM.normal(0, 1, 2).tolist() for case in range(100, 120)
    }
    cases = sorted({*above, *below})

    def difference(left_out: int) -> float:
        first, second = (np.mean([side[case] for case in side if case != left_out]) for side in (above, below))
        return float(first - second)

    without = np.array([difference(case) for case in cases])
    error = np.sqrt(np.var(without) * (len(cases) - 1))
    low, high = ends(separation_interval(above, below))
    apart_low, apart_high = ends(separation_interval(above, {case + 1000: below[case] for case in below}))
    assert (high - low) / (2 * 2.03) == pytest.approx(error, rel=0.06)
    assert high - low < 0.9 * (apart_high - apart_low)


def test_the_auroc_of_cases_on_both_sides_has_their_covariance() -> None:
    """An image that scores high on both sides wins and loses against the same others."""
    below = RANDOM.normal(0, 1, 40)
    above = below + 0.5
    paired, unpaired = (ends(auroc_interval(apart(above), apart(below, first))) for first in (0, 100))
    assert paired[1] - paired[0] < 0.7 * (unpaired[1] - unpaired[0])
    against = ends(auroc_interval(apart(1 - below), apart(below)))
    assert against[1] - against[0] > unpaired[1] - unpaired[0], "what a case wins on one side it loses on the other"


@pytest.mark.parametrize(("shift", "narrower"), [(0, True), (100, False)])
def test_rates_of_cases_on_both_sides_are_correlated(shift: int, narrower: bool) -> None:
    above = [float(case < 30) for case in range(40)]
    below = [float(case < 20) for case in range(40)]
    low, high = ends(rate_separation_interval(apart(above), apart(below, shift)))
    independent = ends(rate_separation_interval(apart(above), apart(below, 1000)))
    assert (high - low < 0.8 * (independent[1] - independent[0])) is narrower
    assert low < 0.25 < high


@given(
    st.dictionaries(st.integers(0, 9), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3), min_size=1),
    st.dictionaries(st.integers(5, 14), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=3), min_size=1),
)
@settings(max_examples=40)
def test_intervals_of_separations_contain_them(above: dict[int, list[float]], below: dict[int, list[float]]) -> None:
    first, second = (np.mean([value for case in side.values() for value in case]) for side in (above, below))
    bools = [{case: [float(value == 1) for value in side[case]] for case in side} for side in (above, below)]
    rates = [np.mean([value for case in side.values() for value in case]) for side in bools]
    for interval, value in (
        (separation_interval(above, below, (-1, 1)), first - second),
        (rate_separation_interval(*bools), rates[0] - rates[1]),
    ):
        if interval is not None:
            assert -1 <= interval.low <= value + 1e-9
            assert value - 1e-9 <= interval.high <= 1
    area = auroc_interval(above, below)
    assert (area is None) == (len(above) < 2 or len(below) < 2)
    assert area is None or 0 <= area.low <= area.high <= 1
