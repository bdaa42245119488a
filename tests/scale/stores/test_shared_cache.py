"""A cache in a store: no answer is paid twice, on whichever machine it is needed."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from api_runs import image_for
from fake_api import FakeAPI, Fault
from stores import FaultyStore, Machines
from suite_runner import SuiteRunner

import visioneval as ve
from visioneval.records.stores.publishing import Publisher
from visioneval.records.stores.store import ObjectStore
from visioneval.running.calls import cache as cache_module
from visioneval.running.calls.cache import SharedCache

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(any_runs: str) -> str:
    """The URL of a cache of its own."""
    return f"{any_runs}-cache"


@pytest.fixture
def s3_cache(runs: str) -> str:
    return f"{runs}-cache"


def run(runner: SuiteRunner, cache: str, *words: str, run_id: str = "r", runs: str = "runs") -> Any:
    suite = runner.folder / "suite.yaml"
    return runner("run", suite, "--runs", runs, "--run-id", run_id, "--cache", cache, *words)


def test_what_one_machine_paid_is_free_on_another(runner: SuiteRunner, cache: str, machines: Machines) -> None:
    runner.write()
    assert run(runner, cache).exit_code == 0
    assert runner.called == (2, 2)
    machines.use("b")
    assert run(runner, cache, "--reuse", "all", run_id="again").exit_code == 0
    assert runner.called == (2, 2)
    first, again = runner.records("r"), runner.records("again")
    assert {cell: record.artifact_sha256 for cell, record in again.items()} == {
        cell: record.artifact_sha256 for cell, record in first.items()
    }
    assert all(record.cached and record.total_cost_usd == 0 for record in again.values())
    machines.use("c")
    assert run(runner, cache, "--offline", run_id="offline").exit_code == 0
    assert runner.called == (2, 2)
    names = {item.key.partition("/")[0] for item in ObjectStore(cache).walk("")}
    assert names == {"visioneval-cache.json", "answers", "files"}


def test_a_cache_has_one_layout_in_a_folder_and_in_a_store(runner: SuiteRunner, cache: str, machines: Machines) -> None:
    """A folder that is copied into a store is a shared cache, and a copy of a store is a cache."""
    runner.write()
    assert run(runner, "local").exit_code == 0
    store = ObjectStore(cache)
    for path in Path("local").rglob("*"):
        if path.is_file():
            store.put(path.relative_to("local").as_posix(), path.read_bytes())
    machines.use("b")
    assert run(runner, cache, "--offline", run_id="of-store").exit_code == 0
    store.download(store.walk(""), Path("copied"))
    machines.use("c")
    assert run(runner, "copied", "--offline", run_id="of-copy").exit_code == 0
    assert runner.called == (2, 2)


def test_no_call_waits_for_an_answer_that_is_sent_to_the_store(
    runner: SuiteRunner, s3_cache: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither small images nor judges' answers are sent in the event loop, which is in this thread."""
    senders: list[threading.Thread] = []
    put = SharedCache.put

    def watched(*args: Any, **options: Any) -> None:
        senders.append(threading.current_thread())
        put(*args, **options)

    monkeypatch.setattr(SharedCache, "put", watched)
    runner.write()
    assert run(runner, s3_cache).exit_code == 0
    assert len(senders) >= 4
    assert threading.current_thread() not in senders


