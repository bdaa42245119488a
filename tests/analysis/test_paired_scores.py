"""Sums by case and matching cells, against the plain way of computing them."""

from __future__ import annotations

from fractions import Fraction
from math import fsum, nan
from typing import TYPE_CHECKING

import numpy as np
from compare_factory import cell, side
from hypothesis import given, settings
from hypothesis import strategies as st

from visioneval.analysis.compare.differences import scores_difference
from visioneval.analysis.compare.pairing import pair_cells
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.analysis.compare.differences import PairScores

NUMBERS = (
    st.booleans() | st.integers(-3, 9) | st.floats(-1e18, 1e18) | st.sampled_from([0.1, 1 / 3, 1e16, -1e16, 2.0**62])
)
ROWS = st.lists(st.tuples(st.integers(0, 4), NUMBERS | st.none(), NUMBERS | st.none()), max_size=40)
NAMES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"), st.integers(0, 3)), unique=True, max_size=20)


def columns(rows: list[tuple[int, float | None, float | None]]) -> PairScores:
    """The case, and the score of each side, of pairs."""
    case, a, b = (np.array([nan if row[at] is None else float(row[at]) for row in rows]) for at in range(3))
    return case, a, b


@given(ROWS, st.booleans())
@settings(max_examples=50)
def test_sums_are_rounded_once_in_any_order(rows: list[tuple[int, float | None, float | None]], in_order: bool) -> None:
    rows = sorted(rows, key=lambda row: row[0]) if in_order else rows
    measured = [(case, a, b) for case, a, b in rows if a is not None and b is not None]
    groups = {at: [(a, b) for case, a, b in measured if case == at] for at in sorted({case for case, _, _ in measured})}
    changes = [sum((Fraction(b) - Fraction(a) for a, b in pairs), Fraction()) for pairs in groups.values()]
    difference = scores_difference("x", Metric(type="number"), columns(rows))
    assert difference.unmeasured == len(rows) - len(measured)
    if measured:
        higher, lower = sum(b > a for _, a, b in measured), sum(b < a for _, a, b in measured)
        assert (difference.higher, difference.lower) == (higher, lower)
        means = [(fsum(a for a, _ in pairs) / len(pairs), len(pairs)) for pairs in groups.values()]
        assert difference.a == fsum(mean for mean, _ in means) / len(means)
        expected = [float(change) / number for change, (_, number) in zip(changes, means, strict=True)]
        assert difference.difference == fsum(expected) / len(expected)


@given(NAMES, NAMES, st.sampled_from([{"m": "m", "n": "n"}, {"m": "n"}, {"n": "m", "m": "n"}, {}]))
@settings(max_examples=50)
def test_cells_are_matched_by_their_names(
    a: list[tuple[str, str, int]], b: list[tuple[str, str, int]], renamed: dict[str, str]
) -> None:
    a, b = [*a, ("z", "m", 0)], [("z", renamed.get("m", "m"), 0), *b]
    sides = (side([cell(case, model_label=label, sample_index=at) for case, label, at in names]) for names in (a, b))
    pairing = pair_cells(*sides, renamed)
    labels = dict(pairing.labels)
    names_in_b = {name: (name[0], labels[name[1]], name[2]) for name in a if name[1] in labels}
    names_in_a = {in_b: in_a for in_a, in_b in names_in_b.items()}
    assert [(pair.a.key, pair.b.key) for pair in pairing.pairs] == [(names_in_a[n], n) for n in b if n in names_in_a]
    assert [*pairing.only_a.names()] == [name for name in a if names_in_b.get(name) not in b]
    assert [*pairing.only_b.names()] == [name for name in b if name not in names_in_a]
