"""Chance-corrected agreement, compared with published examples and statsmodels, and tie-calibrated pairwise accuracy,
against a count of all pairs."""

from __future__ import annotations

from itertools import combinations
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visioneval.analysis.stats.agreement import (
    cohen_kappa,
    fleiss_kappa,
    krippendorff_alpha,
    pairwise_accuracy_measure,
    quadratic_kappa,
)
from visioneval.analysis.stats.correlation import MOST_ROWS, PairwiseAccuracy, pairwise_accuracy

_ = nan
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
)
"""Four observers, twelve units, five values: section D of Krippendorff's worked examples."""

FLEISS = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031 00501 30012 51000 02040
10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""
"""Thirty patients, six psychiatrists, five diagnoses: the table of the paper of 1971."""

TEXTBOOK = [[0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1], [7, 7, 0, 0, 0],
            [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]]  # fmt: skip


def count_values(ratings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts the values of each unit (a column)."""
    values = np.unique(ratings[~np.isnan(ratings)])
    return np.stack([(ratings == value).sum(axis=0) for value in values], axis=1), values


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_matches_krippendorffs_example(level: str, published: float) -> None:
    assert krippendorff_alpha(*count_values(KRIPPENDORFF), level) == pytest.approx(published, abs=5e-4)


def test_alpha_of_two_observers_matches_the_published_value() -> None:
    first = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    second = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert krippendorff_alpha(*count_values(np.array([first, second], dtype=float)), "nominal") == pytest.approx(
        0.095, abs=5e-4
    )


def test_alpha_ignores_units_with_one_answer() -> None:
    alone = np.concatenate([KRIPPENDORFF, np.full((4, 50), nan)], axis=1)
    alone[0, 12:] = 5
    assert krippendorff_alpha(*count_values(alone), "nominal") == pytest.approx(0.743, abs=5e-4)


def test_fleiss_kappa_matches_published_examples() -> None:
    table = [[int(count) for count in row] for row in FLEISS.split()]
    assert len(table) == 30
    assert fleiss_kappa(table) == pytest.approx(0.430, abs=5e-4)
    assert fleiss_kappa(TEXTBOOK) == pytest.approx(0.210, abs=5e-4)


def test_cohen_kappa_of_a_known_table() -> None:
    first = [1] * 25 + [0] * 25
    second = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_kappas_match_statsmodels(seed: int) -> None:
    from statsmodels.stats.inter_rater import cohens_kappa, to_table
    from statsmodels.stats.inter_rater import fleiss_kappa as oracle_fleiss

    random = np.random.default_rng(seed)
    first = random.integers(1, 6, 200)
    second = np.clip(first + random.integers(-1, 3, 200), 1, 5)
    table, _ = to_table(np.stack([first, second], axis=1), bins=np.arange(0.5, 6))
    assert cohen_kappa(first, second) == pytest.approx(cohens_kappa(table).kappa)
    assert quadratic_kappa(first, second) == pytest.approx(cohens_kappa(table, wt="quadratic").kappa)
    counts = random.multinomial(7, [0.5, 0.3, 0.2], size=40)
    assert fleiss_kappa(counts) == pytest.approx(oracle_fleiss(counts))


def test_quadratic_weights_use_the_scale_and_not_the_used_values() -> None:
    from statsmodels.stats.inter_rater import cohens_kappa, to_table

    first, second = [1, 1, 5, 5, 2], [1, 5, 5, 5, 1]
    table, _ = to_table(np.stack([first, second], axis=1), bins=np.arange(0.5, 6))
    assert quadratic_kappa(first, second) == pytest.approx(cohens_kappa(table, wt="quadratic").kappa)


def test_full_agreement_is_1_and_a_constant_rater_is_0() -> None:
    assert cohen_kappa([0, 1, 1], [0, 1, 1]) == quadratic_kappa([1, 3, 5], [1, 3, 5]) == 1
    assert cohen_kappa([0, 1, 1], [1, 1, 1]) == quadratic_kappa([1, 3, 5], [3, 3, 3]) == 0
    assert krippendorff_alpha([[2, 0], [0, 2]], [0, 1], "ordinal") == 1
    assert cohen_kappa([0, 1], [1, 0]) == -1


def test_undefined_agreement_is_nan() -> None:
    assert isnan(cohen_kappa([], []))
    assert isnan(cohen_kappa([1, 1], [1, 1]))
    assert isnan(quadratic_kappa([], []))
    assert isnan(quadratic_kappa([3], [3]))
    assert isnan(fleiss_kappa(np.zeros((0, 2))))
    assert isnan(fleiss_kappa([[3, 0], [3, 0]]))
    assert isnan(krippendorff_alpha([[1, 0], [0, 1]], [0, 1], "nominal"))
    assert isnan(krippendorff_alpha([[2, 0]], [0, 1], "interval"))
    assert isnan(krippendorff_alpha(np.zeros((0, 2)), [0, 1], "interval"))
    with pytest.raises(ValueError, match="same number"):
        fleiss_kappa([[1, 1], [2, 1]])


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
@settings(max_examples=50)
def test_the_accuracy_is_that_of_the_best_threshold(rows: list[tuple[int, float]]) -> None:
    people, metric = ([float(value) for value in column] for column in zip(*rows, strict=True))
    accuracy = pairwise_accuracy(people, metric)
    if len(set(people)) == 1 or len(set(metric)) == 1:
        assert isnan(accuracy), "a constant column orders nothing, so ties would make it look right"
        return
    assert accuracy == pytest.approx(best(people, metric))


@given(ROWS, st.integers(0, 11))
@settings(max_examples=50)
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
