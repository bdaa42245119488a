"""The questions that a rater gets, and their order."""

from __future__ import annotations

from collections import Counter

import pytest
from record_factory import record

from visioneval import Record, UsageError
from visioneval.label.sampling import Candidate, Item, SelectionSpec, build_queue, pairs, select_candidates


def cells(count: int, verdicts: str = "P") -> list[Record]:
    names = {"P": "PASS", "F": "FAIL", "E": "ERROR"}
    return [record(test_id=f"case{at}", verdict=names[verdicts[at % len(verdicts)]]) for at in range(count)]


def subjects(count: int, verdicts: str = "P") -> list[Candidate]:
    return [Candidate(entry) for entry in cells(count, verdicts)]


def names(items: list[Item]) -> list[str]:
    return [item.subject.record.test_id for item in items]


@pytest.mark.parametrize("text", ["", "some", "random", "random:", "random:0", "random:-1", "all:3", "Random:3"])
def test_which_reports_its_allowed_values(text: str) -> None:
    with pytest.raises(UsageError, match="write all, random:N, stratified:N or disputed:N"):
        SelectionSpec.parse(text)


def test_random_selection_depends_on_the_seed() -> None:
    known = subjects(200)
    chosen = select_candidates(known, SelectionSpec.parse("random:20"), 1, lambda cell: 0)
    assert len(chosen) == 20
    assert chosen == select_candidates(list(reversed(known)), SelectionSpec.parse("random:20"), 1, lambda cell: 0)
    assert chosen != select_candidates(known, SelectionSpec.parse("random:20"), 2, lambda cell: 0)
    assert len(select_candidates(known, SelectionSpec.parse("random:999"), 1, lambda cell: 0)) == 200


def test_a_growing_run_changes_little_of_the_selection() -> None:
    before = {
        entry.record.test_id
        for entry in select_candidates(subjects(100), SelectionSpec.parse("random:50"), 1, lambda cell: 0)
    }
    after = {
        entry.record.test_id
        for entry in select_candidates(subjects(102), SelectionSpec.parse("random:50"), 1, lambda cell: 0)
    }
    assert len(before & after) >= 48


def test_stratified_alternates_between_verdicts() -> None:
    result = select_candidates(subjects(100, "PPPPPPPPFE"), SelectionSpec.parse("stratified:9"), 1, lambda cell: 0)
    assert Counter(entry.record.verdict for entry in result) == {"PASS": 3, "FAIL": 3, "ERROR": 3}
    all_of_few = select_candidates(subjects(10, "PPPPPPPPFE"), SelectionSpec.parse("stratified:6"), 1, lambda cell: 0)
    assert Counter(entry.record.verdict for entry in all_of_few) == {"PASS": 4, "FAIL": 1, "ERROR": 1}


def test_disputed_selection_uses_positive_weights_only() -> None:
    def weight(cell: Record) -> float:
        return {"case3": 2.0, "case7": 0.5, "case1": 1.0}.get(cell.test_id, 0.0)

    result = select_candidates(subjects(10), SelectionSpec.parse("disputed:9"), 1, weight)
    assert [entry.record.test_id for entry in result] == ["case3", "case1", "case7"]
    assert len(select_candidates(subjects(10), SelectionSpec.parse("disputed:2"), 1, weight)) == 2


def test_raters_get_the_same_items_in_different_order() -> None:
    known = subjects(30)
    ann, ben = build_queue(known, [], "ann", 1), build_queue(known, [], "ben", 1)
    assert sorted(names(ann)) == sorted(names(ben)) == sorted(entry.record.test_id for entry in known)
    assert names(ann) != names(ben)
    assert names(ann) != [entry.record.test_id for entry in known]
    assert ann == build_queue(list(reversed(known)), [], "ann", 1)
    assert names(ann) != names(build_queue(known, [], "ann", 2))


def test_sides_are_shuffled() -> None:
    sides = Counter(item.swapped for item in build_queue(subjects(200), [], "ann", 1))
    assert min(sides.values()) > 60


def test_item_ids_are_opaque_and_unique() -> None:
    items = build_queue(subjects(20), [], "ann", 1, 1.0)
    assert len({item.id for item in items}) == 40
    assert not [item for item in items if "case" in item.id or "repeat" in item.id]
    assert not {item.id for item in items} & {item.id for item in build_queue(subjects(20), [], "ben", 1, 1.0)}


def test_a_share_of_items_is_repeated() -> None:
    items = build_queue(subjects(100), [], "ann", 1, 0.2)
    first = {item.subject.record.test_id: at for at, item in enumerate(items) if item.turn == "first"}
    second = {item.subject.record.test_id: at for at, item in enumerate(items) if item.turn == "repeat"}
    assert (len(first), len(second)) == (100, 20)
    assert min(second[name] - first[name] for name in second) >= 10


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_repetition_follows_the_first_item_in_a_short_queue(count: int) -> None:
    items = build_queue(subjects(count), [], "ann", 1, 1.0)
    for name in set(names(items)):
        turns = [item.turn for item in items if item.subject.record.test_id == name]
        assert turns == ["first", "repeat"]


def test_anchors_come_first_and_once() -> None:
    known = subjects(20)
    items = build_queue(known, known[:3], "ann", 1)
    assert [item.turn for item in items[:4]] == ["anchor", "anchor", "anchor", "first"]
    assert sorted(names(items[:3])) == ["case0", "case1", "case2"]
    assert len(items) == 20


def two(label: str, run: str) -> list[Record]:
    return [record(run_id=run, test_id=name, model_label=label) for name in ("one", "two")]


def test_pairs_match_case_and_sample() -> None:
    result = pairs(two("old", "r1"), [*two("new", "r2"), record(run_id="r2", test_id="three", model_label="new")], "r2")
    assert [(entry.record.test_id, entry.other and entry.other.test_id) for entry in result] == [
        ("one", "one"),
        ("two", "two"),
    ]
    assert {entry.other_name for entry in result} == {"r2@new"}


def test_pairs_match_the_model_run_or_report_ambiguity() -> None:
    both = [*two("old", "r2"), *two("new", "r2")]
    assert {entry.other_name for entry in pairs(two("old", "r1"), both, "r2")} == {"r2@old"}
    with pytest.raises(UsageError, match=r"ambiguous model run; write r2@LABEL \(available: new, old\)"):
        pairs(two("third", "r1"), both, "r2")


def test_a_cell_is_never_paired_with_itself() -> None:
    assert pairs(two("old", "r1"), two("old", "r1"), "r1") == []
    assert {
        entry.record.model_label for entry in pairs([*two("old", "r1"), *two("new", "r1")], two("new", "r1"), "r1")
    } == {"old"}
