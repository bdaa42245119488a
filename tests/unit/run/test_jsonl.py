"""Files that several writers append to, and that one may replace meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from visioneval.records.files.jsonl import append_lines, locked
from visioneval.records.preferences import NAME, Preference, append_preferences, forget_preferences, read_preferences


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
    with locked(tmp_path / NAME) as file:
        writer = threading.Thread(target=forget_preferences, args=(tmp_path, "r", {("gone", "x", 0)}))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        file.write(preference("kept", "b").model_dump_json().encode() + b"\n")
    writer.join(30)
    assert read_preferences(tmp_path) == [preference("kept"), preference("kept", "b")]


def test_a_deleted_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), locked(tmp_path / "gone" / "lines"):
        pass
