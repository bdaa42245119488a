"""Files that several writers append to, and that one may replace meanwhile."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import pytest

from visioneval import StorageError
from visioneval.records.between_cells import Preference, append_preferences, forget_preferences, read_preferences
from visioneval.records.labels import Label, append_labels
from visioneval.records.reader import GrowingFile
from visioneval.records.writer import append_lines, locked
from visioneval.suite.entries.graders import PREFERENCES


def preference(case: str, first: str = "a") -> Preference:
    return Preference.model_validate(
        {"test_id": case, "sample_index": 0, "a": "r@x", "b": "r@y", "first": first, "answer": "tie", "reason": None,
         "judge": "j", "error": None}
    )  # fmt: skip


def test_a_writer_waiting_on_a_replaced_file_writes_to_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_lines(path, [b'"old"'])
    with locked(path):
        writer = threading.Thread(target=append_lines, args=(path, [b'"added"']))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        part = tmp_path / "part"
        part.write_bytes(b'"new"\n')
        part.replace(path)
    writer.join(30)
    assert path.read_bytes() == b'"new"\n"added"\n'


def test_answers_are_forgotten_when_no_other_writer_is_at_work(tmp_path: Path) -> None:
    append_preferences(tmp_path, [preference("gone"), preference("kept")])
    with locked(tmp_path / PREFERENCES) as file:
        writer = threading.Thread(target=forget_preferences, args=(tmp_path, "r", {("gone", "x", 0)}))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        file.write(preference("kept", "b").model_dump_json().encode() + b"\n")
    writer.join(30)
    assert read_preferences(tmp_path) == [preference("kept"), preference("kept", "b")]


def test_answers_have_one_order_however_judges_ended(tmp_path: Path) -> None:
    append_preferences(tmp_path, [preference("two"), preference("one", "b"), preference("one"), preference("two")])
    assert read_preferences(tmp_path) == [preference("one"), preference("one", "b"), preference("two")]


def test_a_deleted_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), locked(tmp_path / "gone" / "lines"):
        pass


@pytest.mark.parametrize(
    ("tail", "repaired"), [(b'{"cut', b""), (b'{"whole": 1}', b'{"whole": 1}\n'), (b'"caf\xc3', b""), (b"", b"")]
)
def test_a_line_that_a_kill_cut_off_does_not_spoil_the_next(tail: bytes, repaired: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'"first"\n' + tail)
    append_lines(path, [b'"next"'])
    assert path.read_bytes() == b'"first"\n' + repaired + b'"next"\n'


def test_a_full_disk_leaves_no_part_of_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_lines(path, [b'"first"'])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(StorageError, match="cannot write: File too large"):
            append_lines(path, [b'"second"', b'"%s"' % (b"x" * 3000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b'"first"\n'


def test_a_growing_file_is_read_on_and_one_that_shrank_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    labels = [
        Label(rater=rater, test_id="a", model_label="m", sample_index=0, question="q", answer=True,
              at="2026-01-01T00:00:00+00:00", source="page")
        for rater in ("ann", "bob", "eve")
    ]  # fmt: skip
    growing = GrowingFile(path, Label, "label")
    assert growing.new() == ([], False)
    append_labels(path, labels[:2])
    assert growing.new() == (labels[:2], True)
    with path.open("ab") as file:
        file.write(labels[2].model_dump_json().encode()[:40])
    assert growing.new() == ([], False)
    append_labels(path, labels[2:])
    assert growing.new() == (labels[2:], False)
    os.truncate(path, len(labels[0].model_dump_json()) + 1)  # in place, as an editor may write it
    assert growing.new() == (labels[:1], True)
    path.unlink()
    assert growing.new() == ([], True)
