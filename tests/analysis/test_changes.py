"""Tests of a change between two runs, of passes and of scores: oracles, exact sizes, power."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, nan
from statistics import NormalDist, fmean

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from visioneval.analysis.stats.tests import (
    Counts,
    Samples,
    adjusted_case_ps,
    case_p,
    lowest_case_p,
    lowest_p,
    lowest_worse_p,
    mean_change,
    permutation_test,
    within_variance,
    worse_p,
)
from visioneval.analysis.stats.variance import NO_NOISE, RunNoise, detectable_within, run_noise, shared_variance

BROKEN, FIXED, SAME = Counts(1, 1, 0, 1), Counts(0, 1, 1, 1), Counts(1, 1, 1, 1)


@pytest.mark.parametrize(("broken", "fixed"), [(4, 0), (5, 0), (7, 1), (3, 3), (0, 4)])
def test_one_sample_per_case_is_the_mid_p_of_mcnemars_test(broken: int, fixed: int) -> None:
    from scipy.stats import binom

    expected = binom.sf(broken, broken + fixed, 0.5) + binom.pmf(broken, broken + fixed, 0.5) / 2
    assert worse_p([BROKEN] * broken + [FIXED] * fixed + [SAME] * 9) == pytest.approx(expected, rel=1e-12)


@st.composite
def tables(draw: st.DrawFn) -> list[Counts]:
    sizes = draw(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=4))
    return [
        Counts(draw(st.integers(0, a)), a, draw(st.integers(0, b)), b, draw(st.sampled_from([1 / 3, 0.5, 1.0])))
        for a, b in sizes
    ]


@given(tables())
@example([Counts(100, 139, 2, 3), Counts(0, 140, 2, 3)])
@example([Counts(0, 1, 0, 1, 0.5), Counts(0, 1, 0, 1, 0.5), Counts(2, 2, 0, 3, 0.5), Counts(0, 2, 1, 3)])
@settings(max_examples=60)
def test_the_mid_p_is_that_of_all_ways_to_give_samples_to_b(cases: list[Counts]) -> None:
    outcomes = [range(max(0, case.passed - case.a), min(case.b, case.passed) + 1) for case in cases]
    observed = sum(case.weight * case.difference for case in cases)
    below = equal = total = 0.0
    for passes in product(*outcomes):
        ways, value = 1.0, 0.0
        for case, passed in zip(cases, passes, strict=True):
            ways *= comb(case.b, passed) * comb(case.a, case.passed - passed)
            value += case.weight * (passed / case.b - (case.passed - passed) / case.a)
        total += ways
        below += ways * (value < observed - 1e-9)
        equal += ways * (abs(value - observed) <= 1e-9)
    expected = (below + equal / 2) / total
    assert worse_p(cases) == pytest.approx(expected, abs=1e-9)


def test_sums_that_fit_no_grid_are_rounded_to_one() -> None:
    cases = [Counts(passed, a, 40, b) for passed, a, b in ((60, 97, 89), (50, 83, 79), (45, 73, 71))]
    variance = sum(case.variance for case in cases)
    expected = NormalDist().cdf(sum(case.difference for case in cases) / variance**0.5)
    assert worse_p(cases) == pytest.approx(expected, abs=0.002)


def test_many_cases_are_taken_as_normal_and_agree_with_the_exact_sum() -> None:
    cases = [Counts(7, 8, 6, 8)] * 200 + [Counts(6, 8, 7, 8)] * 180 + [Counts(7, 8, 7, 8)] * 119
    few, many = worse_p(cases), worse_p([*cases, *cases[:2]])
    assert many == pytest.approx(few, rel=0.1)


def test_nothing_changed_and_nothing_measured() -> None:
    assert worse_p([]) is None
    assert worse_p([SAME] * 5) == 0.5
    assert within_variance([]) is None
    assert within_variance([Counts(1, 2, 1, 2)]) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("cases", "samples", "p"), [(4, 1, 1 / 32), (5, 1, 1 / 64), (1, 3, 1 / 40)])
def test_the_lowest_p_is_that_of_the_loss_of_everything(cases: int, samples: int, p: float) -> None:
    lost = [Counts(samples, samples, 0, samples)] * cases
    assert lowest_worse_p(lost) == pytest.approx(p)
    assert worse_p(lost) == pytest.approx(p)
    assert lowest_worse_p([Counts(0, samples, samples, samples)] * cases) == pytest.approx(p)


def test_a_case_is_tested_by_fishers_exact_test() -> None:
    from scipy.stats import fisher_exact

    for counts in (Counts(8, 8, 0, 8), Counts(5, 8, 2, 8), Counts(19, 20, 1, 3), Counts(0, 4, 4, 4)):
        table = [[counts.b_passed, counts.b - counts.b_passed], [counts.a_passed, counts.a - counts.a_passed]]
        assert case_p(counts) == pytest.approx(fisher_exact(table, alternative="less").pvalue)
        assert lowest_case_p(counts) <= case_p(counts)


def test_one_broken_case_is_seen_among_many_whatever_their_number() -> None:
    """Cases without failures cannot be false alarms, so they do not count in the adjustment."""
    broken, steady = Counts(8, 8, 0, 8), Counts(8, 8, 8, 8)
    for others in (3, 199, 1999):
        *rest, last = adjusted_case_ps([*[steady] * others, broken], 0.025)
        assert last == pytest.approx(case_p(broken))
        assert set(rest) == {1.0}


def test_cases_that_could_be_worse_share_the_level() -> None:
    worse, noisy = Counts(8, 8, 1, 8), Counts(4, 8, 4, 8)
    alone, *_ = adjusted_case_ps([worse], 0.025)
    among, *_ = adjusted_case_ps([worse, *[noisy] * 29], 0.025)
    assert alone == pytest.approx(case_p(worse))
    assert among == pytest.approx(30 * alone)
    unseen = Counts(8, 8, 2, 8)  # which the level of 30 tests could not show, even with all failures in B
    assert adjusted_case_ps([unseen], 0.025) == [pytest.approx(case_p(unseen))]
    assert adjusted_case_ps([unseen, *[noisy] * 29], 0.025)[0] == 1


def test_no_case_is_tested_where_none_could_be_worse() -> None:
    assert adjusted_case_ps([BROKEN] * 40, 0.025) == [1.0] * 40
    assert adjusted_case_ps([], 0.025) == []


def test_shared_variance_is_that_of_the_analysis_of_variance() -> None:
    import pandas as pd
    from statsmodels.formula.api import ols
    from statsmodels.stats.anova import anova_lm

    random = np.random.default_rng(3)
    values = random.normal(0, 1, (30, 5)) + random.normal(0, 1, (30, 1)) + random.normal(0, 0.8, (1, 5))
    rows = [{"case": str(i), "run": str(k), "value": values[i, k]} for i in range(30) for k in range(5)]
    table = anova_lm(ols("value ~ case + run", pd.DataFrame(rows)).fit())
    squares = table["mean_sq"]
    assert shared_variance(values.tolist()) == pytest.approx((squares["run"] - squares["Residual"]) / 30)
    assert shared_variance((values - values.mean(axis=0)).tolist()) == 0


def test_dispersion_is_pearsons_statistic_over_its_degrees_of_freedom() -> None:
    from scipy.stats import chi2_contingency

    row = [(8, 8), (2, 8), (7, 8), (1, 8), (8, 8)]
    statistic = chi2_contingency([[passed for passed, _ in row], [n - passed for passed, n in row]]).statistic
    noise = run_noise([row, row])
    assert noise.dispersion == pytest.approx(statistic / 4 * (1 - 1 / 40))
    assert noise.freedom == 8
    assert run_noise([[(1, 1), (0, 1), (1, 1)]] * 6).dispersion == 1, "single samples say nothing about it"


def test_unknown_noise_changes_nothing_and_known_noise_widens() -> None:
    assert run_noise([]) == NO_NOISE
    assert run_noise([[(1, 1)], [(0, 1)]]) == NO_NOISE
    assert NO_NOISE.widened(0.003, 0.01) == 0.003
    assert NO_NOISE.widened_of_case(0.003) == 0.003
    noise = RunNoise(5, shared=0.01, dispersion=2.0, freedom=40)
    assert 0.003 < noise.widened_of_case(0.003) < noise.widened(0.003, 0.01) < 0.5
    assert noise.widened(0.997, 0.01) == pytest.approx(1 - noise.widened(0.003, 0.01))


def test_noise_that_runs_share_is_not_a_regression() -> None:
    """Each of the runs of A is a quarter worse or better in all cases, as B is."""
    worse = [Counts(15, 20, 2, 4)] * 30
    shares = (4, 2, 4, 2, 3)
    noise = run_noise([[(passed, 4) for passed in shares]] * 30)
    alone, known = worse_p(worse), worse_p(worse, noise)
    assert alone < 0.001
    assert known > 0.025


@pytest.mark.slow
@pytest.mark.parametrize(("cases", "samples"), [(20, (8, 8)), (200, (1, 1)), (20, (5, 1))])
def test_the_detectable_fall_is_found_in_four_of_five_comparisons(cases: int, samples: tuple[int, int]) -> None:
    rate, correlation, worlds = 0.85, 0.5, 400
    within = rate * (1 - rate) * (1 - correlation)
    fall = detectable_within(cases, rate, within, samples)
    random = np.random.default_rng([cases, *samples])
    odds = random.beta(rate, 1 - rate, (worlds, cases))
    a, b = random.binomial(samples[0], odds), random.binomial(samples[1], odds * (1 - fall / rate))
    runs = (
        [Counts(x, samples[0], y, samples[1]) for x, y in zip(*run, strict=True)]
        for run in zip(a.tolist(), b.tolist(), strict=True)
    )
    power = np.mean([(worse_p(run) or 0) < 0.025 for run in runs])
    assert power == pytest.approx(0.8, abs=0.1)


def test_more_cases_or_samples_detect_a_smaller_fall_and_too_few_none() -> None:
    falls = [
        detectable_within(30, 0.8, 0.08, (1, 1)),
        detectable_within(30, 0.8, 0.08, (5, 1)),
        detectable_within(30, 0.8, 0.08, (5, 4)),
        detectable_within(200, 0.8, 0.08, (5, 4)),
    ]
    assert None not in falls
    assert falls == sorted(falls, key=lambda fall: -(fall or 0))
    noisy = detectable_within(200, 0.8, 0.08, (5, 4), noise=RunNoise(200, shared=0.03**2))
    assert noisy > falls[3] + 0.03
    assert detectable_within(4, 1.0, 0.0, (1, 1)) is None
    assert detectable_within(5, 1.0, 0.0, (1, 1)) is not None


def test_many_samples_and_very_unequal_cases() -> None:
    """Thousands of samples, and one case with a single sample among many with twenty."""
    large = worse_p([Counts(900, 1000, 700, 1000)] * 3)
    assert 0 <= large < 1e-12
    assert lowest_worse_p([Counts(1, 1000, 1, 1000)]) == 0
    assert detectable_within(3, 0.9, 0.05, (1000, 1000)) is not None
    cases = [Counts(18, 20, 17, 20)] * 300
    without, with_one = worse_p(cases), worse_p([*cases, BROKEN])
    assert with_one < without < 1e-6


def test_noise_between_runs_can_put_every_outcome_out_of_reach() -> None:
    lost = [Counts(60, 60, 0, 1)] * 30
    assert lowest_worse_p(lost) < 1e-9
    assert lowest_worse_p(lost, RunNoise(2, shared=0.5)) > 0.025


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
