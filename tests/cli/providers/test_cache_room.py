"""Tests of the cache size limit and the cache commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from caches import ONE, TWO, CacheOpener, digest, files, named
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.engine.calls.caching.cache import MAX_GB_VARIABLE, Cache, default_folder
from visioneval.errors import UsageError


@pytest.fixture
def open_cache(tmp_path: Path) -> CacheOpener:
    return CacheOpener(tmp_path / "cache")


def test_oldest_answers_are_deleted_first(open_cache: CacheOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    images = {at: bytes([at]) * 1000 for at in range(8)}
    with open_cache() as cache:
        for at, data in images.items():
            cache.put(f"generate{at}", "generate", {}, named(data, ONE))
    open_cache.age(**{f"generate{at}": f"2025-01-0{8 - at}T00:00:00+00:00" for at in images})
    monkeypatch.setenv(MAX_GB_VARIABLE, "0.000004")
    with open_cache() as cache:
        assert cache.max_bytes == 4000
        cache.put("judge:new", "judge", {"text": "x" * 500})
        stored = {at for at in images if cache.get(f"generate{at}") is not None}
        assert stored == {0, 1}, "the newest that fit, as the later numbers are older"
        assert cache.info().bytes <= 3000
        assert cache.read(digest(ONE)) == ONE, "others name it still"
        assert cache.get("judge:new") is not None
    assert files(open_cache.folder) == {digest(images[0]), digest(images[1]), digest(ONE)}
    assert open_cache.warned == []


@pytest.mark.parametrize("setting", ["much", "-1", "0", "nan", "inf"])
def test_invalid_size_is_a_usage_error(open_cache: CacheOpener, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv(MAX_GB_VARIABLE, setting)
    with pytest.raises(UsageError, match=f"{MAX_GB_VARIABLE}: '{setting}' is not a number of gigabytes"), open_cache():
        pass


def test_clear_deletes_old_or_all_answers(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        cache.put("old", "generate", {}, named(ONE, TWO))
        cache.put("new", "generate", {}, named(TWO))
    open_cache.age(old="2025-01-01T00:00:00+00:00", new="2025-03-01T00:00:00+00:00")
    with open_cache() as cache:
        assert cache.clear("2025-01-01T00:00:00+00:00") == 0
        assert cache.clear("2025-02-01T00:00:00+00:00") == 1
        assert (cache.get("old"), cache.read(digest(TWO))) == (None, TWO)
        assert cache.info().oldest == "2025-03-01T00:00:00+00:00"
    assert files(open_cache.folder) == {digest(TWO)}
    (open_cache.folder / "files" / "ab").mkdir(exist_ok=True)
    (open_cache.folder / "files" / "ab" / ("ab" * 32)).write_bytes(b"what a killed program left")
    with open_cache() as cache:
        assert cache.clear() == 1
        assert (cache.info().generations, cache.info().bytes, cache.info().oldest) == (0, 0, None)
    assert files(open_cache.folder) == set()


def test_measurements_are_removed_before_paid_answers(open_cache: CacheOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAX_GB_VARIABLE, "1e-5")
    with open_cache() as cache:
        cache.put("judge:1", "judge", {"text": "x" * 4000})
        for at in range(7):
            cache.put(f"measure:{at}", "measure", {"text": "x" * 1000})
        cache.tidy()
        state = cache.info()
        assert (state.judgements, state.entries) == (1, 1 + state.measurements)
        assert 0 < state.measurements < 7
        assert cache.get("measure:6") is not None, "the oldest go first"


def command(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, ["cache", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    lines: list[str] = done.stdout.splitlines()
    return lines


def test_cache_commands_show_and_clear(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        cache.put("a", "generate", {}, named(bytes(200_000)))
        cache.put("b", "judge", {})
        cache.put("c", "judge", {})
        cache.put("d", "measure", {})
    open_cache.age(a="2025-01-01T00:00:00+00:00")
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
    with Cache(custom) as cache:
        cache.put("b", "judge", {})
    assert f"folder        {custom}" in command("info")
    assert command("clear", "--yes") == [f"deleted 1 answers from {custom}"]


def test_default_folder_is_in_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path(os.environ["HOME"]) / ".cache" / "visioneval"
