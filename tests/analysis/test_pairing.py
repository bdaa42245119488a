"""Pairing of cells, changes of their verdicts, and sums of scores, against the plain way of computing them."""

from __future__ import annotations

from fractions import Fraction
from math import fsum, nan
from typing import TYPE_CHECKING

import numpy as np
import pytest
from compare_factory import cell, side, verdicts
from hypothesis import given, settings
from hypothesis import strategies as st

from visioneval import UsageError
from visioneval.analysis.compare.differences import scores_difference
from visioneval.analysis.compare.pairing import CHANGES, CellPair, pair_cells, parse_map
from visioneval.types import Metric

if TYPE_CHECKING:
    from visioneval.analysis.compare.differences import PairScores
from visioneval.analysis.scores import Scores
from visioneval.analysis.summary.counts import Money


def test_cells_are_paired_by_case_sample_and_model_run() -> None:
    a = side([cell(model_label=label, sample_index=at) for label in ("x", "y") for at in (0, 1)])
    b = side([cell(model_label=label, sample_index=at) for label in ("y", "z") for at in (1, 2)], "b")
    result = pair_cells(a, b)
    assert [(pair.a.model_label, pair.b.model_label, pair.b.sample_index) for pair in result.pairs] == [("y", "y", 1)]
    assert result.labels == (("y", "y"),)
    assert [(item.model_label, item.sample_index) for item in result.only_a] == [("x", 0), ("x", 1), ("y", 0)]
    assert [(item.model_label, item.sample_index) for item in result.only_b] == [("y", 2), ("z", 1), ("z", 2)]


def test_single_model_runs_are_paired_regardless_of_their_labels() -> None:
    result = pair_cells(side([cell(model_label="old")]), side([cell(model_label="new")], "b"))
    assert result.labels == (("old", "new"),)
    assert not result.only_a
    assert not result.only_b


def test_renamed_labels() -> None:
    a = side([cell(model_label=label) for label in ("old", "same")])
    b = side([cell(model_label=label) for label in ("new", "same")], "b")
    assert pair_cells(a, b, {"old": "new"}).labels == (("old", "new"), ("same", "same"))
    assert pair_cells(a, b, {"old": "same"}).labels == (("old", "same"),)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["odl=new"], r"--map 'odl=new': no model run 'odl' in a \(did you mean 'old'\?\)"),
        (["old=newt"], r"--map 'old=newt': no model run 'newt' in b \(did you mean 'new'\?\)"),
        (["old"], "--map 'old': write OLD=NEW"),
        (["old=new", "old=same"], "--map 'old=same': OLD is given twice"),
    ],
)
def test_invalid_map_is_rejected(entries: list[str], message: str) -> None:
    a = side([cell(model_label=label) for label in ("old", "same")])
    b = side([cell(model_label=label) for label in ("new", "same")], "b")
    with pytest.raises(UsageError, match=message):
        parse_map(entries, a, b)


def test_map_accepts_labels_with_equals_signs() -> None:
    a, b = side([cell(model_label="mock,flaw=none")]), side([cell(model_label="mock,flaw=none,seed=1")], "b")
    assert parse_map(["mock,flaw=none=mock,flaw=none,seed=1"], a, b) == {"mock,flaw=none": "mock,flaw=none,seed=1"}
    a, b = (side([cell(model_label=label) for label in ("x", "x=x")], name) for name in "ab")
    with pytest.raises(UsageError, match="the labels are ambiguous"):
        parse_map(["x=x=x"], a, b)


def test_map_rejects_two_labels_for_one() -> None:
    a = side([cell(model_label=label) for label in ("old", "same")])
    with pytest.raises(UsageError, match="cannot map two model runs of A to one of B"):
        pair_cells(a, side([cell(model_label="new")], "b"), {"old": "new", "same": "new"})


def test_runs_without_common_cells_are_rejected() -> None:
    two, other = [cell(model_label="x"), cell(model_label="y")], [cell(model_label="z"), cell(model_label="w")]
    with pytest.raises(
        UsageError, match=r"the runs have no model run in common: a has x, y; b has z, w: .*--map OLD=NEW"
    ):
        pair_cells(side(two), side(other, "b"))
    with pytest.raises(UsageError, match="the runs have no cell in common: a has the cases one; b has two"):
        pair_cells(side([cell("one")]), side([cell("two")], "b"))
    with pytest.raises(UsageError, match=r"in common \(a is of the suite demo, b of shop\): a has x, y; b has z, w: "):
        pair_cells(side(two), side(other, "b", suite="shop"))
    with pytest.raises(UsageError, match="b: no cell matches the filters"):
        pair_cells(side([cell("one")]), side([], "b"))


def test_change_of_every_pair_of_verdicts() -> None:
    result = pair_cells(side(verdicts("PPPFFF!!!")), side(verdicts("PF!PF!PF!"), "b"))
    assert [pair.change for pair in result.pairs] == [
        "still_passing",
        "broken",
        "error_after",
        "fixed",
        "still_failing",
        "error_after",
        "error_before",
        "error_before",
        "still_error",
    ]
    assert set(CHANGES) == {pair.change for pair in result.pairs}


def test_properties_of_a_pair() -> None:
    before = cell(failed_rules=("copy", "look >= 3"), tags=("text",), artifact_sha256="f" * 64)
    after = cell(failed_rules=("look >= 3", "place"), tags=("must_pass",), flaky=True, artifact_sha256="f" * 64)
    pair = CellPair(before, after)
    assert (pair.rules_broken, pair.rules_fixed) == (("place",), ("copy",))
    assert (pair.same_output, pair.flaky, pair.must_pass, pair.tags) == (True, False, True, ("must_pass", "text"))
    assert CellPair(after, before).flaky
    assert not CellPair(cell(), cell()).same_output


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


AMOUNTS = st.floats(-(2.0**63), 2.0**63) | st.sampled_from([0.1, 1e-320, 2.0**53, -(2.0**53), 1.0, -0.0])
SCALE = st.sampled_from([0, 1, True, False, 2.5, 0.1, -3])


@given(st.lists(AMOUNTS, max_size=60))
@settings(max_examples=40)
def test_a_sum_is_exact_whatever_the_order(numbers: list[float]) -> None:
    for order in (numbers, sorted(numbers), numbers[::-1]):
        money = Money()
        for number in order:
            money.add(number)
        assert (money.usd, money.paid) == (fsum(numbers) if numbers else None, len(numbers))


@given(st.lists(st.tuples(SCALE | AMOUNTS | st.none(), st.integers(0, 3)), max_size=80))
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
