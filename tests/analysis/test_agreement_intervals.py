"""Intervals of agreement: oracles, when there is none, and that they keep their promise in simulations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labeled_runs import label, labeled

from tests.calibration import agreement as calibration
from visioneval.analysis.agreement.agreement import Minimum, agree
from visioneval.analysis.agreement.graders import Kind, against_other_raters
from visioneval.analysis.stats import agreement
from visioneval.analysis.stats.agreement import (
    alpha_measure,
    chance_corrected_interval,
    coefficient_measure,
    jackknife_interval,
    kappa_measure,
    krippendorff_alpha,
    rate_measure,
)
from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.correlation import spearman
from visioneval.analysis.stats.intervals import exact_low, rare_event_interval, rate_interval

pytestmark = pytest.mark.slow

# Rates


@pytest.mark.parametrize(("events", "n"), [(1, 1), (3, 3), (1, 20), (2, 50), (3, 5000)])
def test_exact_limit(events: int, n: int) -> None:
    from statsmodels.stats.proportion import proportion_confint

    limits = proportion_confint(events, n, alpha=0.1, method="beta")
    assert exact_low(events, n) == pytest.approx(limits[0], abs=1e-9)


def test_only_rates_near_a_limit_have_a_wider_bound() -> None:
    for events in range(51):
        cases = [(float(case < events), 1) for case in range(50)]
        plain, wider = rate_interval(cases), rare_event_interval(cases)
        assert (wider.low < plain.low) == (1 <= events <= 3)
        assert (wider.high > plain.high) == (47 <= events <= 49)


def test_interval_of_a_rare_failure_covers_where_wilson_does_not() -> None:
    """The probability that an interval of 50 labels contains an accuracy of 0.99, exactly."""

    from statsmodels.stats.proportion import proportion_confint

    misses = np.arange(51)
    weights = np.exp([_log_binomial(50, miss, 0.01) for miss in misses])
    covered = {
        name: sum(
            weight
            for miss, weight in zip(misses, weights, strict=True)
            if (interval := method(int(miss))).low <= 0.99 <= interval.high
        )
        for name, method in (
            ("wilson", lambda miss: Interval(*proportion_confint(50 - miss, 50, method="wilson"))),
            ("ours", lambda miss: rare_event_interval([(float(case >= miss), 1) for case in range(50)])),
        )
    }
    assert covered["wilson"] < 0.92
    assert 0.93 < covered["ours"] < 0.99


def _log_binomial(n: int, k: int, p: float) -> float:
    from scipy.stats import binom

    return float(binom.logpmf(k, n, p))


@pytest.mark.parametrize(
    ("values", "cases", "note"),
    [([], [], "nothing to compare"), ([1.0, 0.0], ["a", "a"], "no interval: 1 case, 2 are needed")],
)
def test_rate_without_an_interval(values: list[float], cases: list[str], note: str) -> None:
    measure = rate_measure(values, cases)
    assert (measure.low, measure.high, measure.note) == (None, None, note)


def test_cells_of_a_case_widen_the_interval_of_a_rate() -> None:
    values = np.repeat(np.arange(20) < 15, 3).astype(float)
    together, alone = rate_measure(values, list(np.repeat(np.arange(20), 3))), rate_measure(values, list(range(60)))
    assert together.value == alone.value == 0.75
    assert together.low < alone.low


# Chance-corrected measures


def columns(n: int, agree: float, share: float = 0.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    first = chance.random(n) < share
    return first.astype(float), (first ^ (chance.random(n) >= agree)).astype(float)


def test_interval_of_kappa_is_close_to_the_published_one_where_that_holds() -> None:
    from statsmodels.stats.inter_rater import cohens_kappa

    first, second = columns(1000, 0.85)
    measure = kappa_measure(first, second, list(range(1000)), undefined="")
    table = [[np.sum((first == a) & (second == b)) for b in (0, 1)] for a in (0, 1)]
    published = cohens_kappa(np.asarray(table))
    assert measure.value == pytest.approx(published.kappa)
    assert (measure.low, measure.high) == pytest.approx((published.kappa_low, published.kappa_upp), abs=0.01)


def test_complete_agreement_has_an_interval_that_narrows_with_labels() -> None:
    lows = []
    for n in (10, 20, 50, 200):
        first = (np.arange(n) % 2).astype(float)
        measure = kappa_measure(first, first, list(range(n)), undefined="")
        assert (measure.value, measure.high) == (1, 1)
        lows.append(measure.low)
    assert lows == sorted(lows)
    assert lows[0] < 0.5
    assert 0.6 < lows[1] < 0.75
    assert lows[3] > 0.95


@pytest.mark.parametrize(
    ("first", "second", "note"),
    [
        ([0, 0, 1], [0, 0, 1], "no interval: 3 cases, 10 are needed"),
        (
            [0] * 20 + [1, 1],
            [0] * 22,
            "no interval: 2 cases with another answer than the most common one, 3 are needed",
        ),
        ([0] * 22, [0] * 22, "undefined"),
        ([], [], "nothing to compare"),
    ],
)
def test_kappa_without_an_interval(first: list[int], second: list[int], note: str) -> None:
    measure = kappa_measure(first, second, list(range(len(first))), undefined="undefined")
    assert (measure.low, measure.high, measure.note) == (None, None, note)


def test_two_raters_have_about_the_interval_of_kappa() -> None:
    first, second = columns(100, 0.9)
    counts = np.stack([(first == code).astype(int) + (second == code) for code in (0, 1)], axis=1)
    measure = alpha_measure(counts, np.asarray([0.0, 1.0]), "nominal", list(range(100)), undefined="")
    kappa = kappa_measure(first, second, list(range(100)), undefined="")
    assert (measure.low, measure.high) == pytest.approx((kappa.low, kappa.high), abs=0.02)
    assert measure.value == krippendorff_alpha(counts, [0, 1], "nominal")


def test_chance_interval_needs_two_categories_without_each_case() -> None:
    counts = np.asarray([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert chance_corrected_interval([(0.0, 1)] * 3, counts, counts) is None
    assert chance_corrected_interval([(0.0, 1)], counts[:1], counts[:1]) is None


# Coefficients


def test_jackknife_interval_of_a_correlation_is_close_to_fishers() -> None:
    chance = np.random.default_rng(3)
    first = chance.normal(size=400)
    second = 0.8 * first + 0.6 * chance.normal(size=400)
    interval = jackknife_interval(lambda rows: float(np.corrcoef(first[rows], second[rows])[0, 1]), np.arange(400))
    middle, half = np.arctanh(np.corrcoef(first, second)[0, 1]), 1.96 / np.sqrt(397)
    assert (interval.low, interval.high) == pytest.approx((np.tanh(middle - half), np.tanh(middle + half)), abs=0.01)


def test_groups_of_cases_give_nearly_the_same_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(5)
    first = chance.normal(size=600)
    second = 0.6 * first + 0.8 * chance.normal(size=600)

    def interval() -> Interval | None:
        return jackknife_interval(lambda rows: float(np.corrcoef(first[rows], second[rows])[0, 1]), np.arange(600))

    grouped = interval()
    monkeypatch.setattr(agreement, "MAX_GROUPS", 600)
    single = interval()
    monkeypatch.setattr(agreement, "MAX_ROWS", 600)
    coarse = interval()
    assert (grouped.low, grouped.high) == pytest.approx((single.low, single.high), abs=0.02)
    assert coarse.high - coarse.low == pytest.approx(single.high - single.low, rel=0.5)


def test_few_cases_that_decide_everything_widen_the_jackknife() -> None:
    first = np.r_[np.zeros(46), 1, 1, 1, 1, 2, 2, 2, 2]
    second = first.copy()
    second[:2] = 2
    interval = jackknife_interval(lambda rows: spearman(first[rows], second[rows]), np.arange(54))
    assert interval.high - interval.low > 0.3


@pytest.mark.parametrize(
    ("first", "second", "note"),
    [
        (range(19), range(19), "no interval: 19 cases, 20 are needed"),
        (
            [1] * 26 + [2] * 4,
            [1] * 30,
            "no interval: 4 cases with another answer than the most common one, 5 are needed",
        ),
        (range(30), range(30), "no interval: the two sides agree, or differ, in nearly all cases"),
        ([1] * 30, [1] * 30, "undefined"),
        ([], [], "nothing to compare"),
    ],
)
def test_coefficient_without_an_interval(first: Sequence[int], second: Sequence[int], note: str) -> None:
    def statistic(a: np.ndarray, b: np.ndarray) -> float:
        return spearman(a, b) if note == "undefined" or np.ptp(b) else 0.5

    measure = coefficient_measure(statistic, list(first), list(second), list(range(len(first))), undefined="undefined")
    assert (measure.low, measure.high, measure.note) == (None, None, note)


# The ceiling


def every_pattern(raters: int, values: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Answers of a grader and of raters whose order means nothing: every arrangement as often as any other."""
    for pattern in product(values, repeat=raters + 1):
        yield from [pattern] * (1 + 3 * (len(set(pattern)) == 1) + 2 * (pattern.count(values[0]) == raters))


