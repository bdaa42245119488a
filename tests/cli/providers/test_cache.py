"""Tests of the cache, including damaged, shared and read-only folders."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from caches import ONE, TWO, CacheOpener, answer_files, digest, files, named, read_only
from typer.testing import CliRunner

from visioneval import UsageError
from visioneval.cli import app
from visioneval.records.writer import hard_link
from visioneval.running.calls.cache import Cache, store_content


@pytest.fixture
def open_cache(tmp_path: Path) -> CacheOpener:
    return CacheOpener(tmp_path / "cache")


def test_cache_round_trip(open_cache: CacheOpener) -> None:
    answer = {"text": "ä \u2028", "usage": {"input_tokens": 3}, "cost_usd": 0.25, "refused": None, "calls": []}
    cache = open_cache("r1")
    assert cache.get("generate:1") is None
    cache.put("generate:1", "generate", answer, named(ONE, TWO))
    cache.put("judge:1", "judge", {"text": "yes"})
    cache = open_cache("r2")
    stored = cache.get("generate:1")
    assert stored is not None
    assert (stored.answer, stored.run_id) == (answer, "r1")
    assert stored.stored_at.endswith("+00:00")
    assert [cache.read(name) for name, _ in named(ONE, TWO)] == [ONE, TWO]
    assert open_cache.warned == []
    assert [path.name for path in open_cache.folder.iterdir() if path.is_file()] == ["visioneval-cache.json"]


def test_the_newest_answer_is_read_and_none_is_changed(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("generate:1", "generate", {"n": 1}, named(ONE))
    (first,) = answer_files(open_cache.folder)
    before = first.read_bytes()
    open_cache("other").put("generate:1", "generate", {"n": 2}, named(TWO))
    assert [(entry.answer["n"], entry.run_id) for entry in cache.answers("generate:1")] == [(2, "other"), (1, "r")]
    assert cache.get("generate:1") == next(cache.answers("generate:1"))
    assert first.read_bytes() == before
    assert [cache.read(digest(data)) for data in (ONE, TWO)] == [ONE, TWO]


def test_a_clock_that_is_set_back_does_not_hide_a_new_answer(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("judge:1", "judge", {"n": 1})
    open_cache.age(**{"judge:1": "2999-01-01"})
    cache.put("judge:1", "judge", {"n": 2})
    newest = cache.get("judge:1")
    assert newest is not None
    assert (newest.answer, newest.stored_at) == ({"n": 2}, "2999-01-01T00:00:00.000001+00:00")


@pytest.mark.parametrize(
    "time", ["9999-12-31T23:59:59.999999+00:00", "2026-13-45T99:99:99.000000+00:00", "0000-01-01T00:00:00.000000+00:00"]
)
def test_an_answer_of_an_impossible_time_is_ignored_as_damaged(open_cache: CacheOpener, time: str) -> None:
    """No later answer could be newer than the first."""
    cache = open_cache()
    cache.put("judge:1", "judge", {"n": 1})
    (path,) = answer_files(open_cache.folder)
    data = json.dumps({**json.loads(path.read_bytes()), "stored_at": time}).encode()
    hostile = path.with_name(f"{digest(data)}.json")
    hostile.write_bytes(data)
    path.unlink()
    assert cache.get("judge:1") is None
    assert open_cache.warned == [f"{hostile}: ignoring a damaged answer in the cache: it is no answer"]
    cache.put("judge:1", "judge", {"n": 2})
    newest = cache.get("judge:1")
    assert newest is not None
    assert newest.answer == {"n": 2}
    info, verified = (
        CliRunner().invoke(app, ["cache", command, "--cache", str(open_cache.folder)]) for command in ("info", "verify")
    )
    assert (info.exit_code, verified.exit_code) == (0, 1)
    assert hostile.name in verified.output
    assert "1 problem" in verified.output


def test_a_measurement_with_the_same_result_has_one_file(open_cache: CacheOpener) -> None:
    for answer, files_of_answers in (({"n": 1}, 1), ({"n": 1}, 1), ({"n": 2}, 2)):
        open_cache().put("measure:1", "measure", answer, named(ONE))
        assert len(answer_files(open_cache.folder)) == files_of_answers
    open_cache().path(digest(ONE)).unlink()
    open_cache().put("measure:1", "measure", {"n": 2}, named(ONE))
    assert open_cache().read(digest(ONE)) == ONE


def test_storing_the_same_answer_again_preserves_its_image(open_cache: CacheOpener) -> None:
    cache = open_cache()
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
    cache = open_cache()
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
    cache = open_cache()
    cache.put("generate:1", "generate", {}, named(ONE))
    assert hard_link(cache.path(digest(ONE)), output)
    output.write_bytes(TWO)
    assert cache.read(digest(ONE)) is None
    cache.put("generate:1", "generate", {}, named(ONE))
    assert (cache.read(digest(ONE)), output.read_bytes()) == (ONE, TWO)


def test_swapped_images_are_misses(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("generate:1", "generate", {}, named(ONE))
    cache.put("generate:2", "generate", {}, named(TWO))
    single, two = cache.path(digest(ONE)), cache.path(digest(TWO))
    single.write_bytes(TWO)
    two.write_bytes(ONE)
    assert [cache.read(digest(item)) for item in (ONE, TWO)] == [None, None]
    assert len(open_cache.warned) == 2


def test_missing_image_is_a_miss(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("generate:1", "generate", {}, named(ONE))
    cache.path(digest(ONE)).unlink()
    assert cache.read(digest(ONE)) is None
    assert open_cache.warned[0].endswith("cannot read a cached image: No such file or directory")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def edited(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"n":2', b'"n":3'))


def in_conflict_markers(path: Path) -> None:
    text = path.read_bytes()
    path.write_bytes(b"<<<<<<< HEAD\n" + text + b"\n=======\n" + text + b"\n>>>>>>> branch\n")


def with_line_ends(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\r\n")


def renamed(path: Path) -> None:
    path.rename(path.with_name(f"{'ab' * 32}.json"))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [cut, emptied, edited, in_conflict_markers, with_line_ends, renamed, a_folder], ids=lambda d: d.__name__
)
def test_a_damaged_answer_is_ignored_once_and_the_one_before_it_counts(open_cache: CacheOpener, damage: Any) -> None:
    cache = open_cache()
    cache.put("judge:1", "judge", {"n": 1})
    cache.put("judge:1", "judge", {"n": 2})
    (newest,) = (path for path, entry in answer_files(open_cache.folder).items() if entry.answer == {"n": 2})
    damage(newest)
    for _ in range(2):
        stored = cache.get("judge:1")
        assert stored is not None
        assert stored.answer == {"n": 1}
    (warning,) = open_cache.warned
    assert "ignoring a damaged answer in the cache: " in warning
    cache.put("judge:1", "judge", {"n": 4})
    stored = cache.get("judge:1")
    assert stored is not None
    assert stored.answer == {"n": 4}


def test_a_doubled_answer_and_files_of_editors_do_not_count(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("judge:1", "judge", {"n": 1})
    (path,) = answer_files(open_cache.folder)
    for name in (f"{path.stem} (1).json", f"{path.name}.orig", f"{path.name}~"):
        (path.parent / name).write_bytes(path.read_bytes())
    assert [entry.answer for entry in cache.answers("judge:1")] == [{"n": 1}]
    assert len(open_cache.warned) == 3


def test_an_answer_to_another_question_is_a_miss(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("judge:1", "judge", {"n": 1})
    cache.put("judge:2", "judge", {"n": 2})
    one, two = sorted(answer_files(open_cache.folder), key=lambda path: path.read_bytes())
    one.rename(two.parent / one.name)
    assert cache.get("judge:1") is None
    assert [entry.answer for entry in cache.answers("judge:2")] == [{"n": 2}]
    assert open_cache.warned[0].endswith("ignoring a damaged answer in the cache: it answers another question")


@pytest.mark.parametrize(
    "changes", [{"files": ("../../victim",)}, {"stored_at": "tomorrow"}, {"answer": ["a list"]}, {"kind": "other"}]
)
def test_a_hostile_answer_is_a_miss(open_cache: CacheOpener, changes: dict[str, Any]) -> None:
    """Its name is right, so that somebody made it."""
    cache = open_cache()
    cache.put("judge:1", "judge", {"n": 1})
    (path,) = answer_files(open_cache.folder)
    data = json.dumps(json.loads(path.read_bytes()) | changes).encode()
    path.unlink()
    path.with_name(f"{digest(data)}.json").write_bytes(data)
    assert cache.get("judge:1") is None
    assert open_cache.warned[0].endswith("it is no answer")


@pytest.mark.parametrize("days", ["inf", "1e9", "-1", "nan", "x"])
def test_invalid_days_are_a_usage_error(open_cache: CacheOpener, days: str) -> None:
    open_cache()
    done = CliRunner().invoke(app, ["cache", "clear", "--cache", str(open_cache.folder), "--older-than", days])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("visioneval cache clear: --older-than: ")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        (b'{"visioneval_cache":2}', "written by another version of visioneval (format 2): choose another folder"),
        (b'{"visioneval_cache":99}', "written by another version of visioneval (format 99): choose another folder"),
        (b"", "visioneval-cache.json is damaged: restore it, or delete it"),
        (b"<<<<<<< HEAD\n", "visioneval-cache.json is damaged: restore it, or delete it"),
        (b"[]", "visioneval-cache.json is damaged: restore it, or delete it"),
    ],
)
def test_a_cache_of_another_format_is_refused_and_unchanged(open_cache: CacheOpener, mark: bytes, message: str) -> None:
    open_cache.folder.mkdir()
    path = open_cache.folder / "visioneval-cache.json"
    path.write_bytes(mark)
    with pytest.raises(UsageError, match=re.escape(message)):
        open_cache()
    assert (path.read_bytes(), len(list(open_cache.folder.iterdir()))) == (mark, 1)


@pytest.mark.parametrize("command", [["info"], ["verify"], ["clear", "--yes"], ["prune", "--keep", "suite.yaml"]])
def test_a_cache_of_the_earlier_layout_is_refused_with_one_line(open_cache: CacheOpener, command: list[str]) -> None:
    (open_cache.folder / "files").mkdir(parents=True)
    (open_cache.folder / "index.sqlite").write_bytes(b"SQLite format 3")
    (open_cache.folder / "index.sqlite-wal").write_bytes(b"")
    with pytest.raises(UsageError, match=r"a cache of an earlier version of visioneval \(index\.sqlite\)") as refused:
        open_cache()
    done = CliRunner().invoke(app, ["cache", *command, "--cache", str(open_cache.folder)])
    assert (done.exit_code, done.stderr) == (2, f"{refused.value}\n")
    assert str(refused.value).endswith("is no longer read: delete it, or choose another folder with --cache")
    assert {path.name for path in open_cache.folder.iterdir()} == {"files", "index.sqlite", "index.sqlite-wal"}


def test_a_cache_without_its_mark_is_read(open_cache: CacheOpener) -> None:
    open_cache().put("judge:1", "judge", {"n": 1})
    (open_cache.folder / "visioneval-cache.json").unlink()
    (open_cache.folder / ".gitattributes").write_text("files/** filter=lfs")
    assert CliRunner().invoke(app, ["cache", "verify", "--cache", str(open_cache.folder)]).exit_code == 0
    (open_cache.folder / "visioneval-cache.json").unlink()
    assert open_cache().get("judge:1") is not None
    (open_cache.folder / "index.sqlite").write_bytes(b"of a branch with the earlier layout, merged")
    assert open_cache().get("judge:1") is not None


def test_rejects_a_folder_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"contains other files but no cache: choose another folder"):
        Cache(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "notes.txt").unlink()
    Cache(tmp_path)
    (tmp_path / "notes.txt").write_text("beside a cache")
    Cache(tmp_path)


def test_a_folder_may_be_a_link(open_cache: CacheOpener, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    open_cache.folder.symlink_to(tmp_path / "elsewhere")
    open_cache().put("generate:1", "generate", {"n": 1}, named(ONE))
    assert files(tmp_path / "elsewhere") == {digest(ONE)}
    where = ["--cache", str(open_cache.folder)]
    assert CliRunner().invoke(app, ["cache", "verify", *where]).exit_code == 0
    assert CliRunner().invoke(app, ["cache", "clear", "--yes", *where]).exit_code == 0
    assert (open_cache.folder.is_symlink(), files(tmp_path / "elsewhere")) == (True, set())
    (tmp_path / "elsewhere").rename(tmp_path / "gone")
    with pytest.raises(UsageError, match="the cache cannot be used"):
        open_cache()


@pytest.mark.parametrize("position", ["a_file", "a_file/below", "\0"])
def test_unusable_folder_is_a_usage_error(tmp_path: Path, position: str) -> None:
    (tmp_path / "a_file").write_text("here first")
    if position == "\0":
        position = "x" * 300
    with pytest.raises(UsageError, match="the cache cannot be used"):
        Cache(tmp_path / position)
    assert (tmp_path / "a_file").read_text() == "here first"


def test_read_only_folder_is_opened_for_reading(open_cache: CacheOpener) -> None:
    cache = open_cache()
    cache.put("generate:1", "generate", {"n": 1}, named(ONE))
    with read_only(open_cache.folder):
        cache = open_cache()
        stored = cache.get("generate:1")
        assert stored is not None
        assert (stored.answer, cache.read(digest(ONE))) == ({"n": 1}, ONE)
        assert open_cache.warned == []
        for _ in range(2):
            cache.put("generate:2", "generate", {}, named(TWO))
        assert cache.get("generate:2") is None
        assert open_cache.warned == [f"{open_cache.folder}: the cache is read-only: new answers are not cached"]
        done = CliRunner().invoke(app, ["cache", "clear", "--yes", "--cache", str(open_cache.folder)])
        assert done.exit_code == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"{open_cache.folder}: the cache cannot be changed (")
        assert CliRunner().invoke(app, ["cache", "info", "--cache", str(open_cache.folder)]).exit_code == 0


def test_an_image_that_is_deleted_before_its_answer_is_stored_is_stored_again(
    open_cache: CacheOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another process may do that clears the cache: no answer refers to the image yet."""
    cache, deleted = open_cache(), []

    def store(file: Path, content: Any) -> None:
        if file.suffix == ".json":
            deleted.append(cache.path(digest(ONE)).unlink())
        store_content(file, content)

    monkeypatch.setattr("visioneval.running.calls.cache.store_content", store)
    cache.put("generate:1", "generate", {"n": 2}, named(ONE))
    assert (len(deleted), cache.read(digest(ONE))) == (1, ONE)


