"""Tests of the cache, including damaged, shared and read-only folders."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from caches import ONE, TWO, CacheOpener, digest, files, named, read_only
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.engine.calls.caching.cache import Cache
from visioneval.errors import UsageError
from visioneval.records.writer import hard_link


@pytest.fixture
def open_cache(tmp_path: Path) -> CacheOpener:
    return CacheOpener(tmp_path / "cache")


def test_cache_round_trip(open_cache: CacheOpener) -> None:
    answer = {"text": "ä \u2028", "usage": {"input_tokens": 3}, "cost_usd": 0.25, "refused": None, "calls": []}
    with open_cache("r1") as cache:
        assert cache.get("generate:1") is None
        cache.put("generate:1", "generate", answer, named(ONE, TWO))
        cache.put("judge:1", "judge", {"text": "yes"})
    with open_cache("r2") as cache:
        stored = cache.get("generate:1")
        assert stored is not None
        assert (stored.answer, stored.run_id) == (answer, "r1")
        assert stored.stored_at.endswith("+00:00")
        assert [cache.read(name) for name, _ in named(ONE, TWO)] == [ONE, TWO]
        assert (cache.info().generations, cache.info().judgements, cache.info().oldest) == (1, 1, stored.stored_at)
        assert cache.info().bytes > len(ONE) + len(TWO)
    assert open_cache.warned == []
    assert [path.name for path in open_cache.folder.iterdir() if path.is_file()] == ["index.sqlite"]


def test_new_answer_replaces_old_answer_and_images(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        cache.put("generate:1", "generate", {"n": 1}, named(ONE, TWO))
        cache.put("generate:2", "generate", {"n": 2}, named(TWO, TWO))
        cache.put("generate:1", "generate", {"n": 3}, named(b"new"))
        stored = cache.get("generate:1")
        assert stored is not None
        assert stored.answer == {"n": 3}
        assert cache.info().generations == 2
        assert cache.read(digest(TWO)) == TWO, "another answer names it"
    assert files(open_cache.folder) == {digest(TWO), digest(b"new")}, "what nobody names takes no room"


def test_storing_the_same_answer_again_preserves_its_image(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        for _ in range(2):
            cache.put("generate:1", "generate", {}, named(ONE))
        assert cache.read(digest(ONE)) == ONE


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(ONE[:5]),
        lambda path: path.write_bytes(bytes(len(ONE))),
        lambda p: p.write_bytes(b""),
    ],
    ids=["truncated", "zeroed", "emptied"],
)
def test_damaged_image_is_a_miss_and_is_replaced_by_next_answer(open_cache: CacheOpener, damage: Any) -> None:
    with open_cache() as cache:
        cache.put("generate:1", "generate", {}, named(ONE))
        damage(cache.path(digest(ONE)))
        assert cache.read(digest(ONE)) is None
        (warning,) = open_cache.warned
        assert warning == f"{cache.path(digest(ONE))}: ignoring a damaged image in the cache"
        cache.put("generate:1", "generate", {}, named(ONE))
        assert cache.read(digest(ONE)) == ONE
        damage(cache.path(digest(ONE)))
        cache.put("generate:1", "generate", {}, named(ONE))
        assert cache.read(digest(ONE)) == ONE, "though nobody looked in between"


def test_an_output_that_is_edited_in_place_is_a_miss_of_the_cache_that_shares_its_file(
    open_cache: CacheOpener, tmp_path: Path
) -> None:
    output = tmp_path / "output.png"
    with open_cache() as cache:
        cache.put("generate:1", "generate", {}, named(ONE))
        assert hard_link(cache.file(digest(ONE)), output)
        output.write_bytes(TWO)
        assert cache.read(digest(ONE)) is None
        cache.put("generate:1", "generate", {}, named(ONE))
        assert (cache.read(digest(ONE)), output.read_bytes()) == (ONE, TWO)


def test_swapped_images_are_misses(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        cache.put("generate:1", "generate", {}, named(ONE))
        cache.put("generate:2", "generate", {}, named(TWO))
        single, two = cache.path(digest(ONE)), cache.path(digest(TWO))
        single.write_bytes(TWO)
        two.write_bytes(ONE)
        assert [cache.read(digest(item)) for item in (ONE, TWO)] == [None, None]
        assert len(open_cache.warned) == 2


def test_missing_image_is_a_miss(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        cache.put("generate:1", "generate", {}, named(ONE))
        cache.path(digest(ONE)).unlink()
        assert cache.read(digest(ONE)) is None
    assert open_cache.warned[0].endswith("cannot read a cached image: No such file or directory")


def test_invalid_json_answer_is_a_miss(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        cache.put("judge:1", "judge", {"text": "yes"})
    with closing(sqlite3.connect(open_cache.folder / "index.sqlite")) as index, index:
        index.execute("UPDATE answers SET answer = ?", (b"{{{",))
    with open_cache() as cache:
        assert cache.get("judge:1") is None
    assert "ignoring a damaged" in open_cache.warned[0]


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"\xff" * 8192], ids=["words", "bytes"])
def test_damaged_index_is_moved_away(open_cache: CacheOpener, content: bytes) -> None:
    with open_cache() as cache:
        cache.put("judge:1", "judge", {})
    index = open_cache.folder / "index.sqlite"
    index.write_bytes(content)
    with open_cache() as cache:
        assert cache.get("judge:1") is None
        cache.put("judge:1", "judge", {"n": 2})
    (warning,) = open_cache.warned
    assert warning.startswith(f"{index}: the cache's index is damaged (")
    assert warning.endswith("): moved it to index.sqlite.damaged and started a new one")
    assert (open_cache.folder / "index.sqlite.damaged").read_bytes() == content
    with open_cache() as cache:
        assert cache.get("judge:1") is not None


def test_index_with_late_damage_is_moved_away(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        for at in range(400):
            cache.put(f"judge:{at}", "judge", {"text": "x" * 200})
    index = open_cache.folder / "index.sqlite"
    data = index.read_bytes()
    index.write_bytes(data[:4096] + b"\xaa" * (len(data) - 4096))
    with open_cache() as cache:
        assert cache.get("judge:1") is None
        cache.put("judge:1", "judge", {"n": 2})
        stored = cache.get("judge:1")
        assert stored is not None
        assert stored.answer == {"n": 2}
    assert len(open_cache.warned) == 2
    assert "ignoring a damaged entry" in open_cache.warned[0]
    assert "started a new one" in open_cache.warned[1]


@pytest.mark.parametrize("arguments", [["info"], ["clear", "--yes"]])
def test_commands_give_advice_for_damaged_index(open_cache: CacheOpener, arguments: list[str]) -> None:
    with open_cache() as cache:
        for at in range(400):
            cache.put(f"judge:{at}", "judge", {"text": "x" * 200})
    index = open_cache.folder / "index.sqlite"
    data = index.read_bytes()
    index.write_bytes(data[:4096] + b"\xaa" * (len(data) - 4096))
    done = CliRunner().invoke(app, ["cache", *arguments, "--cache", str(open_cache.folder)])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{open_cache.folder}: the cache cannot be used (")
    assert line.endswith("choose another folder with --cache")


@pytest.mark.parametrize("days", ["inf", "1e9", "-1", "nan", "x"])
def test_invalid_days_are_a_usage_error(open_cache: CacheOpener, days: str) -> None:
    with open_cache():
        pass
    done = CliRunner().invoke(app, ["cache", "clear", "--cache", str(open_cache.folder), "--older-than", days])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("visioneval cache clear: --older-than: ")


def test_empty_index_is_initialized(open_cache: CacheOpener) -> None:
    open_cache.folder.mkdir()
    (open_cache.folder / "index.sqlite").write_bytes(b"")
    with open_cache() as cache:
        cache.put("judge:1", "judge", {})
        assert cache.get("judge:1") is not None
    assert open_cache.warned == []


def test_newer_cache_is_unchanged(open_cache: CacheOpener) -> None:
    open_cache.folder.mkdir()
    with closing(sqlite3.connect(open_cache.folder / "index.sqlite")) as index, index:
        index.execute("PRAGMA user_version = 3")
        index.execute("CREATE TABLE something (else_ TEXT)")
    before = (open_cache.folder / "index.sqlite").read_bytes()
    with (
        pytest.raises(
            UsageError, match=r"written by another version of visioneval \(format 3\): choose another folder"
        ),
        open_cache(),
    ):
        pass
    assert (open_cache.folder / "index.sqlite").read_bytes() == before


def test_rejects_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"contains other files but no cache: choose another folder"):
        Cache(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    other = sqlite3.connect(tmp_path / "index.sqlite")
    other.execute("CREATE TABLE songs (name TEXT)")
    other.close()
    with pytest.raises(UsageError, match=r"index\.sqlite: not an index of a visioneval cache: choose another folder"):
        Cache(tmp_path)
    (tmp_path / "index.sqlite").unlink()
    (tmp_path / "notes.txt").rename(tmp_path / ".gitignore")
    (tmp_path / "files").mkdir()
    Cache(tmp_path).close()
    (tmp_path / "notes.txt").write_text("beside a cache")
    Cache(tmp_path).close()


@pytest.mark.parametrize("position", ["a_file", "a_file/below", "\0"])
def test_unusable_folder_is_a_usage_error(tmp_path: Path, position: str) -> None:
    (tmp_path / "a_file").write_text("here first")
    if position == "\0":
        position = "x" * 300
    with pytest.raises(UsageError, match="the cache cannot be used"):
        Cache(tmp_path / position)
    assert (tmp_path / "a_file").read_text() == "here first"


def test_read_only_folder_is_opened_for_reading(open_cache: CacheOpener) -> None:
    with open_cache() as cache:
        cache.put("generate:1", "generate", {"n": 1}, named(ONE))
    with read_only(open_cache.folder):
        with open_cache() as cache:
            stored = cache.get("generate:1")
            assert stored is not None
            assert (stored.answer, cache.read(digest(ONE))) == ({"n": 1}, ONE)
            assert cache.info().generations == 1
            assert open_cache.warned == []
            for _ in range(2):
                cache.put("generate:2", "generate", {}, named(TWO))
            assert cache.get("generate:2") is None
        assert open_cache.warned == [f"{open_cache.folder}: the cache is read-only: new answers are not cached"]
        done = CliRunner().invoke(app, ["cache", "clear", "--yes", "--cache", str(open_cache.folder)])
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"{open_cache.folder}: the cache cannot be used (")
        assert CliRunner().invoke(app, ["cache", "info", "--cache", str(open_cache.folder)]).exit_code == 0


@pytest.mark.parametrize("is_new", [True, False])
def test_an_image_that_is_deleted_before_its_answer_is_in_the_index_is_stored_again(
    open_cache: CacheOpener, is_new: bool
) -> None:
    """As another process may do that clears the cache: no answer refers to the image yet."""
    deleted: list[Path] = []
    with open_cache() as cache:
        if not is_new:
            cache.put("generate:1", "generate", {"n": 1}, named(TWO))

        def delete(statement: str) -> None:
            if statement.startswith("INSERT") and not deleted:
                cache.path(digest(ONE)).unlink()
                deleted.append(cache.path(digest(ONE)))

        cache._index.set_trace_callback(delete)
        cache.put("generate:1", "generate", {"n": 2}, named(ONE))
        assert (len(deleted), cache.read(digest(ONE))) == (1, ONE)


WRITER = """\
import sys
from hashlib import sha256
from pathlib import Path
from visioneval.engine.calls.caching.cache import Cache

