"""Scores and sums that are added one at a time: results are those of a list of all numbers, in less memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval import Metric
from visioneval.analysis import scores as module
from visioneval.analysis.scores import ExactSum, Scores

NUMBERS = st.floats(-(2.0**63), 2.0**63) | st.sampled_from([0.1, 1e-320, 2.0**53, -(2.0**53), 1.0, -0.0])
SCALE = st.sampled_from([0, 1, True, False, 2.5, 0.1, -3])


@pytest.fixture(scope="module", autouse=True)
def small_limits() -> Iterator[None]:
    """Numbers are counted together after a few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_PARTS", 4)
        patch.setattr(module, "_MOST_ROWS", 8)
        patch.setattr(module, "_MOST_DISTINCT", 7)
        yield


@given(st.lists(NUMBERS, max_size=60))
def test_a_sum_is_exact_whatever_the_order(numbers: list[float]) -> None:
    for order in (numbers, sorted(numbers), numbers[::-1]):
        total = ExactSum()
        for number in order:
            total.add(number)
        assert (total.value, total.count) == (fsum(numbers), len(numbers))


@given(st.lists(st.tuples(SCALE | NUMBERS | st.none(), st.integers(0, 3)), max_size=80))
def test_scores_are_those_of_a_list(rows: list[tuple[float | None, int]]) -> None:
    scores = Scores()
    for score, case in rows:
        scores.add(score, case)
    measured = [(score, case) for score, case in rows if score is not None]
    assert (scores.n, scores.unmeasured) == (len(measured), len(rows) - len(measured))
    assert sorted(scores.values()) == sorted(score for score, _ in measured)
    groups = scores.by_case()
    assert list(groups) == list(dict.fromkeys(case for _, case in measured))
    for case, values in groups.items():
        assert sorted(values) == sorted(score for score, other in measured if other == case)


def test_samples_on_a_scale_take_no_more_memory() -> None:
    chance, scores = random.Random(0), Scores()
    for _ in range(5_000):
        scores.add(chance.randint(0, 5), chance.randint(0, 3))
    assert len(scores._values) <= 48
    assert scores.n == 5_000


def test_an_estimate_is_the_same_before_and_after_scores_are_counted_together() -> None:
    chance, together, apart = random.Random(0), Scores(), Scores()
    apart._limit = 10**9
    for _ in range(1_000):
        score, case = chance.randint(0, 5) / 10, chance.randint(0, 30)
        together.add(score, case)
        apart.add(score, case)
    metric = Metric(type="number", range=(0, 1))
    assert len(together._values) < 400
    assert together.estimate(metric) == apart.estimate(metric)