@pytest.mark.parametrize("raters", [2, 5])
@pytest.mark.parametrize(("kind", "values"), [("bool", (0, 1)), ("scale", (1, 2, 5)), ("continuous", (1, 2, 5))])
def test_grader_that_is_one_more_rater_sits_at_the_ceiling(raters: int, kind: Kind, values: tuple[float, ...]) -> None:
    rows = list(every_pattern(raters, values))
    ceiling, grader = against_other_raters(
        kind,
        [row[1:] for row in rows],
        np.asarray([row[0] for row in rows], dtype=float),
        [str(at) for at in range(len(rows))],
    )
    assert 0 < ceiling.value < 1
    assert grader.value == pytest.approx(ceiling.value)
    assert ceiling.n == grader.n


def test_better_grader_is_above_the_ceiling() -> None:
    truth = (np.arange(60) % 2).astype(float)
    raters = np.stack([np.where(np.arange(60) % 5 == rater, 1 - truth, truth) for rater in range(3)], axis=1)
    ceiling, grader = against_other_raters("bool", raters.tolist(), truth, list(map(str, range(60))))
    assert (ceiling.value, grader.value) == (pytest.approx(1 / 3), 1)


@pytest.mark.parametrize(
    ("answers", "note"),
    [
        ([[1.0], [0.0]], "no cell has answers from two raters: the ceiling is unknown"),
        ([[1.0, 0.0, 1.0][:1], []], "no cell has answers from two raters: the ceiling is unknown"),
        ([[1.0, 1.0], [1.0, 1.0]], "the raters give every cell the same answer: the measure is undefined"),
    ],
)
def test_ceiling_without_a_value(answers: list[list[float]], note: str) -> None:
    ceiling, _ = against_other_raters("bool", answers, np.asarray([1.0, 0.0]), ["a", "b"])
    assert (ceiling.value, ceiling.note) == (None, note)


