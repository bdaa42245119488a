"""Full disks, damaged or shared caches, and wrong clocks during paid runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from api_runs import Paid, prompt, scripted
from fake_api import FakeAPI

from visioneval.analysis.summary import summarize
from visioneval.engine.calls import cache as cache_module
from visioneval.engine.prepare import provenance
from visioneval.records.model import read_info
from visioneval.report.html.overview import overview

CELLS = 24
AT_ONCE = 4
IN_THE_WORKS = 2 * AT_ONCE


@pytest.fixture
def api() -> Iterator[FakeAPI]:
    with FakeAPI(scripted()) as server:
        yield server


@pytest.fixture
def paid(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> Paid:
    monkeypatch.chdir(tmp_path)
    return Paid(tmp_path, api, CELLS)


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A small disk; what it gives mounts it anew with other options."""
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")

    def again(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)

    try:
        yield again
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_run_stopped_by_full_disk_can_be_resumed(tmp_path: Path, paid: Paid) -> None:
    with disk(tmp_path / "runs", "96k") as again:
        program = paid.program("--max-concurrency", str(AT_ONCE))
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 3, errors
        assert "Traceback" not in errors
        assert errors.splitlines()[-1].endswith(": No space left on device")
        assert "to resume: visioneval run --resume runs/r" in errors
        stored = len(paid.records)
        assert 0 < stored < CELLS
        for record in paid.records:
            paid.check(record)
        assert paid.generated <= stored + IN_THE_WORKS
        again("size=8m")
        result = paid.run(resume=True)
        assert result.exit_code == 0, result.output
        paid.check_whole()
        assert paid.paid_again <= IN_THE_WORKS


def test_full_cache_disk_stops_the_run(tmp_path: Path, paid: Paid) -> None:
    with disk(tmp_path / "cache", "192k") as again:
        program = paid.program("--max-concurrency", str(AT_ONCE))
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 3, errors
        assert "Traceback" not in errors
        assert "cache: cannot write to the cache: " in errors.splitlines()[-1]
        stored = len(paid.records)
        assert stored < CELLS
        for record in paid.records:
            paid.check(record)
        assert paid.generated <= stored + IN_THE_WORKS
        again("size=8m")
        result = paid.run(resume=True)
        assert result.exit_code == 0, result.output
        paid.check_whole()
        assert paid.paid_again <= IN_THE_WORKS


def test_read_only_disk_allows_neither_start_nor_resume(tmp_path: Path, paid: Paid) -> None:
    with disk(tmp_path / "runs", "8m") as again:
        again("ro")
        result = paid.run()
        assert (result.exit_code, paid.generated) == (2, 0)
        assert result.stderr.strip() == "runs/r: cannot write the run here: Read-only file system"
        again("rw")
        assert paid.run("--limit", "3").exit_code == 0
        before = paid.records
        again("ro")
        result = paid.run(resume=True)
        assert (result.exit_code, paid.generated) == (2, 3)
        (line,) = result.stderr.splitlines()
        assert line == "runs/r: cannot resume this run: Read-only file system"
        assert paid.records == before


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink()


def swapped(path: Path) -> None:
    other = next(item for item in path.parent.parent.glob("*/*") if item != path)
    data = path.read_bytes()
    shutil.copyfile(other, path)
    other.write_bytes(data)


HARM = [truncated, zeroed, emptied, removed, swapped]


def kept_image(paid: Paid, at: int) -> Path:
    """Where the cache keeps the image of a cell, with no other name in a run."""
    record = next(item for item in paid.records if item.prompt == prompt(at))
    digest = str(record.artifact_sha256)
    path = paid.cache / "files" / digest[:2] / digest
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("harm", HARM)
def test_only_damaged_cached_images_are_generated_again(paid: Paid, harm: Callable[[Path], None]) -> None:
    assert paid.run().exit_code == 0
    harm(kept_image(paid, 5))
    result = paid.run("--reuse", "all", out="others")
    assert result.exit_code == 0, result.output
    harmed = 2 if harm is swapped else 1
    warning = "cannot read a cached image: No such file" if harm is removed else "ignoring a damaged image in the cache"
    assert result.stderr.count(warning) == harmed
    assert (paid.generated, paid.judged) == (CELLS + harmed, CELLS)
    shutil.rmtree("runs")
    Path("others").rename("runs")
    paid.check_whole()


