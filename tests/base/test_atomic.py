"""Files that are replaced whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from visioneval.atomic import write_whole


def test_text_and_bytes_replace_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, "Käse\n")
    assert path.read_bytes() == "Käse\n".encode()
    write_whole(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_a_reader_sees_the_older_content_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("older")
    with path.open(encoding="utf-8") as reader:
        write_whole(path, "new")
        assert (reader.read(), path.read_text()) == ("older", "new")


def test_a_failed_write_leaves_the_older_file_and_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "folder", "new")
    assert path.read_text() == "old"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.txt", "folder"]
