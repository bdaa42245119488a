"""Tests of the cache size limit and the cache commands."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from caches import ONE, TWO, CacheOpener, abandon, answer_files, digest, files, named
from typer.testing import CliRunner

from visioneval import UsageError
from visioneval.cli import app
from visioneval.running.calls.cache import MAX_GB_VARIABLE, Cache, LocalFolder, default_folder, store_content
from visioneval.running.calls.cache_files import tidy


@pytest.fixture
def open_cache(tmp_path: Path) -> CacheOpener:
    return CacheOpener(tmp_path / "cache")


def test_oldest_answers_are_deleted_first(open_cache: CacheOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    images = {at: bytes([at]) * 1000 for at in range(8)}
    cache = open_cache()
    for at, data in images.items():
        cache.put(f"generate{at}", "generate", {}, named(data, ONE))
    open_cache.age(**{f"generate{at}": f"2025-01-0{8 - at}" for at in images})
    monkeypatch.setenv(MAX_GB_VARIABLE, "0.000006")
    cache = open_cache()
    assert cache.max_bytes == 6000
    cache.put("judge:new", "judge", {"text": "x" * 500})
    stored = {at for at in images if cache.get(f"generate{at}") is not None}
    assert stored == {0, 1, 2}, "the newest that fit, as the later numbers are older"
    assert size(open_cache.folder) <= 6000
    assert cache.read(digest(ONE)) == ONE, "others name it still"
    assert cache.get("judge:new") is not None
    assert files(open_cache.folder) == {digest(data) for data in (images[0], images[1], images[2], ONE)}
    assert open_cache.warned == []


@pytest.mark.parametrize("setting", ["much", "-1", "0", "nan", "inf"])
def test_invalid_size_is_a_usage_error(open_cache: CacheOpener, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv(MAX_GB_VARIABLE, setting)
    with pytest.raises(UsageError, match=f"{MAX_GB_VARIABLE}: '{setting}' is not a number of gigabytes"):
        open_cache()


def test_clear_deletes_old_or_all_answers(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("old", "generate", {}, named(ONE, TWO))
    cache.put("new", "generate", {}, named(TWO))
    open_cache.age(old="2025-01-01", new="2025-03-01")
    where = ("--cache", str(open_cache.folder))
    for day, deleted in ((datetime(2024, 12, 31, tzinfo=UTC), 0), (datetime(2025, 2, 1, tzinfo=UTC), 1)):
        age = (datetime.now(UTC) - day) / timedelta(days=1)
        lines = command("clear", "--older-than", str(age), *where)
        assert lines == [f"deleted {deleted} answers from {open_cache.folder}"]
    assert (cache.get("old"), cache.read(digest(TWO))) == (None, TWO)
    assert command("info", *where)[-1] == "oldest        2025-03-01T00:00:00+00:00"
    assert files(open_cache.folder) == {digest(TWO)}


def test_what_killed_processes_left_is_deleted_once_nobody_can_be_writing_it(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("a", "generate", {}, named(ONE))
    (answer,) = answer_files(open_cache.folder)
    image = cache.path(digest(TWO))
    left = [image, image.with_name(f".{digest(TWO)}.1.2.part"), answer.with_name(f".{answer.name}.1.2.part")]
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(TWO)
    where = ("--cache", str(open_cache.folder))
    assert command("verify", *where)[-1].endswith("1 answer, 2 images, 0 questions with several answers, 0 problems")
    for is_there in (True, False):
        assert command("clear", "--yes", *where) == [f"deleted {int(is_there)} answers from {open_cache.folder}"]
        assert [path.exists() for path in left] == [is_there] * 3
        for path in left if is_there else ():
            abandon(path)
    assert files(open_cache.folder) == set()


def test_an_image_that_is_stored_again_is_not_taken_for_one_that_a_killed_process_left(
    open_cache: CacheOpener,
) -> None:
    cache = open_cache()
    cache.put("a", "generate", {}, named(ONE))
    abandon(cache.path(digest(ONE)))
    store_content(cache.path(digest(ONE)), ONE)  # of an answer that is being stored
    for path in answer_files(open_cache.folder):
        path.unlink()
    command("clear", "--yes", "--cache", str(open_cache.folder))
    assert cache.read(digest(ONE)) == ONE


def test_measurements_are_removed_before_paid_answers(open_cache: CacheOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_GB_VARIABLE, "1e-5")
    cache = open_cache()
    cache.put("judge:1", "judge", {"text": "x" * 4000})
    for at in range(7):
        cache.put(f"measure:{at}", "measure", {"text": "x" * 1000})
    tidy(LocalFolder(open_cache.folder), cache.max_bytes)
    assert cache.get("judge:1") is not None
    measured = [at for at in range(7) if cache.get(f"measure:{at}") is not None]
    assert 0 < len(measured) < 7
    assert measured == list(range(7))[-len(measured) :], "the oldest go first"


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def command(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, ["cache", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines: list[str] = done.stdout.splitlines()
    return lines


def test_cache_commands_show_and_clear(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("a", "generate", {}, named(bytes(200_000)))
    cache.put("b", "judge", {})
    cache.put("c", "judge", {})
    cache.put("d", "measure", {})
    open_cache.age(a="2025-01-01")
    shown = dict(line.split(maxsplit=1) for line in command("info", "--cache", str(open_cache.folder)))
    assert shown == {
        "folder": str(open_cache.folder),
        "generations": "1",
        "judgments": "2",
        "measurements": "1",
        "size": "0.2 MB of at most 20 GB",
        "oldest": "2025-01-01T00:00:00+00:00",
    }
    where = ("--cache", str(open_cache.folder))
    assert command("clear", "--older-than", "30", *where) == [f"deleted 1 answers from {open_cache.folder}"]
    assert command("clear", "--yes", *where) == [f"deleted 3 answers from {open_cache.folder}"]
    assert command("info", *where)[-1] == "oldest        -"


def test_cache_commands_use_default_folder() -> None:
    custom = default_folder()
    assert custom == Path(os.environ["XDG_CACHE_HOME"]) / "visioneval"
    cache = Cache(custom)
    cache.put("b", "judge", {})
    assert f"folder        {custom}" in command("info")
    assert command("clear", "--yes") == [f"deleted 1 answers from {custom}"]


def test_default_folder_is_in_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path(os.environ["HOME"]) / ".cache" / "visioneval"
