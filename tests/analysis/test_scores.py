"""Scores and sums that are added one at a time: results are those of a list of all numbers."""

from __future__ import annotations

from math import fsum

from hypothesis import given, settings
from hypothesis import strategies as st

from visioneval.analysis.scores import Scores
from visioneval.analysis.summary.counts import Money

NUMBERS = st.floats(-(2.0**63), 2.0**63) | st.sampled_from([0.1, 1e-320, 2.0**53, -(2.0**53), 1.0, -0.0])
SCALE = st.sampled_from([0, 1, True, False, 2.5, 0.1, -3])


@given(st.lists(NUMBERS, max_size=60))
@settings(max_examples=40)
def test_a_sum_is_exact_whatever_the_order(numbers: list[float]) -> None:
    for order in (numbers, sorted(numbers), numbers[::-1]):
        money = Money()
        for number in order:
            money.add(number)
        assert (money.usd, money.paid) == (fsum(numbers) if numbers else None, len(numbers))


@given(st.lists(st.tuples(SCALE | NUMBERS | st.none(), st.integers(0, 3)), max_size=80))
@settings(max_examples=40)
def test_scores_are_those_of_a_list(rows: list[tuple[float | None, int]]) -> None:
    scores = Scores()
    for score, case in rows:
        scores.add(score, case)
    measured = [(score, case) for score, case in rows if score is not None]
    assert (scores.n, scores.unmeasured) == (len(measured), len(rows) - len(measured))
    assert sorted(scores.values) == sorted(score for score, _ in measured)
    groups = scores.by_case()
    assert list(groups) == list(dict.fromkeys(case for _, case in measured))
    for case, values in groups.items():
        assert sorted(values) == sorted(score for score, other in measured if other == case)
