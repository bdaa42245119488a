"""The names and the order of the segments of a log in a store."""

from __future__ import annotations

import pytest

from visioneval import RunFormatError
from visioneval.records.stores.copies import is_safe_key, new_writer, next_segment, ordered_segments
from visioneval.records.writer import is_run_id

FIRST, SECOND, THIRD = "000001-aaaaaaaa-000001.jsonl", "000001-aaaaaaaa-000002.jsonl", "000002-00000000-000001.jsonl"


def test_segments_are_ordered_by_writer_and_number() -> None:
    assert ordered_segments([THIRD, SECOND, FIRST, ".DS_Store"], "r") == [FIRST, SECOND, THIRD]
    many = [f"000001-0f0f0f0f-{number:06d}.jsonl" for number in range(1, 13)]
    assert ordered_segments(reversed(many), "r") == many


def test_a_later_writer_comes_after_all_earlier_ones() -> None:
    known = [FIRST, THIRD]
    first = next_segment(new_writer(known))
    assert first.startswith("000003-")
    assert first.endswith("-000001.jsonl")
    assert ordered_segments([first, *known], "r") == [*known, first]
    second = next_segment(first, is_whole=True)
    assert second == first.replace("-000001.jsonl", "-000002.whole.jsonl")
    assert ordered_segments([next_segment(second), second, first], "r") == [first, second, next_segment(second)]
    assert new_writer(known, minimum=9).startswith("000009-")
    assert new_writer([]).startswith("000001-")
    assert new_writer([]) != new_writer([])


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
        ordered_segments(names, "s3://b/r/results")


@pytest.mark.parametrize(
    "name", ["x.jsonl", "1-a-1.jsonl", "000001-AAAAAAAA-000001.jsonl", "000001-aaaaaaaa-000001.old.jsonl"]
)
def test_a_foreign_file_is_an_error(name: str) -> None:
    with pytest.raises(RunFormatError, match="is not a segment of a run: move it away"):
        ordered_segments([name], "r")


def test_names_from_a_store_cannot_leave_a_folder() -> None:
    assert all(map(is_run_id, ("r", "20260101-a.b_c", "_x")))
    assert not any(map(is_run_id, ("", ".", "..", "-x", "a/b", "a b", "a\\b", "x" * 200)))
    assert all(map(is_safe_key, ("r/artifacts/a/m/0.png", "a b/ü.png", "..a/b")))
    assert not any(map(is_safe_key, ("", "/a", "a//b", "a/../b", "..", "a/.", "a\\b", "a\0b", "a/", "c:/a", "a:b")))
