"""Intervals and tests over cases, against statsmodels and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.clusters import (
    auroc_interval,
    by_case,
    case_sums,
    mean_interval,
    paired_test,
    rate_interval,
    rate_separation_interval,
    separation_interval,
)

RANDOM = np.random.default_rng(7)


def sums_of(values: np.ndarray) -> list[tuple[float, int]]:
    return [(float(row.sum()), len(row)) for row in values]


def ends(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
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
    assert ends(separation_interval([(1.0, 1), (0.9, 1)], [(0.0, 1), (0.2, 1)], (-1, 1)))[1] == 1


def test_separation_with_one_cell_per_case_is_welchs_interval() -> None:
    from scipy import stats

    above, below = RANDOM.normal(2, 1, 12), RANDOM.normal(0, 3, 9)
    expected = stats.ttest_ind(above, below, equal_var=False).confidence_interval()
    low, high = ends(separation_interval(sums_of(above[:, None]), sums_of(below[:, None])))
    assert (low, high) == pytest.approx(tuple(expected), abs=0.05), "degrees of freedom are rounded down"
    assert low <= expected.low < expected.high <= high


def test_the_separation_of_rates_is_newcombes_interval() -> None:
    """56 of 70 against 48 of 80: the example of Newcombe (1998), method 10, gives 0.0524 to 0.3339."""
    above = [(float(case < 56), 1) for case in range(70)]
    below = [(float(case < 48), 1) for case in range(80)]
    assert ends(rate_separation_interval(above, below)) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_a_side_on_which_everything_passes_is_not_certain() -> None:
    interval = ends(rate_separation_interval([(1.0, 1)] * 10, [(float(case < 4), 1) for case in range(40)]))
    assert interval[0] < 0.65
    assert rate_separation_interval([(1.0, 1)], [(0.0, 1)] * 5) is None


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
    interval = auroc_interval([[value] for value in above], [[value] for value in below])
    assert ends(interval) == pytest.approx((middle - half, middle + half), rel=1e-9)


def test_a_perfect_auroc_is_not_certain() -> None:
    low, high = ends(auroc_interval([[1.0]] * 8, [[0.0]] * 8))
    assert high == 1
    assert low < 0.7
    assert auroc_interval([[1.0, 1.0]], [[0.0], [0.0]]) is None


@given(st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.25, 1.0, 3.0]), min_size=2, max_size=40))
def test_a_paired_test_is_significant_exactly_where_its_interval_excludes_0(differences: list[float]) -> None:
    test = paired_test(differences, scale=1.0)
    assert test is not None
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
    assert test is not None
    assert (test.p < 0.05) is is_significant
    assert (stats.binomtest(worse, worse + better).pvalue < 0.05) == is_significant


def test_many_cases_approach_the_t_test() -> None:
    from scipy import stats

    differences = RANDOM.normal(0.2, 1, 3000)
    test = paired_test(list(differences))
    assert test is not None
    assert test.p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, rel=0.01)


def test_a_few_large_drops_do_not_contradict_many_small_gains() -> None:
    """36 of 40 cases gain 1 and four lose 20: the mean is negative, and not significantly so."""
    test = paired_test([1.0] * 36 + [-20.0] * 4)
    assert test is not None
    assert test.p > 0.05
    assert test.interval.low < 0 < test.interval.high


def test_no_difference_at_all_is_not_certainty() -> None:
    assert paired_test([0.0] * 20) is None
    test = paired_test([0.0] * 20, scale=1.0)
    assert test is not None
    assert test.p == 1
    assert test.interval.high == -test.interval.low == pytest.approx(0.0997, abs=1e-4)
    assert paired_test([1.0]) is None


def test_grouping_does_not_depend_on_the_order_of_cells() -> None:
    values, cases = [0.1, 0.2, 0.3, 0.4, 1e16, -1e16], [0, 1, 0, 1, 0, 0]
    order = [5, 3, 1, 0, 4, 2]
    first = dict(zip((0, 1), case_sums(by_case(values, cases)), strict=True))
    groups = by_case([values[at] for at in order], [cases[at] for at in order])
    assert {case: case_sums({case: rows})[0] for case, rows in groups.items()} == first
