"""Full disks, damaged or shared caches, and wrong clocks during paid runs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from api_runs import ApiRun, prompt
from fake_api import FakeAPI
from typer.testing import CliRunner

from visioneval import read_info
from visioneval.analysis.summary.summary import summarize
from visioneval.cli import app
from visioneval.report.html.overview import CellNumbers, overview
from visioneval.running import prepare as provenance
from visioneval.running.calls import cache as cache_module

pytestmark = pytest.mark.slow

CELLS, MANY = 12, 24
AT_ONCE = 4
IN_PROGRESS = 2 * AT_ONCE


@pytest.fixture
def api_run(tmp_path: Path, local_api: FakeAPI) -> ApiRun:
    return ApiRun(tmp_path, local_api, CELLS)


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A small disk; what it gives mounts it anew with other options."""
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_run_stopped_by_full_disk_can_be_resumed(tmp_path: Path, local_api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, local_api, MANY)
    with disk(tmp_path / "runs", "96k") as remount:
        program = api_run.program("--max-concurrency", str(AT_ONCE))
        out, errors = program.communicate(timeout=60)
        assert (program.returncode, out) == (3, ""), errors
        assert "Traceback" not in errors
        assert errors.splitlines()[-1].endswith(": No space left on device")
        assert "stopped: the records in runs/r are complete up to here" in errors
        assert CliRunner().invoke(app, ["show", "r"]).exit_code == 0
        assert "to resume: visioneval run --resume runs/r" in errors
        stored = len(api_run.records)
        assert 0 < stored < MANY
        for record in api_run.records:
            api_run.check(record)
        assert api_run.generated <= stored + IN_PROGRESS
        remount("size=8m")
        result = api_run.run(resume=True)
        assert result.exit_code == 0, result.output
        api_run.check_complete()
        assert api_run.repeated_calls <= IN_PROGRESS


def test_full_cache_disk_stops_the_run_and_costs_nothing_twice(tmp_path: Path, local_api: FakeAPI) -> None:
    """What is in flight is judged and recorded in the run, whose disk has room."""
    api_run = ApiRun(tmp_path, local_api, MANY)
    with disk(tmp_path / "cache", "192k") as remount:
        program = api_run.program("--max-concurrency", str(AT_ONCE))
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 3, errors
        assert "Traceback" not in errors
        assert "cache: cannot write to the cache: " in errors.splitlines()[-1]
        assert "to resume: visioneval run --resume runs/r" in errors
        stored = len(api_run.records)
        assert 0 < stored < MANY
        for record in api_run.records:
            api_run.check(record)
        assert (api_run.generated, api_run.judged) == (stored, stored)
        remount("size=8m")
        result = api_run.run(resume=True)
        assert result.exit_code == 0, result.output
        api_run.check_complete()
        assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (MANY, MANY, 0)


def test_read_only_disk_allows_neither_start_nor_resume(tmp_path: Path, api_run: ApiRun) -> None:
    with disk(tmp_path / "runs", "8m") as remount:
        remount("ro")
        result = api_run.run()
        assert (result.exit_code, api_run.generated) == (2, 0)
        assert result.stderr.strip() == "runs/r: cannot write the run here: Read-only file system"
        remount("rw")
        assert api_run.run("--limit", "3").exit_code == 0
        before = api_run.records
        remount("ro")
        result = api_run.run(resume=True)
        assert (result.exit_code, api_run.generated) == (2, 3)
        (line,) = result.stderr.splitlines()
        assert line == "runs/r: cannot resume this run: Read-only file system"
        assert api_run.records == before


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def removed(path: Path) -> None:
    path.unlink()


def swapped(path: Path) -> None:
    folder = path.parents[2 if path.suffix else 1]
    other = next(item for item in sorted(folder.rglob("*")) if item.is_file() and item != path)
    data = path.read_bytes()
    shutil.copyfile(other, path)
    other.write_bytes(data)


HARM = [truncated, removed, swapped]


