"""A cache in a repository: branches that add answers merge, and what no suite reads is deleted."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from api_runs import image_for
from caches import answer_files, files, rewrite
from suite_runner import LOOK, SuiteRunner

from visioneval.running.calls.cache_files import CacheEntry

OLD = {"stored_at": "2025-01-01T00:00:00.000000+00:00"}


@pytest.fixture
def cache(runner: SuiteRunner) -> Path:
    return runner.folder / "visioneval-cache"


def run(runner: SuiteRunner, cache: Path, *words: str, run_id: str = "r") -> Any:
    return runner.run("--trust-suite", "--cache", cache, *words, run_id=run_id)


def prune(runner: SuiteRunner, cache: Path, *words: str | Path, suite: str = "suite.yaml") -> Any:
    return runner("cache", "prune", "--keep", runner.folder / suite, "--cache", cache, "--trust-suite", *words)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=true")
    done = subprocess.run(["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def generating(runner: SuiteRunner, shade: str) -> None:
    runner.api.script.generate(lambda asked: [image_for(f"{asked.prompt} {shade}")])


def test_branches_that_add_answers_merge_without_a_conflict(runner: SuiteRunner, tmp_path: Path) -> None:
    """One question is answered in both; no attributes or drivers of Git, although line ends are converted."""
    origin, clones = tmp_path / "origin", {name: tmp_path / name for name in ("first", "second")}
    runner.folder = origin
    runner.write("tree")
    assert run(runner, origin / "visioneval-cache").exit_code == 0
    git(origin, "init", "--quiet", "--initial-branch", "main")
    git(origin, "add", "suite.yaml", "visioneval-cache")
    git(origin, "commit", "--quiet", "--message", "a suite and its cache")
    for name, case in (("first", "boat"), ("second", "house")):
        git(tmp_path, "clone", "--quiet", str(origin), name)
        runner.folder = clones[name]
        generating(runner, name)
        runner.write("tree", case)  # the tree is generated anew in both
        assert run(runner, clones[name] / "visioneval-cache").exit_code == 0
        git(clones[name], "add", "visioneval-cache")
        git(clones[name], "commit", "--quiet", "--message", f"answers about {case}")
    second = clones["second"]
    git(second, "checkout", "--quiet", "suite.yaml")
    git(second, "pull", "--quiet", "--no-rebase", str(clones["first"]), "HEAD")
    runner.folder = second
    runner.write("tree", "boat", "house")
    paid = runner.called
    merged = run(runner, second / "visioneval-cache", "--offline", run_id="merged")
    assert (merged.exit_code, runner.called) == (0, paid), merged.output
    trees = {name: _image_of("tree", runner, name) for name in ("merged", "r")}
    assert trees["merged"] == trees["r"], "the newest answer"
    checked = runner("cache", "verify", "--cache", second / "visioneval-cache")
    assert checked.exit_code == 0, checked.output
    *_, repeated, last = checked.stdout.splitlines()
    assert ": 3 answers, the newest is read: " in repeated
    assert last.endswith("10 answers, 5 images, 1 question with several answers, 0 problems")


def _image_of(case: str, runner: SuiteRunner, run_id: str) -> str | None:
    (record,) = (record for record in runner.records(run_id).values() if record.test_id == case)
    return record.artifact_sha256


def test_prune_keeps_what_the_suites_read_and_what_is_young(runner: SuiteRunner, cache: Path) -> None:
    runner.write("tree", "boat", "house")
    assert run(runner, cache).exit_code == 0
    generating(runner, "anew")
    runner.write("house")
    assert run(runner, cache, run_id="young").exit_code == 0
    young = {entry.key for entry in answer_files(cache).values() if entry.run_id.startswith("young")}
    generating(runner, "ancient")
    runner.write("tree")
    assert run(runner, cache, run_id="anew").exit_code == 0
    rewrite(cache, lambda entry: {} if entry.run_id.startswith("young") else _older(entry))
    (runner.folder / "boats.yaml").write_text(runner.write("boat").read_text())
    runner.write("tree")
    result = prune(runner, cache, "--keep", runner.folder / "boats.yaml")
    assert result.stdout == f"deleted 4 answers from {cache}; kept 6, of which an offline run reads 4\n", result.output
    assert result.exit_code == 0
    assert young <= {entry.key for entry in answer_files(cache).values()}
    assert len(files(cache)) == 3
    paid = runner.called
    for name in ("suite.yaml", "boats.yaml"):
        again = runner("run", runner.folder / name, "--offline", "--cache", cache, "--runs", runner.out)
        assert (again.exit_code, runner.called) == (0, paid), again.output
    assert prune(runner, cache, "--older-than", "0").stdout.startswith("deleted 4 answers")
    assert runner("cache", "verify", "--cache", cache).exit_code == 0


def _older(entry: CacheEntry) -> dict[str, Any]:
    return {"stored_at": entry.stored_at.replace(entry.stored_at[:4], "2025")}


def test_prune_deletes_nothing_if_a_suite_lacks_an_answer(runner: SuiteRunner, cache: Path) -> None:
    runner.write("tree")
    assert run(runner, cache).exit_code == 0
    rewrite(cache, lambda entry: OLD)
    before = answer_files(cache)
    runner.write("boat")
    result = prune(runner, cache)
    assert (result.exit_code, result.stderr) == (
        3,
        f"{runner.folder}/suite.yaml: an offline run is not complete (1 cell with errors): nothing was deleted; see"
        " which with 'visioneval run --offline'\n",
    )
    assert answer_files(cache) == before
    assert [path.name for path in runner.folder.iterdir() if path.name not in ("suite.yaml", "runs", cache.name)] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [", "suite.yaml:2:1: "),
        ("nam: x", "suite.yaml:1:1: "),
        (None, "suite.yaml: "),
        ("", "suite.yaml:1:1: "),
    ],
)
def test_prune_deletes_nothing_if_a_suite_does_not_load(
    runner: SuiteRunner, cache: Path, text: str | None, message: str
) -> None:
    runner.write("tree")
    assert run(runner, cache).exit_code == 0
    rewrite(cache, lambda entry: OLD)
    before = answer_files(cache)
    path = runner.folder / "broken" / "suite.yaml"
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    result = prune(runner, cache, "--keep", path)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert answer_files(cache) == before


def test_prune_needs_a_suite(runner: SuiteRunner, cache: Path) -> None:
    result = runner("cache", "prune", "--cache", cache)
    assert (result.exit_code, result.stderr.startswith("--keep SUITE: ")) == (2, True)


def test_a_failed_gate_is_no_reason_to_refuse(runner: SuiteRunner, cache: Path) -> None:
    runner.write("tree", gates=["pass_rate >= 1"])
    runner.api.script.judge({"nice": False, "reason": "no", "verdict": "FAIL"})
    assert run(runner, cache).exit_code == 1
    rewrite(cache, lambda entry: OLD)
    result = prune(runner, cache)
    assert (result.exit_code, result.stdout.startswith("deleted 0 answers")) == (0, True), result.output


def test_prune_keeps_every_vote_and_deletes_damaged_files(runner: SuiteRunner, cache: Path) -> None:
    runner.write("tree", graders=[{**LOOK, "votes": 3}])
    assert run(runner, cache).exit_code == 0
    rewrite(cache, lambda entry: OLD)
    damaged = next(iter(answer_files(cache))).with_name(f"{'ab' * 32}.json")
    damaged.write_text("<<<<<<< HEAD")
    checked = runner("cache", "verify", "--cache", cache)
    assert checked.exit_code == 1
    assert f"{damaged}: damaged: its content is not what its name states" in checked.stdout
    result = prune(runner, cache)
    assert result.stdout == f"deleted 0 answers from {cache}; kept 4, of which an offline run reads 4\n"
    assert not damaged.exists()


def test_verify_names_what_is_damaged_missing_and_foreign(runner: SuiteRunner, cache: Path) -> None:
    runner.write("tree", "boat")
    generating(runner, "")
    assert run(runner, cache).exit_code == 0
    one, two = sorted(cache.glob("files/*/*"))
    one.write_bytes(b"<<<<<<< HEAD")
    two.unlink()
    (cache / "answers" / "notes.txt").write_text("mine")
    result = runner("cache", "verify", "--cache", cache)
    lines = result.stdout.splitlines()
    assert (result.exit_code, len(lines)) == (1, 4)
    assert f"{one}: damaged: its content is not what its name states" in lines
    assert any(line.startswith(f"{two}: missing: named by answers/") for line in lines)
    assert f"{cache}/answers/notes.txt: no file of a cache" in lines
    assert runner("cache", "clear", "--yes", "--cache", cache).exit_code == 0
    assert (cache / "answers" / "notes.txt").exists()
