"""Tie-calibrated pairwise accuracy, against a count of all pairs."""

from __future__ import annotations

from itertools import combinations
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.analysis.stats.agreement import pairwise_accuracy_measure
from visioneval.analysis.stats.correlation import MOST_ROWS, PairwiseAccuracy, pairwise_accuracy

Column = list[float]
RANDOM = np.random.default_rng(3)


def counted(people: Column, metric: Column, threshold: float) -> float:
    """The accuracy with a threshold, pair by pair."""
    right = 0
    pairs = list(combinations(range(len(people)), 2))
    for first, second in pairs:
        difference = round(metric[first] - metric[second], 9)
        order = 0 if abs(difference) <= threshold else np.sign(difference)
        right += order == np.sign(people[first] - people[second])
    return right / len(pairs)


def best(people: Column, metric: Column) -> float:
    thresholds = {0.0, *(round(abs(a - b), 9) for a, b in combinations(metric, 2))}
    return max(counted(people, metric, threshold) for threshold in thresholds)


ROWS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0.1, 0.2, 0.3, 0.35, 0.7, 2.0])), min_size=2, max_size=12)


@given(ROWS)
def test_the_accuracy_is_that_of_the_best_threshold(rows: list[tuple[int, float]]) -> None:
    people, metric = ([float(value) for value in column] for column in zip(*rows, strict=True))
    accuracy = pairwise_accuracy(people, metric)
    if len(set(people)) == 1 or len(set(metric)) == 1:
        assert isnan(accuracy), "a constant column orders nothing, so ties would make it look right"
        return
    assert accuracy == pytest.approx(best(people, metric))


@given(ROWS, st.integers(0, 11))
def test_rows_that_are_left_out_are_in_no_pair(rows: list[tuple[int, float]], at: int) -> None:
    people, metric = ([float(value) for value in column] for column in zip(*rows, strict=True))
    pairs, kept = PairwiseAccuracy(people, metric), [row for row in range(len(rows)) if row % 5 != at % 5]
    accuracy = pairs.of(np.asarray(kept, dtype=np.intp))
    if not isnan(accuracy):
        assert accuracy == pytest.approx(
            counted([people[row] for row in kept], [metric[row] for row in kept], pairs.threshold)
        )


def test_a_known_result() -> None:
    """Of six pairs, people tie two. Without a threshold, the metric orders both; with 0.1 it ties them and no other."""
    people, metric = [1.0, 1.0, 2.0, 2.0], [0.1, 0.2, 0.6, 0.7]
    pairs = PairwiseAccuracy(people, metric)
    assert (pairs.threshold, pairs.of(np.arange(4))) == (pytest.approx(0.1), 1)
    assert counted(people, metric, 0) == pytest.approx(4 / 6)


def test_the_opposite_order_is_wrong() -> None:
    assert pairwise_accuracy([1, 2, 3, 4], [4, 3, 2, 1]) == 0


@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows_have_no_pair(rows: int) -> None:
    assert isnan(pairwise_accuracy([1.0] * rows, [1.0] * rows))


def test_the_threshold_of_many_rows_is_that_of_some_and_all_pairs_count() -> None:
    number = MOST_ROWS + 500
    people = RANDOM.integers(1, 4, number).astype(float)
    metric = people + RANDOM.normal(0, 0.5, number)
    pairs = PairwiseAccuracy(people, metric)
    difference = np.round(metric[:, None] - metric[None, :], 9)
    order = np.where(np.abs(difference) <= pairs.threshold, 0, np.sign(difference))
    right = (order == np.sign(people[:, None] - people[None, :])).sum() - number
    assert pairs.of(np.arange(number)) == pytest.approx(right / (number * (number - 1)))
    assert pairs.of(np.arange(number)) > counted_without_threshold(people, metric) + 0.05


def counted_without_threshold(people: np.ndarray, metric: np.ndarray) -> float:
    same = np.sign(people[:, None] - people[None, :]) == np.sign(metric[:, None] - metric[None, :])
    return float((same.sum() - len(people)) / (len(people) * (len(people) - 1)))


def test_a_metric_that_orders_nothing_has_no_interval() -> None:
    """Nine of ten labels are equal: to tie every pair is right in .81 of them, whatever the grader measures."""
    people = np.asarray([5.0] * 54 + [1.0, 2.0, 3.0, 1.0, 2.0, 4.0])
    measure = pairwise_accuracy_measure(people, RANDOM.permutation(60), range(60), undefined="")
    assert measure.value > 0.75
    assert (measure.low, measure.high) == (None, None)
    assert "ties all pairs" in str(measure.note)


def test_an_interval_of_the_accuracy_is_within_0_and_1() -> None:
    people = RANDOM.integers(1, 6, 40).astype(float)
    measure = pairwise_accuracy_measure(people, people + RANDOM.normal(0, 0.8, 40), range(40), undefined="")
    assert 0.5 < measure.low < measure.value < measure.high < 1


def test_a_case_with_several_cells_is_one_unit() -> None:
    people = np.repeat(RANDOM.integers(1, 6, 30), 4).astype(float)
    metric = np.repeat(people[::4] + RANDOM.normal(0, 1.5, 30), 4)
    cells, cases = (
        pairwise_accuracy_measure(people, metric, units, undefined="") for units in (range(120), np.arange(120) // 4)
    )
    assert None not in (cells.low, cells.high, cases.low, cases.high)
    assert cases.high - cases.low > 1.5 * (cells.high - cells.low)