@pytest.mark.parametrize("flags", [("--reuse", "all"), ("--offline",), ("--reuse", "all", "--retry-unusable")])
def test_an_answer_without_an_image_is_looked_for_once(
    runner: SuiteRunner, s3_cache: str, machines: Machines, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    runner.write("tree")
    runner.api.faults.queue(Fault("no_image"))
    assert run(runner, s3_cache).exit_code == 3
    machines.use("b")
    listed: list[str] = []
    entries = ObjectStore.entries

    def watched(store: ObjectStore, *folder: str) -> Any:
        listed.extend(folder)
        return entries(store, *folder)

    monkeypatch.setattr(ObjectStore, "entries", watched)
    is_paid_again = "--retry-unusable" in flags
    assert run(runner, s3_cache, *flags, run_id="again").exit_code == (0 if is_paid_again else 3)
    assert runner.called == ((2, 1) if is_paid_again else (1, 0))
    assert len(listed) == len(set(listed)) == (2 if is_paid_again else 1), "one list for each answer that is needed"


def test_judges_are_asked_once_about_an_image(runner: SuiteRunner, s3_cache: str, machines: Machines) -> None:
    runner.write()
    assert run(runner, s3_cache).exit_code == 0
    machines.use("b")
    assert runner("grade", "runs/r", "--runs", "runs", "--cache", s3_cache).exit_code == 0
    assert runner.called == (2, 2)


def test_a_run_is_resumed_elsewhere_without_paying_again(
    runner: SuiteRunner, runs: str, s3_cache: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records of a writer that was killed before it sent them are lost, and what they cost is not."""
    runner.write()
    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "send", lambda self: None)
        assert run(runner, s3_cache, runs=runs).exit_code == 0
    machines.use("b")
    shown = runner("show", "r", "--runs", runs)
    assert (shown.exit_code, "results.jsonl has 0 of 2 cells" in shown.stderr) == (0, True), shown.output
    result = runner("run", "--resume", "r", "--runs", runs, "--cache", s3_cache)
    assert (result.exit_code, runner.called) == (0, (2, 2)), result.output
    (costs,) = {record.cost_usd for record in ve.load_run("r", runs=runs).records}
    assert costs == 0.04  # this run has paid them


def test_an_answer_is_in_the_store_before_its_record(
    runner: SuiteRunner, runs: str, s3_cache: str, s3: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_SEGMENT_CELLS", "1")
    runner.write()
    assert run(runner, s3_cache, runs=runs).exit_code == 0
    puts = [path for method, path in s3.requests if method == "PUT"]
    answers = [index for index, path in enumerate(puts) if "/answers/" in path]
    last_segment = max(index for index, path in enumerate(puts) if "/results/" in path)
    assert len(answers) == 4
    assert max(answers) < last_segment


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"key": "x"}'])
def test_a_damaged_entry_is_paid_again(runner: SuiteRunner, s3_cache: str, machines: Machines, data: bytes) -> None:
    runner.write("tree")
    assert run(runner, s3_cache).exit_code == 0
    store = ObjectStore(s3_cache)
    for item in store.walk("answers"):
        store.put(item.key, data)
    machines.use("b")
    result = run(runner, s3_cache, "--reuse", "all", run_id="again")
    assert (result.exit_code, runner.called) == (0, (2, 2))
    lines = [line for line in result.stderr.splitlines() if line.startswith(f"{s3_cache}/answers/")]
    assert len(lines) == 2
    assert all(
        "ignoring a damaged answer in the cache: its content is not what its name states" in line for line in lines
    )


def test_an_entry_of_another_question_and_a_damaged_image_are_misses(
    runner: SuiteRunner, s3_cache: str, machines: Machines
) -> None:
    runner.write("tree", "boat")
    assert run(runner, s3_cache).exit_code == 0
    store = ObjectStore(s3_cache)
    entries = {item.key: json.loads(store.read(item.key)) for item in store.walk("answers")}
    judged, other = (key for key, entry in entries.items() if entry["kind"] == "judge")
    moved = f"{other.rpartition('/')[0]}/{judged.rpartition('/')[2]}"
    store.put(moved, store.read(judged))  # complete, but about another image
    store.delete(other)
    store.put(judged, store.read(judged).replace(b"PASS", b"FAIL"))
    for item in store.walk("files"):
        store.put(item.key, store.read(item.key)[:-1])
    machines.use("b")
    result = run(runner, s3_cache, "--reuse", "all", run_id="again")
    assert (result.exit_code, runner.called) == (0, (4, 4))
    assert result.stderr.count("ignoring a damaged image in the cache") == 2
    assert f"{s3_cache}/{moved}: ignoring a damaged answer in the cache: it answers another question" in result.stderr
    assert f"{s3_cache}/{judged}: ignoring a damaged answer in the cache: its content is not" in result.stderr


@pytest.mark.parametrize(("kind", "method"), [("503", "PUT"), ("503", "GET"), ("403", "PUT")])
def test_a_cache_that_fails_stops_the_run(
    runner: SuiteRunner, s3_cache: str, s3: FaultyStore, machines: Machines, kind: str, method: str
) -> None:
    runner.write(*(f"case{number}" for number in range(8)))
    s3.add(kind, method, "/answers/", times=10_000)
    result = run(runner, s3_cache, "--max-concurrency", "1", "--reuse", "all")
    assert result.exit_code == 3, result.output
    assert "/answers/" in result.stderr.splitlines()[0] or "/answers/" in result.stderr
    assert sum(runner.called) <= 3
    s3.faults.clear()
    result = runner("run", runner.folder / "suite.yaml", "--resume", "runs/r", "--cache", s3_cache)
    assert result.exit_code == 0, result.output
    assert runner.called == (8, 8)


def test_a_full_disk_in_front_of_the_cache_costs_no_answer_twice(
    runner: SuiteRunner, s3_cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this machine cannot cache is in the store, where a resumed run finds it."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    runner.write(*(f"case{number}" for number in range(8)))
    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "store_content", full)
        result = run(runner, s3_cache, "--max-concurrency", "1")
    assert result.exit_code == 3, result.output
    assert "cannot write to the cache: No space left on device" in result.stderr.splitlines()[-1]
    assert 0 < sum(runner.called) <= 3
    result = runner("run", runner.folder / "suite.yaml", "--resume", "runs/r", "--cache", s3_cache)
    assert (result.exit_code, runner.called) == (0, (8, 8)), result.output


def test_a_cache_that_cannot_be_used_costs_nothing(runner: SuiteRunner, s3_cache: str, s3: FaultyStore) -> None:
    runner.write()
    result = run(runner, s3_cache, "--offline")
    message = f"{s3_cache}: no cache found: --offline needs an existing cache\n"
    assert (result.exit_code, result.stderr) == (2, message)
    s3.add("403", "PUT", "visioneval-cache.json", times=100)
    result = run(runner, s3_cache)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f"cannot write {s3_cache}/visioneval-cache.json: access denied" in result.stderr
    s3.faults.clear()
    ObjectStore(s3_cache).put("visioneval-cache.json", b'{"visioneval_cache":99}')
    result = run(runner, s3_cache)
    assert (result.exit_code, runner.called) == (2, (0, 0))
    assert result.stderr.startswith(
        f"{s3_cache}: written by another version of visioneval (format 99): choose another folder"
    )
    assert run(runner, "s3://nowhere/cache").exit_code == 2


def test_the_api_takes_the_url_of_a_cache(
    runner: SuiteRunner, s3_cache: str, machines: Machines, api: FakeAPI, caplog: pytest.LogCaptureFixture
) -> None:
    path: Path = runner.write()
    assert ve.run(path, cache=s3_cache, run_id="a").exit_code == 0
    machines.use("b")
    again = ve.run(path, cache=s3_cache, run_id="b", reuse="all", budget_usd=0.001)
    assert again.exit_code == 0
    assert runner.called == (2, 2)
    stopped = ve.run(path, cache=s3_cache, run_id="c", budget_usd=0.05)
    assert f"--cache {s3_cache} " in str(stopped.resume_hint)


def test_the_newest_answer_is_read_whichever_machine_stored_it(
    runner: SuiteRunner, cache: str, machines: Machines
) -> None:
    """Also where this machine has an earlier one in front of the store."""
    runner.write("tree")
    for name, run_id in (("a", "first"), ("b", "second")):
        machines.use(name)
        runner.api.script.generate(lambda _, shade=run_id: [image_for(shade)])
        assert run(runner, cache, run_id=run_id).exit_code == 0
    machines.use("a")
    assert run(runner, cache, "--offline", run_id="replay").exit_code == 0
    (replayed,), (second,) = runner.records("replay").values(), runner.records("second").values()
    assert replayed.artifact_sha256 == second.artifact_sha256


def test_the_cache_commands_take_the_url_of_a_cache(
    runner: SuiteRunner, cache: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runner.write("tree", "boat")
    assert run(runner, cache).exit_code == 0
    assert runner("cache", "info", "--cache", cache).stdout.splitlines()[:3] == [
        f"folder        {cache}",
        "generations   2",
        "judgments     2",
    ]
    checked = runner("cache", "verify", "--cache", cache)
    assert (checked.exit_code, checked.stdout) == (
        0,
        f"{cache}: 4 answers, 2 images, 0 questions with several answers, 0 problems\n",
    )
    runner.write("tree")
    words = ("cache", "prune", "--keep", path, "--older-than", "0", "--cache", cache)
    assert runner(*words).stdout == f"deleted 2 answers from {cache}; kept 2, of which an offline run reads 2\n"
    machines.use("b")
    assert run(runner, cache, "--offline", run_id="offline").exit_code == 0
    assert runner("cache", "clear", "--yes", "--cache", cache).stdout == f"deleted 2 answers from {cache}\n"
    assert run(runner, cache, "--offline", run_id="cleared").exit_code == 3