def cached_image(api_run: ApiRun, at: int) -> Path:
    """The cached image of a cell, without a hard link from a run."""
    record = next(item for item in api_run.records if item.prompt == prompt(at))
    digest = str(record.artifact_sha256)
    path = api_run.cache / "files" / digest[:2] / digest
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("harm", HARM)
def test_only_damaged_cached_images_are_generated_again(api_run: ApiRun, harm: Callable[[Path], None]) -> None:
    assert api_run.run().exit_code == 0
    harm(cached_image(api_run, 5))
    result = api_run.run("--reuse", "all", out="others")
    assert result.exit_code == 0, result.output
    harmed = 2 if harm is swapped else 1
    warning = "cannot read a cached image: No such file" if harm is removed else "ignoring a damaged image in the cache"
    assert result.stderr.count(warning) == harmed
    assert api_run.run("--offline", out="replaced").exit_code == 0, "the file was replaced"
    assert (api_run.generated, api_run.judged) == (CELLS + harmed, CELLS)
    shutil.rmtree("runs")
    Path("others").rename("runs")
    api_run.check_complete()


@pytest.mark.parametrize("harm", HARM)
def test_only_damaged_cached_answers_are_paid_again(api_run: ApiRun, harm: Callable[[Path], None]) -> None:
    assert api_run.run().exit_code == 0
    paths = sorted(api_run.cache.glob("answers/*/*/*.json"))
    harmed = paths if harm is not swapped else paths[:1]
    for path in harmed:
        harm(path)
    shutil.rmtree("runs")
    result = api_run.run("--reuse", "all")
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert "Traceback" not in result.output
    again = 2 if harm is swapped else 2 * CELLS
    assert result.stderr.count("ignoring a damaged answer in the cache") == (0 if harm is removed else again)
    assert api_run.generated + api_run.judged == 2 * CELLS + again
    shutil.rmtree("runs")
    assert api_run.run("--reuse", "all").exit_code == 0
    assert api_run.generated + api_run.judged == 2 * CELLS + again


def test_concurrent_runs_share_one_cache(api_run: ApiRun) -> None:
    api_run.api.latency.update({"images": (0.01, 0.05), "judge": (0.01, 0.05)})
    both = [api_run.program("--max-concurrency", str(AT_ONCE), run_id=run_id) for run_id in ("r", "s")]
    for program in both:
        _, errors = program.communicate(timeout=60)
        assert program.returncode == 0, errors
        assert errors.count("cache") == 0, errors
    assert api_run.generated == 2 * CELLS
    assert CELLS <= api_run.judged <= 2 * CELLS
    api_run.check_complete()
    shutil.rmtree("runs/r")
    Path("runs/s").rename("runs/r")
    api_run.check_complete()
    shutil.rmtree("runs")
    assert api_run.run("--offline").exit_code == 0
    api_run.check_complete()
    assert api_run.generated == 2 * CELLS


def test_running_run_cannot_be_resumed_by_another_process(api_run: ApiRun) -> None:
    api_run.api.latency["images"] = 2
    program = api_run.program("--max-concurrency", str(AT_ONCE))
    while not api_run.api.requests:
        assert program.poll() is None
    result = api_run.run(resume=True)
    assert result.exit_code == 2
    assert result.stderr.strip() == "runs/r: another visioneval process is writing this run: wait for it to finish"
    api_run.api.latency.clear()
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    api_run.check_complete()
    assert api_run.repeated_calls == 0


def test_clock_set_back_changes_only_times(api_run: ApiRun, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api_run.run().exit_code == 0
    results = api_run.run_folder / "results.jsonl"
    results.write_bytes(b"".join(results.read_bytes().splitlines(keepends=True)[:10]))

    class YearsAgo(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.fromisoformat("2001-01-01T00:00:00+00:00")

    monkeypatch.setattr(cache_module, "datetime", YearsAgo)
    monkeypatch.setattr(provenance, "datetime", YearsAgo)
    result = api_run.run("suite.yaml", resume=True)
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert (api_run.generated, api_run.judged) == (CELLS, CELLS)
    info = read_info(api_run.run_folder)
    assert (info.ended_at or "") < info.started_at
    facts = overview(info, CellNumbers(), summarize(info, api_run.records))["facts"]
    assert "took" not in dict(facts)
    shutil.rmtree("runs")
    result = api_run.run("--offline")
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert (api_run.generated, api_run.judged) == (CELLS, CELLS)
