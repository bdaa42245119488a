"""Means of labels that a judge of every cell makes more precise: oracles, limits and coverage."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.correction import Design, coverage

from visioneval.analysis.stats.prediction_powered import (
    LabeledSample,
    corrected_mean,
    difference,
    judge_mean,
    labeled_mean,
)

pytestmark = pytest.mark.slow


def sample_of(people: list[float] | np.ndarray, rows: list[int] | np.ndarray, weights: float = 1.0) -> LabeledSample:
    rows = np.asarray(rows)
    return LabeledSample(
        rows, np.asarray(people, dtype=float), np.full(len(rows), weights), np.zeros(len(rows), dtype=int)
    )


def cells(n: int, accuracy: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """People's answers and the judge's."""
    random = np.random.default_rng(seed)
    people = (random.random(n) < 0.7).astype(float)
    return people, np.where(random.random(n) < accuracy, people, 1 - people)


def test_estimate_and_variance_are_those_of_the_published_formulas() -> None:
    """PPI++ takes labeled and unlabeled cells apart. Each cell is its own case."""

    from scipy import stats

    people, judge = cells(4000, 0.85)
    judge = judge * 3 + np.random.default_rng(1).normal(size=4000)
    rows = np.random.default_rng(2).permutation(4000)[:800]
    rest = np.setdiff1d(np.arange(4000), rows)
    y, f, unlabeled = people[rows], judge[rows], judge[rest]
    tuning = np.mean((y - y.mean()) * (f - f.mean())) / judge.var() / (1 + len(y) / len(unlabeled))
    value = y.mean() + tuning * (unlabeled.mean() - f.mean())
    variance = tuning**2 * unlabeled.var() / len(unlabeled) + (y - tuning * f).var() / len(y)
    result = corrected_mean(judge, np.arange(4000), sample_of(y, rows), step=0.0)
    assert result.value == pytest.approx(value, abs=1e-12)
    assert result.tuning == pytest.approx(tuning * 4000 / 3200)
    assert result.influence @ result.influence == pytest.approx(variance, rel=1e-2)
    half = stats.t.ppf(0.975, 799) * np.sqrt(variance * 800 / 799)
    assert result.interval().high - result.value == pytest.approx(half, rel=1e-2)


def test_weights_give_every_stratum_its_share() -> None:
    people = [1.0, 1.0, 0.0, 0.0, 1.0]
    sample = LabeledSample(
        np.arange(5), np.asarray(people), np.asarray([30, 30, 30, 2, 2.0]), np.asarray([0, 0, 0, 1, 1])
    )
    result = labeled_mean(np.arange(94), sample)
    assert result.value == pytest.approx((90 * 2 / 3 + 4 * 1 / 2) / 94)


def test_strata_that_the_judge_decided_can_hold_no_other_answer_of_it() -> None:
    """Where its verdicts are the strata, each is a rate of its own: that of the labels, and of two more that differ."""
    judge = np.asarray([1.0] * 90 + [0.0] * 10)
    rows = np.asarray([*range(10), *range(90, 100)])
    strata, weights = np.repeat([0, 1], 10), np.repeat([9.0, 1.0], 10)
    by_verdict = corrected_mean(judge, np.arange(100), LabeledSample(rows, judge[rows], weights, strata))
    added, total = np.asarray([0.09, 0.01]), 1.2
    assert by_verdict.tuning == pytest.approx(1.0)
    assert by_verdict.center == pytest.approx(0.9 + (0.01 - 0.09) / total)
    assert by_verdict.floor == pytest.approx(added @ added / total**2)
    uneven = LabeledSample(rows, judge[rows], weights * np.repeat([1.01, 1.0], 10), strata)
    other = corrected_mean(judge, np.arange(100), uneven)
    assert other.floor > 1.5 * by_verdict.floor


def test_the_judge_of_the_other_cells_moves_the_labels() -> None:
    """The judge is right wherever there is a label, and passes more of the other cells: the labels were unlucky."""
    judge = np.asarray([1.0] * 70 + [0.0] * 30)
    rows = np.asarray([*range(10), *range(70, 80)])
    result = corrected_mean(judge, np.arange(100), sample_of(judge[rows], rows))
    assert labeled_mean(np.arange(100), sample_of(judge[rows], rows)).value == 0.5
    assert result.value == pytest.approx(0.5 + result.tuning * 0.2)
    assert result.tuning == pytest.approx(0.25 / 0.21)


@pytest.mark.parametrize("judge", [np.ones(100), np.full(100, 0.7), np.tile([1.0, 0.0], 50)])
def test_a_useless_judge_leaves_the_labels_alone(judge: np.ndarray) -> None:
    """A constant one, and one that says the opposite."""
    rows = np.arange(40)
    sample = sample_of(np.tile([0.0, 1.0], 20), rows)
    result, alone = corrected_mean(judge, np.arange(100), sample), labeled_mean(np.arange(100), sample)
    assert (result.tuning, result.value, result.interval()) == (0.0, alone.value, alone.interval())


def test_cells_of_a_case_are_one_observation() -> None:
    """Five equal cells in each case carry no more than one."""
    people, judge = cells(200, 0.8)
    rows = np.arange(40)
    single = corrected_mean(judge, np.arange(200), sample_of(people[rows], rows))
    five = corrected_mean(
        np.repeat(judge, 5), np.repeat(np.arange(200), 5), sample_of(np.repeat(people[rows], 5), np.arange(200))
    )
    assert five.value == pytest.approx(single.value)
    assert five.interval().low == pytest.approx(single.interval().low)
    assert five.interval().high == pytest.approx(single.interval().high)


@pytest.mark.parametrize("count", [20, 50, 200])
def test_labels_that_never_contradict_the_judge_are_no_certainty(count: int) -> None:
    """The interval is about as wide as that of a rate of contradictions of which none was seen."""

    from scipy import stats

    judge = np.tile([1.0, 1.0, 1.0, 0.0], 125)
    result = corrected_mean(judge, np.arange(500), sample_of(judge[:count], np.arange(count)))
    without = judge_mean(judge, np.arange(500)).interval()
    interval = result.interval()
    unseen = stats.beta.ppf(0.975, 1, count)
    assert interval.high - interval.low > max(unseen, without.high - without.low)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_labels_are_no_certainty(value: float) -> None:
    rows = np.arange(20)
    alone = labeled_mean(np.arange(100), sample_of(np.full(20, value), rows)).interval()
    assert alone.high - alone.low > 0.15
    judged = judge_mean(np.full(20, value), rows).interval()
    assert (judged.low, judged.high) == (alone.low, alone.high)
    on_scale = labeled_mean(np.arange(100), sample_of(np.full(20, 4.0), rows), step=1.0).interval()
    assert on_scale.low < 4 < on_scale.high


def test_the_difference_of_a_run_and_itself_is_no_difference() -> None:
    people, judge = cells(300, 0.8)
    result = corrected_mean(judge, np.arange(300), sample_of(people[:60], np.arange(60)))
    same = difference(result, result)
    assert (same.value, same.center) == (0, 0)
    assert same.interval().low == -same.interval().high < 0


def test_what_two_runs_share_cancels() -> None:
    """Cases that are hard in both runs make both figures uncertain, but not their difference."""
    people, judge = cells(300, 0.9)
    sample, cases = sample_of(people[:100], np.arange(100)), np.arange(300)
    first = corrected_mean(judge, cases, sample)
    better = people.copy()
    better[:300:10] = 1.0
    paired = difference(first, corrected_mean(judge, cases, sample_of(better[:100], np.arange(100)))).interval()
    apart = difference(
        first, corrected_mean(judge[::-1], cases, sample_of(better[::-1][:100], np.arange(100)))
    ).interval()
    assert paired.high - paired.low < 0.7 * (apart.high - apart.low)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (sample_of([], np.asarray([], dtype=int)), "needs labels with positive weights"),
        (sample_of([1.0, 0.0], [0, 1], weights=0.0), "needs labels with positive weights"),
        (sample_of([1.0], [0]), "two or more cases with labels, not 1"),
    ],
)
def test_too_little_is_refused(sample: LabeledSample, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        corrected_mean(np.ones(3), np.arange(3), sample).interval()


@pytest.mark.parametrize(
    "design",
    [
        Design(20, 5, 0.9, 0.5, 0.5, "stratified"),
        Design(200, 5, 0.8, 0.8, 0.5, "random"),
        Design(50, 5, 0.8, 0.8, 0.5, "random", "scale"),
        Design(50, 5, 0.8, 0.8, 0.5, "random", "difference"),
    ],
    ids=lambda design: f"{design.kind}-{design.labels}-{design.draw}",
)
def test_intervals_cover(design: Design) -> None:
    """``python -m tests.calibration.correction`` simulates many more designs."""
    row = coverage(design, 100)
    assert row.coverage >= row.required - 0.03
    assert min(row.labels_coverage, row.all_coverage) >= 0.88
    if design.kind == "yes_no" and design.draw == "random" and design.rate < 0.9:
        assert row.width < row.labels_width
