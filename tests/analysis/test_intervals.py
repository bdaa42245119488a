"""Quantiles, rare events and Student's t: published values, oracles, coverage."""

from __future__ import annotations

from math import exp
from statistics import NormalDist

import numpy as np
import pytest
from calibration.quantiles import quantiles, weighted
from hypothesis import given, settings
from hypothesis import strategies as st

from visioneval import Verdict
from visioneval.analysis.probe import ProbedCell, rate_of
from visioneval.analysis.stats import intervals as module
from visioneval.analysis.stats.agreement import rate_measure
from visioneval.analysis.stats.basic import MANY, Interval, t_quantile, t_two_sided_p
from visioneval.analysis.stats.intervals import quantile, quantile_interval, rate_interval, weighted_interval

RANDOM = np.random.default_rng(5)


def test_the_quantile_is_numpys() -> None:
    for n in (1, 2, 7, 100):
        values = RANDOM.normal(size=n).tolist()
        for p in (0.01, 0.5, 0.9, 0.99):
            assert quantile(values, p) == pytest.approx(float(np.quantile(values, p)))


@pytest.mark.parametrize(("n", "p"), [(20, 0.5), (100, 0.9), (5000, 0.95)])
def test_independent_values_give_the_ranks_of_the_binomial(n: int, p: float) -> None:
    from scipy import stats

    low, high = quantile_interval([[float(value)] for value in range(1, n + 1)], p)
    binomial = stats.binom(n, p)
    assert binomial.cdf(low - 1) <= 0.025 < binomial.cdf(low)  # the value of rank r is r
    assert binomial.sf(high - 1) <= 0.025 < binomial.sf(high - 2)


def test_few_cases_show_no_upper_limit() -> None:
    assert quantile_interval([[float(value)] for value in range(71)], 0.95)[1] is None
    assert quantile_interval([[float(value)] for value in range(72)], 0.95)[1] == 71
    assert quantile_interval([[3.0, 4.0]], 0.5) == (None, None)


def test_samples_that_agree_count_once() -> None:
    values = RANDOM.normal(size=100).tolist()
    one = quantile_interval([[value] for value in values], 0.5)
    four = quantile_interval([[value] * 4 for value in values], 0.5)
    assert None not in (*one, *four)
    assert four[0] <= one[0] < one[1] <= four[1]


def test_many_cells_take_no_long_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    monkeypatch.setattr(module, "exp", lambda power: counted.append(1) or exp(power))
    low, high = quantile_interval([[float(value)] for value in range(100_000)], 0.95)
    half = NormalDist().inv_cdf(0.975) * (100_000 * 0.95 * 0.05) ** 0.5
    assert (low, high) == (pytest.approx(95_000 - half, abs=3), pytest.approx(95_000 + half, abs=3))
    assert len(counted) < 2_000


def test_an_equal_weight_of_two_rates_is_newcombes_interval() -> None:
    first, second = rate_interval([(1.0, 1)] * 8 + [(0.0, 1)] * 2), rate_interval([(1.0, 1)] * 5 + [(0.0, 1)] * 5)
    interval = weighted_interval([(0.5, 0.8, first), (0.5, 0.5, second)])
    down = ((0.8 - first.low) ** 2 + (0.5 - second.low) ** 2) ** 0.5 / 2
    up = ((first.high - 0.8) ** 2 + (second.high - 0.5) ** 2) ** 0.5 / 2
    assert (interval.low, interval.high) == pytest.approx((0.65 - down, 0.65 + up))
    assert weighted_interval([(1.0, 0.8, Interval(0.5, 0.9))]) == Interval(0.5, pytest.approx(0.9))
    assert weighted_interval([(0.5, 0.8, first), (0.5, 1.0, None)]) is None


@pytest.mark.slow
def test_the_intervals_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few designs of ``make calibration``, with a standard error of about .02."""
    monkeypatch.setattr("calibration.quantiles.CASES", (50,))
    monkeypatch.setattr("calibration.quantiles.QUANTILES", (0.5, 0.9))
    covered = {row.design: row.value for row in quantiles(150) if row.figure == "coverage"}
    assert len(covered) == 8
    assert min(covered.values()) > 0.9, covered
    monkeypatch.setattr("calibration.quantiles.SAMPLES", ((1, 0.0), (3, 0.3)))
    figures = [(row.design, row.figure, row.value) for row in weighted(100)]
    assert min(value for _, figure, value in figures if figure != "rate 0.95") > 0.86, figures


Labels = list[tuple[int, bool]]
"""The case of each label, and whether the judge is right."""
labels = st.lists(st.tuples(st.integers(0, 11), st.booleans()), min_size=2, max_size=80)


def low(rows: Labels) -> float:
    measure = rate_measure([float(right) for _, right in rows], [case for case, _ in rows])
    return -1 if measure.low is None else measure.low


@given(labels, st.data())
@settings(max_examples=50)
def test_one_more_error_never_raises_the_bound_of_an_accuracy(rows: Labels, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    worse = [(case, right and number != at) for number, (case, right) in enumerate(rows)]
    assert low(worse) <= low(rows) + 1e-12
    assert low(rows) <= low([(case, True) for case, _ in rows]) + 1e-12


def probed(case: int, detected: bool) -> ProbedCell:
    verdict = Verdict.FAIL if detected else Verdict.PASS
    return ProbedCell(f"c{case}", "m", 0, "copy.letter", "1", number=1.0, verdict=verdict)


@given(labels, st.data())
@settings(max_examples=50)
def test_one_more_miss_never_raises_the_bound_of_a_detection_rate(rows: Labels, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    before = rate_of([probed(case, right) for case, right in rows], "copy.letter", "", None, None)
    missed = [(case, right and number != at) for number, (case, right) in enumerate(rows)]
    after = rate_of([probed(case, right) for case, right in missed], "copy.letter", "", None, None)
    assert after.low <= before.low + 1e-12


def test_a_perfect_judge_does_as_well_as_its_cases_allow() -> None:
    """160 labels of 20 cases count as 20: one error in them is not better than none."""
    perfect = [(case, True) for case in range(20) for _ in range(8)]
    assert 0.83 < low(perfect) < 0.84
    assert low([(0, False), *perfect[1:]]) < low(perfect)
    assert low([(case, True) for case in range(160)]) > 0.97


def test_quantiles_and_p_values_equal_scipys() -> None:
    from scipy import stats

    for df in (1, 2, 3, 4, 5, 19, 20, 199, 999, MANY - 1):
        for p in (0.01, 0.5, 0.8, 0.975, 0.9995):
            assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-9, abs=1e-11), (p, df)
        for t in (0.0, -0.3, 1.0, 2.5, 8.0):
            assert t_two_sided_p(t, df) == pytest.approx(2 * stats.t.sf(abs(t), df), abs=1e-12), (t, df)
    for df in (MANY, 5000, 10**6):
        assert t_quantile(0.975, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-6), df
        assert t_two_sided_p(2.2, df) == pytest.approx(2 * stats.t.sf(2.2, df), abs=1e-7), df


def test_bad_input_is_refused() -> None:
    for p, df in ((0.975, 0), (0.0, 5), (1.0, 5)):
        with pytest.raises(ValueError, match=r"degrees of freedom|between 0 and 1"):
            t_quantile(p, df)
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_two_sided_p(1.0, 0)
