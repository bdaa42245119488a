"""The names and the order of the segments of a log in a store."""

from __future__ import annotations

import pytest

from visioneval.errors import RunFormatError
from visioneval.records.stores.segments import (
    SegmentName,
    effective,
    is_run_id,
    is_safe_key,
    new_writer,
    parse_segments,
)

FIRST, SECOND, THIRD = "000001-aaaaaaaa-000001.jsonl", "000001-aaaaaaaa-000002.jsonl", "000002-00000000-000001.jsonl"


def test_segments_are_ordered_by_writer_and_number() -> None:
    assert [str(name) for name in parse_segments([THIRD, SECOND, FIRST, ".DS_Store"], "r")] == [FIRST, SECOND, THIRD]
    many = [SegmentName(1, "0f0f0f0f", number) for number in range(1, 13)]
    assert parse_segments(map(str, reversed(many)), "r") == many


def test_a_later_writer_comes_after_all_earlier_ones() -> None:
    known = parse_segments([FIRST, THIRD], "r")
    writer = new_writer(known)
    assert (writer.epoch, writer.number) == (3, 0)
    assert max([*known, writer.next()]) == writer.next()
    assert new_writer(known, minimum=9).epoch == 9
    assert new_writer([]).epoch == 1
    assert new_writer([]).nonce != new_writer([]).nonce


def test_a_whole_segment_replaces_all_before_it() -> None:
    names = parse_segments([FIRST, SECOND, "000002-00000000-000001.whole.jsonl", "000002-00000000-000002.jsonl"], "r")
    assert [str(name) for name in effective(names)] == [
        "000002-00000000-000001.whole.jsonl",
        "000002-00000000-000002.jsonl",
    ]
    assert effective(names[:2]) == names[:2]
    assert effective([]) == []


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ([SECOND], FIRST),
        ([FIRST, "000001-aaaaaaaa-000003.jsonl"], SECOND),
        ([FIRST, "000002-00000000-000002.jsonl"], THIRD),
    ],
)
def test_a_missing_segment_is_an_error(names: list[str], missing: str) -> None:
    with pytest.raises(RunFormatError, match=f"^s3://b/r/results: the segment {missing} is missing: restore it"):
        parse_segments(names, "s3://b/r/results")


@pytest.mark.parametrize(
    "name", ["x.jsonl", "1-a-1.jsonl", "000001-AAAAAAAA-000001.jsonl", "000001-aaaaaaaa-000001.old.jsonl"]
)
def test_a_foreign_file_is_an_error(name: str) -> None:
    with pytest.raises(RunFormatError, match="is not a segment of a run: move it away"):
        parse_segments([name], "r")


def test_names_from_a_store_cannot_leave_a_folder() -> None:
    assert all(map(is_run_id, ("r", "20260101-a.b_c", "_x")))
    assert not any(map(is_run_id, ("", ".", "..", "-x", "a/b", "a b", "a\\b", "x" * 200)))
    assert all(map(is_safe_key, ("r/artifacts/a/m/0.png", "a b/ü.png", "..a/b")))
    assert not any(map(is_safe_key, ("", "/a", "a//b", "a/../b", "..", "a/.", "a\\b", "a\0b", "a/")))