# All labels


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 5), st.lists(st.tuples(st.booleans(), st.integers(1, 5)), max_size=3)),
             min_size=1, max_size=40),
    st.sampled_from([1, 2, 7]),
)  # fmt: skip
@settings(max_examples=40)
def test_no_labels_give_nan_or_an_interval_without_its_value(cells: list[Any], per_case: int) -> None:
    """Few, many, equal, split or missing labels: each measure has a value in its interval, or a note."""
    scores = {f"c{at}": {"good": good, "layout": layout} for at, (good, layout, _) in enumerate(cells)}
    labels = [label(f"c{at}", f"p{rater}", question, answer)
              for at, (_, _, answers) in enumerate(cells) for rater, row in enumerate(answers)
              for question, answer in zip(("usable", "clear"), row, strict=True)]  # fmt: skip
    run = labeled(scores, labels)
    result = agree(
        [run, *(labeled(scores, labels, run_id=f"s{at}") for at in range(per_case - 1))], [Minimum("good", 0.5)]
    )
    assert "NaN" not in result.model_dump_json()
    measures = [measure for finding in result.graders
                for measure in (*finding.measures.values(), finding.ceiling, finding.grader_as_rater)]  # fmt: skip
    measures += [measure for finding in result.people for measure in (*finding.alpha.values(), finding.fleiss)]
    for measure in measures:
        assert (measure.low is None) == (measure.high is None) == (measure.note is not None)
        if measure.low is not None:
            assert -1 <= measure.low <= measure.value <= measure.high <= 1
            assert measure.low < measure.high


# Simulations


@pytest.mark.slow
@pytest.mark.parametrize(
    ("simulation", "repetitions"),
    [("yes_no", 15), ("raters", 10), ("pairs", 25), ("win_rates", 8), ("scales", 5), ("ceiling_intervals", 8)],
)
def test_intervals_keep_their_promise(simulation: str, repetitions: int) -> None:
    """All designs of a simulation together, and none of them far off."""
    labels = (20,) if simulation in ("scales", "ceiling_intervals") else (20, 50)
    rows = [row for row in getattr(calibration, simulation)(repetitions, labels) if row.given > 0.1]
    for measure in {row.measure for row in rows}:
        coverage = [row.coverage for row in rows if row.measure == measure]
        assert np.mean(coverage) > 0.94, measure
    worst = min(rows, key=lambda row: row.coverage + 3 * row.error)
    assert worst.coverage + 3 * worst.error > 0.95, worst


@pytest.mark.slow
def test_simulated_rater_sits_at_the_ceiling() -> None:
    for row in calibration.ceilings(75):
        assert abs(row.difference) < 4 * row.error, row