@pytest.mark.parametrize("harm", [truncated, zeroed, emptied])
def test_fresh_run_ignores_damaged_cache(paid: Paid, harm: Callable[[Path], None]) -> None:
    assert paid.run().exit_code == 0
    harm(kept_image(paid, 5))
    shutil.rmtree("runs")
    assert paid.run().exit_code == 0
    paid.check_whole()
    assert (paid.generated, paid.judged) == (2 * CELLS, CELLS)


@pytest.mark.parametrize("harm", [truncated, zeroed, emptied, removed])
def test_damaged_index_costs_new_answers_but_no_run(paid: Paid, harm: Callable[[Path], None]) -> None:
    assert paid.run().exit_code == 0
    for tail in ("-wal", "-shm"):
        (paid.cache / f"index.sqlite{tail}").unlink(missing_ok=True)
    harm(paid.cache / "index.sqlite")
    shutil.rmtree("runs")
    result = paid.run("--reuse", "all")
    assert result.exit_code == 0, result.output
    paid.check_whole()
    assert "Traceback" not in result.output
    before = paid.generated
    shutil.rmtree("runs")
    assert paid.run("--reuse", "all").exit_code == 0
    assert paid.generated == before


def test_concurrent_runs_share_one_cache(paid: Paid) -> None:
    paid.api.latency.update({"images": (0.01, 0.05), "judge": (0.01, 0.05)})
    both = [paid.program("--max-concurrency", str(AT_ONCE), run_id=run_id) for run_id in ("r", "s")]
    for program in both:
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 0, errors
        assert errors.count("cache") == 0, errors
    assert paid.generated == 2 * CELLS
    assert CELLS <= paid.judged <= 2 * CELLS
    paid.check_whole()
    shutil.rmtree("runs/r")
    Path("runs/s").rename("runs/r")
    paid.check_whole()
    shutil.rmtree("runs")
    assert paid.run("--offline").exit_code == 0
    paid.check_whole()
    assert paid.generated == 2 * CELLS


def test_running_run_cannot_be_resumed_by_another_process(paid: Paid) -> None:
    paid.api.latency["images"] = 2
    program = paid.program("--max-concurrency", str(AT_ONCE))
    while not paid.api.requests:
        assert program.poll() is None
    result = paid.run(resume=True)
    assert result.exit_code == 2
    assert "another visioneval process is writing this run" in result.stderr
    paid.api.latency.clear()
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    paid.check_whole()
    assert paid.paid_again == 0


def test_clock_set_back_changes_only_times(paid: Paid, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paid.run().exit_code == 0
    results = paid.run_folder / "results.jsonl"
    results.write_bytes(b"".join(results.read_bytes().splitlines(keepends=True)[:10]))

    class YearsAgo(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.fromisoformat("2001-01-01T00:00:00+00:00")

    monkeypatch.setattr(cache_module, "datetime", YearsAgo)
    monkeypatch.setattr(provenance, "datetime", YearsAgo)
    result = paid.run("suite.yaml", resume=True)
    assert result.exit_code == 0, result.output
    paid.check_whole()
    assert (paid.generated, paid.judged) == (CELLS, CELLS)
    info = read_info(paid.run_folder)
    assert (info.ended_at or "") < info.started_at
    facts = overview(info, paid.records, summarize(info, paid.records))["facts"]
    assert "took" not in dict(facts)
    shutil.rmtree("runs")
    result = paid.run("--offline")
    assert result.exit_code == 0, result.output
    paid.check_whole()
    assert (paid.generated, paid.judged) == (CELLS, CELLS)
