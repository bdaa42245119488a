"""``runs --delete``: the growth of ``runs/`` ends, and what something else needs stays."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from toys import Toy

RUNS = Path("runs")


def add(toy: Toy, *names: str, case: dict[str, Any] | None = None) -> None:
    """Runs a suite whose outputs are its own, as those of paid models are; the first name is the oldest."""
    for name in names:
        prompt = {"prompt": f"a tree of {name}", "id": name, **(case or {})}
        assert toy.run(prompt, arguments=("--run-id", name)).exit_code == 0


def aged(name: str, **days: float) -> None:
    path = RUNS / name / "run.json"
    info = json.loads(path.read_bytes())
    info["started_at"] = (datetime.now(UTC) - timedelta(**days)).isoformat(timespec="seconds")
    path.write_text(json.dumps(info))


def left() -> set[str]:
    return {path.name for path in RUNS.iterdir()}


@contextmanager
def being_written(name: str) -> Iterator[None]:
    path = RUNS / name / "run.json"
    before = path.read_text()
    path.write_text(json.dumps({**json.loads(before), "state": "running"}))
    with (RUNS / name / "results.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    path.write_text(before)


def test_runs_are_deleted_by_age_and_by_number(toy: Toy) -> None:
    add(toy, "a", "b", "c", "d")
    for name, days in (("a", 40.0), ("b", 31.0), ("c", 29.9), ("d", 0.0)):
        aged(name, days=days)
    assert (
        toy("runs", "--delete", "--older-than", "30", "--keep", "3", "--yes").stdout == "deleted 1 run of 4 in runs\n"
    )
    assert left() == {"b", "c", "d"}
    assert toy("runs", "--delete", "--older-than", "30", "--yes").stdout == "deleted 1 run of 3 in runs\n"
    assert left() == {"c", "d"}
    assert toy("runs", "--delete", "--keep", "2", "--yes").stdout == "deleted 0 runs of 2 in runs\n"
    assert toy("runs", "--delete", "--keep", "1", "--yes").exit_code == 0
    assert left() == {"d"}
    assert toy("runs", "--delete", "--keep", "0", "--yes").exit_code == 0
    assert left() == set()


def test_deleting_needs_a_yes_without_a_terminal(toy: Toy) -> None:
    add(toy, "a", "b")
    result = toy("runs", "--delete", "--keep", "1")
    assert (result.exit_code, result.stderr) == (2, "this would delete 1 run of 2 in runs: a: add --yes\n")
    assert left() == {"a", "b"}


@pytest.mark.parametrize(("answer", "is_deleted"), [("y\n", True), ("\n", False), ("no\n", False), ("", False)])
def test_deleting_asks_at_a_terminal(toy: Toy, monkeypatch: pytest.MonkeyPatch, answer: str, is_deleted: bool) -> None:
    add(toy, "a")
    monkeypatch.setattr("visioneval.cli.options.sys.stdin", _Terminal(answer))
    from visioneval.cli.inspect import _delete

    _delete(RUNS, None, None, 0, is_confirmed=False)
    assert left() == (set() if is_deleted else {"a"})


class _Terminal:
    def __init__(self, answer: str) -> None:
        self.readline = lambda: answer

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--delete",), "--delete: say which runs: --older-than DAYS, --keep N, or both\n"),
        (("--keep", "3"), "--older-than, --keep and --yes need --delete\n"),
        (("--older-than", "3"), "--older-than, --keep and --yes need --delete\n"),
        (("--yes",), "--older-than, --keep and --yes need --delete\n"),
    ],
)
def test_incomplete_flags_delete_nothing(toy: Toy, words: tuple[str, ...], message: str) -> None:
    add(toy, "a")
    result = toy("runs", *words)
    assert (result.exit_code, result.stderr, left()) == (2, message, {"a"})


def test_a_run_in_progress_stays(toy: Toy) -> None:
    add(toy, "a", "b")
    with being_written("a"):
        result = toy("runs", "--delete", "--keep", "0", "--yes")
        assert (result.exit_code, result.stderr) == (0, "runs/a: not deleted: it is in progress\n")
    assert left() == {"a"}
    assert toy("runs", "--delete", "--keep", "0", "--yes").stdout == "deleted 1 run of 1 in runs\n"


def test_a_run_that_a_baseline_was_set_from_stays(toy: Toy) -> None:
    add(toy, "a", "b", "c")
    for name in ("a", "b"):
        assert toy("baseline", "set", name, "--name", f"of-{name}").exit_code == 0
    result = toy("runs", "--delete", "--keep", "0", "--yes")
    assert result.stderr == (
        "runs/a: not deleted: baselines/of-a.jsonl was set from it\n"
        "runs/b: not deleted: baselines/of-b.jsonl was set from it\n"
    )
    assert left() == {"a", "b"}
    both = "".join(Path(f"baselines/of-{name}.jsonl").read_text() for name in ("b", "a"))
    Path("baselines/of-a.jsonl").write_text(re.sub('"source_sha256": "[0-9a-f]+"', '"source_sha256": "0"', both))
    Path("baselines/of-b.jsonl").unlink()
    assert toy("runs", "--delete", "--keep", "0", "--yes").exit_code == 0
    assert left() == {"a", "b"}, "also the older runs of a baseline"
    Path("baselines/of-a.jsonl").write_text("<<<<<<< HEAD\n")
    result = toy("runs", "--delete", "--keep", "0", "--yes")
    assert (result.exit_code, left()) == (2, {"a", "b"}), "a baseline that cannot be read could be of any run"
    assert result.stderr.startswith("baselines/of-a.jsonl:1: ")


def test_a_run_that_a_run_which_stays_reads_stays_too(toy: Toy) -> None:
    """And what that reads; a re-grading that is deleted needs nothing."""
    add(toy, "a", "b")
    assert toy("grade", "a", "--run-id", "c", "--trust-suite").exit_code == 0
    assert toy("grade", "c", "--run-id", "d", "--trust-suite").exit_code == 0
    result = toy("runs", "--delete", "--keep", "1", "--yes")
    assert result.stderr == "runs/c: not deleted: the run d reads it\nruns/a: not deleted: the run c reads it\n"
    assert left() == {"a", "c", "d"}
    assert toy("runs", "--delete", "--keep", "0", "--yes").stdout == "deleted 3 runs of 3 in runs\n"


@pytest.mark.parametrize(
    ("source", "stays"),
    [({"run": "b@m"}, "b"), ({"run": "latest"}, "c"), ({"run": "./runs/b"}, "b"), ({"path": "runs/b/{case}.png"}, "b")],
)
def test_a_run_that_a_suite_reads_stays(toy: Toy, source: dict[str, str], stays: str) -> None:
    add(toy, "a", "b", "c")
    Path("deep/er").mkdir(parents=True)
    Path("deep/er/graded.yaml").write_text(json.dumps({"models": [{"provider": "files", **source}]}))
    result = toy("runs", "--delete", "--keep", "0", "--yes")
    assert result.stderr == f"runs/{stays}: not deleted: deep/er/graded.yaml reads it\n"
    assert left() == {stays}


def test_only_runs_of_the_experiment_are_deleted(toy: Toy) -> None:
    add(toy, "a")
    assert toy.run({"id": "x", "prompt": "x"}, arguments=("--run-id", "b"), experiment="other").exit_code == 0
    assert toy("runs", "--delete", "--keep", "0", "--yes", "--experiment", "other").exit_code == 0
    assert left() == {"a"}


def test_damaged_and_linked_runs(toy: Toy, tmp_path: Path) -> None:
    """What is no readable run is not deleted, and of a link only the link."""
    add(toy, "a", "b", "c")
    (RUNS / "a" / "run.json").write_text("{")
    elsewhere = tmp_path / "elsewhere"
    (RUNS / "b").rename(elsewhere)
    (RUNS / "b").symlink_to(elsewhere)
    assert toy("runs", "--delete", "--keep", "0", "--yes").stdout == "deleted 2 runs of 2 in runs\n"
    assert left() == {"a"}
    assert (elsewhere / "run.json").is_file()


def test_runs_without_a_time_are_not_old(toy: Toy) -> None:
    add(toy, "a", "b")
    for name, started in (("a", None), ("b", "yesterday")):
        path = RUNS / name / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "started_at": started}))
    assert toy("runs", "--delete", "--older-than", "0", "--yes").stdout == "deleted 0 runs of 2 in runs\n"
