"""Sums by case and matching cells, against the plain way of computing them."""

from __future__ import annotations

from array import array
from fractions import Fraction
from math import fsum, nan
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from visioneval.analysis.compare.differences import case_sums, scores_difference
from visioneval.records.cell_names import CellColumns, matching_positions, without
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
def test_sums_are_rounded_once_in_any_order(rows: list[tuple[int, float | None, float | None]], in_order: bool) -> None:
    rows = sorted(rows, key=lambda row: row[0]) if in_order else rows
    measured = [(case, a, b) for case, a, b in rows if a is not None and b is not None]
    groups = {at: [(a, b) for case, a, b in measured if case == at] for at in sorted({case for case, _, _ in measured})}
    result = case_sums(columns(measured))
    assert list(result.pairs) == [len(pairs) for pairs in groups.values()]
    assert list(result.before) == [fsum(a for a, _ in pairs) for pairs in groups.values()]
    exact = [sum((Fraction(b) - Fraction(a) for a, b in pairs), Fraction()) for pairs in groups.values()]
    assert list(result.change) == [float(change) for change in exact]
    difference = scores_difference("x", Metric(type="number"), columns(rows))
    assert difference.unmeasured == len(rows) - len(measured)
    if measured:
        higher, lower = sum(b > a for _, a, b in measured), sum(b < a for _, a, b in measured)
        assert (difference.higher, difference.lower) == (higher, lower)


@given(NAMES, NAMES, st.sampled_from([{"m": "m", "n": "n"}, {"m": "n"}, {"n": "m", "m": "n"}, {}]))
def test_cells_are_matched_by_their_names(
    a: list[tuple[str, str, int]], b: list[tuple[str, str, int]], labels: dict[str, str]
) -> None:
    in_a, in_b = matching_positions(CellColumns.of(iter(a)), CellColumns.of(iter(b)), labels)
    places = {(case, labels[label], sample): at for at, (case, label, sample) in enumerate(a) if label in labels}
    expected = [(places[name], at) for at, name in enumerate(b) if name in places]
    assert list(zip(in_a, in_b, strict=True)) == expected
    assert without(in_a, len(a)) == array("i", sorted({*range(len(a))} - {at for at, _ in expected}))
