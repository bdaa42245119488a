"""What a worker of a cluster writes: no file that a record names is ever replaced by another worker's."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from visioneval import StorageError
from visioneval.records.writer import OutputWriter
from visioneval.scale.ray.worker import ExclusiveWriter, named_by_content

OLD, NEW = b"an output", b"another output"
CELL = ("tree", "m")


@pytest.fixture
def worker(tmp_path: Path) -> ExclusiveWriter:
    return exclusive(tmp_path)


def exclusive(folder: Path, **more: Any) -> ExclusiveWriter:
    info: Any = None
    return ExclusiveWriter(folder, info, **more)


def test_usual_name(worker: ExclusiveWriter, tmp_path: Path) -> None:
    assert worker.save(*CELL, "0.png", OLD) == "artifacts/tree/m/0.png"
    assert [path.name for path in (tmp_path / "artifacts/tree/m").iterdir()] == ["0.png"]


def test_late_worker_replaces_nothing(worker: ExclusiveWriter, tmp_path: Path) -> None:
    """Whichever of two attempts is the later one, both files stay as they were."""
    first = worker.save(*CELL, "0.png", OLD)
    second = exclusive(tmp_path).save(*CELL, "0.png", NEW)
    assert second == f"artifacts/tree/m/{named_by_content('0.png', NEW)}"
    assert worker.save(*CELL, "0.png", OLD) == first
    assert exclusive(tmp_path).save(*CELL, "0.png", NEW) == second
    assert (tmp_path / first).read_bytes() == OLD
    assert (tmp_path / second).read_bytes() == NEW
    assert len(list((tmp_path / "artifacts/tree/m").iterdir())) == 2


@pytest.mark.parametrize("is_linked", [True, False])
def test_file_of_the_cache(worker: ExclusiveWriter, tmp_path: Path, is_linked: bool) -> None:
    """It is linked where the name is free; a symbolic link is copied."""
    source = tmp_path / "cached"
    source.write_bytes(OLD)
    if not is_linked:
        (tmp_path / "link").symlink_to(source)
        source = tmp_path / "link"
    saved = tmp_path / worker.save(*CELL, "0.png", None, source=source)
    assert saved.read_bytes() == OLD
    assert saved.samefile(source) == is_linked
    assert tmp_path / worker.save(*CELL, "0.png", None, source=source) == saved
    source.unlink()
    source.write_bytes(NEW)
    other = tmp_path / worker.save(*CELL, "0.png", None, source=source)
    assert (saved.read_bytes(), other.read_bytes()) == (OLD, NEW)


def test_without_hard_links_every_name_is_by_content(
    worker: ExclusiveWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr("os.link", refuse)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    source = tmp_path / "cached"
    source.write_bytes(NEW)
    assert worker.save(*CELL, "0.png", OLD) == f"artifacts/tree/m/{named_by_content('0.png', OLD)}"
    assert worker.save(*CELL, "0.png", None, source=source) == f"artifacts/tree/m/{named_by_content('0.png', NEW)}"
    assert len(list((tmp_path / "artifacts/tree/m").iterdir())) == 2


def test_full_disk_is_no_reason_for_another_name(worker: ExclusiveWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(StorageError, match=r"artifacts/tree/m/0\.png: cannot write: No space left"):
        worker.save(*CELL, "0.png", OLD)


def test_a_resume_in_one_process_keeps_its_output(worker: ExclusiveWriter, tmp_path: Path) -> None:
    """It replaces what a lost worker left, which then cannot replace it again."""
    info: Any = None
    worker.save(*CELL, "0.png", OLD)
    OutputWriter(tmp_path, info).save(*CELL, "0.png", NEW)
    assert worker.save(*CELL, "0.png", OLD) != "artifacts/tree/m/0.png"
    assert (tmp_path / "artifacts/tree/m/0.png").read_bytes() == NEW


def test_names_by_content() -> None:
    name = named_by_content("0.look.crop.1.png", OLD)
    assert name.startswith("0.look.crop.1-")
    assert name.endswith(".png")
    assert name != named_by_content("0.look.crop.1.png", NEW)
    assert exclusive(Path(), by_content=True)._by_content
    assert named_by_content("0", OLD).startswith("0-")
