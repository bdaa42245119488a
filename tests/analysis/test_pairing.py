"""Pairing of cells and changes of their verdicts."""

from __future__ import annotations

import pytest
from compare_factory import cell, side, verdicts

from visioneval import UsageError
from visioneval.analysis.compare.pairing import CHANGES, CellPair, pair_cells, parse_map


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
