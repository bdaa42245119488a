"""Runs that cannot be written: one clear message, and recorded cells are preserved."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from fork_server import COMMAND
from toys import Toy

from visioneval import read_info, read_records
from visioneval.records.writer import RunWriter

pytestmark = pytest.mark.slow


def file_as_folder(folder: Path) -> Path:
    (folder / "taken").write_text("a file")
    return folder / "taken"


def below_a_file(folder: Path) -> Path:
    return file_as_folder(folder) / "deeper" / "runs"


def nowhere(folder: Path) -> Path:
    return Path("/proc/nowhere/runs")


def name_too_long(folder: Path) -> Path:
    return folder / ("x" * 300)


def read_only(folder: Path) -> Path:
    (folder / "locked").mkdir(mode=0o500)
    if os.access(folder / "locked", os.W_OK):
        pytest.skip("this user may write everywhere")
    return folder / "locked" / "runs"


@pytest.mark.parametrize("position", [file_as_folder, below_a_file, nowhere, name_too_long, read_only])
def test_unwritable_folder_is_a_usage_error_and_generates_nothing(toy: Toy, position: Any) -> None:
    out = position(toy.folder)
    result = toy.run({}, arguments=("--runs", str(out)))
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(str(out))
    assert "cannot write the run here: " in line


def test_existing_run_id_is_a_usage_error(toy: Toy) -> None:
    path = toy.write({})
    assert toy("run", path, "--trust-suite", "--run-id", "one").exit_code == 0
    before = {item: item.read_bytes() for item in toy.latest.rglob("*") if item.is_file()}
    result = toy("run", path, "--trust-suite", "--run-id", "one")
    assert result.exit_code == 2
    assert result.stderr.strip() == "runs/one: already exists: use another --run-id"
    assert {item: item.read_bytes() for item in toy.latest.rglob("*") if item.is_file()} == before


def mounted(folder: Path, size: str) -> None:
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")


def test_full_disk_at_start_creates_no_run(toy: Toy) -> None:
    disk = toy.folder / "runs"
    mounted(disk, "8k")
    try:
        (disk / "full").write_bytes(b"x" * 8192)
        program = toy.program("run", toy.write({}), "--trust-suite")
        out, errors = program.communicate(timeout=60)
        assert program.returncode == 3, errors
        (line,) = errors.splitlines()
        assert "No space left on device" in line
        assert out == ""
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_file_size_limit_preserves_complete_records(toy: Toy) -> None:
    """Wherever no small disk can be mounted: a limit on the size of files does the same to results.jsonl."""
    toy.outputs("a.png")
    path = toy.write({}, samples=300, models=[{"provider": "files", "path": "a.png"}])
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))"
    program = toy.program("run", path, "--trust-suite", code=f"{limit}\n{COMMAND}")
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 3, errors
    assert ": cannot write " in errors.splitlines()[-1]
    assert "Traceback" not in errors
    data = (toy.latest / "results.jsonl").read_bytes()
    assert data.endswith(b"\n")
    assert len(list(read_records(toy.latest))) == data.count(b"\n") > 5
    assert read_info(toy.latest).state == "interrupted"


def test_deleted_folder_ends_the_run(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace_folder(self: RunWriter, *arguments: Any, **more: Any) -> str:
        with lock:
            if (self.folder / "artifacts").is_dir():
                (self.folder / "artifacts").rmdir()
                (self.folder / "artifacts").write_text("in the way")
        return saved(self, *arguments, **more)

    saved, lock = RunWriter.save, threading.Lock()
    monkeypatch.setattr(RunWriter, "save", replace_folder)
    result = toy.run({}, {}, arguments=("--max-concurrency", "1"))
    assert result.exit_code == 3
    assert "cannot write: " in result.stderr
    assert "Traceback" not in result.output
    assert read_info(toy.latest).state == "interrupted"