WRITER = """\
import sys
from hashlib import sha256
from pathlib import Path
from visioneval.running.calls.cache import Cache
from visioneval.running.calls.cache import store_content

folder, me = Path(sys.argv[1]), sys.argv[2]
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
cache = Cache(folder, run_id=me, warn=sys.exit)
for round in range(8):
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
        for me in range(4)
    ]  # fmt: skip
    for program in programs:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    ended = [(program.communicate(timeout=60)[1], program.returncode) for program in programs]
    assert ended == [("", 0)] * 4
    cache = open_cache()
    for key in range(5):
        stored = list(cache.answers(f"generate:{key}"))
        assert len(stored) == 4 * 8
        assert {entry.run_id: entry.answer["round"] for entry in reversed(stored)} == dict.fromkeys("0123", 7)
    assert all(cache.read(name) is not None for name in files(open_cache.folder))
    assert len(files(open_cache.folder)) == 15
    assert open_cache.warned == []


def test_concurrent_threads_use_one_cache(open_cache: CacheOpener) -> None:
    failed: list[BaseException] = []

    def write(cache: Cache, me: int) -> None:
        try:
            for at in range(20):
                cache.put(f"generate:{at}", "generate", {"by": me}, named(ONE, f"{at}".encode()))
                assert cache.read(digest(ONE)) == ONE
        except BaseException as error:
            failed.append(error)

    cache = open_cache()
    threads = [threading.Thread(target=write, args=(cache, me)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {entry.key for entry in answer_files(open_cache.folder).values()} == {f"generate:{at}" for at in range(20)}
    assert len(files(open_cache.folder)) == 21