folder, me = Path(sys.argv[1]), sys.argv[2]
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
with Cache(folder, run_id=me, warn=sys.exit) as cache:
    for round in range(20):
        for key in range(5):
            data = f"{key} {round % 3}".encode() * 500
            cache.put(f"generate:{key}", "generate", {"by": me, "round": round}, [(sha256(data).hexdigest(), data)])
            kept = cache.get(f"generate:{key}")
            assert kept is not None and kept.answer["by"] == kept.run_id, kept
"""


def test_concurrent_processes_write_the_same_answers(open_cache: CacheOpener) -> None:
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(open_cache.folder), str(me)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for me in range(3)
    ]  # fmt: skip
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    ended = [(program.communicate(timeout=60)[1], program.returncode) for program in programs]
    assert ended == [("", 0)] * 3
    with open_cache() as cache:
        assert cache.info().generations == 5
        for key in range(5):
            stored = cache.get(f"generate:{key}")
            assert stored is not None
            assert stored.answer["round"] == 19
        named_files = {name for (name,) in sqlite_rows(open_cache.folder, "SELECT files FROM answers")}
        assert all(cache.read(name) is not None for name in named_files)
    assert files(open_cache.folder) >= named_files
    assert open_cache.warned == []


def sqlite_rows(folder: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "index.sqlite")) as index:
        return index.execute(query).fetchall()


def test_concurrent_threads_use_one_cache(open_cache: CacheOpener) -> None:
    failed: list[BaseException] = []

    def write(cache: Cache, me: int) -> None:
        try:
            for at in range(20):
                cache.put(f"generate:{at}", "generate", {"by": me}, named(ONE, f"{at}".encode()))
                assert cache.read(digest(ONE)) == ONE
        except BaseException as error:
            failed.append(error)

    with open_cache() as cache:
        threads = [threading.Thread(target=write, args=(cache, me)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (failed, cache.info().generations) == ([], 20)
    assert len(files(open_cache.folder)) == 21
