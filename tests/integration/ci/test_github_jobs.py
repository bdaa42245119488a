"""The steps of the workflow that ``init --ci github`` writes, executed in order in fresh clones of a project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from github_jobs import ExecutedJob, GitHubRun
from machine import Machine


@pytest.fixture(scope="module")
def project(new_project: Callable[[str], Path]) -> Path:
    return new_project("github")


@pytest.fixture
def execute(machine: Machine, tmp_path: Path) -> Callable[..., GitHubRun]:
    """``execute(project, event_name, event={})`` runs all jobs that an event starts."""

    def run(project: Path, event_name: str, event: dict[str, Any] | None = None) -> GitHubRun:
        for name in ("gh.txt", "comment.md"):
            (machine.folder / name).unlink(missing_ok=True)
        github = {"event_name": event_name, "event": event or {}, "repository": "owner/shop", "token": "a-token"}
        result = GitHubRun(machine, project, tmp_path / "run", github)
        result.execute()
        return result

    return run


def pull_request(head: str) -> dict[str, Any]:
    return {"number": 7, "pull_request": {"head": {"repo": {"full_name": head}}}}


def only_job(run: GitHubRun) -> ExecutedJob:
    ((job,),) = run.jobs.values()
    return job


def test_a_pull_request_replays_reports_and_comments(
    execute: Callable[..., GitHubRun], project: Path, machine: Machine
) -> None:
    run = execute(project, "pull_request", pull_request("owner/shop"))
    job = only_job(run)
    assert (job.name, job.succeeded) == ("replay", True), job.log
    assert "\n::error" not in job.log
    assert "\n::warning" not in job.log
    uploaded = run.artifacts / "replay"
    assert {path.name for path in uploaded.iterdir()} == {
        "runs",
        "suite-replay.xml",
        "suite-run.md",
        "suite-compare.md",
    }
    assert (uploaded / "runs" / "suite-replay" / "report" / "index.html").is_file()
    comment = (machine.folder / "comment.md").read_text(encoding="utf-8")
    assert comment == job.summary
    assert comment.startswith("## visioneval compare: ")
    assert "\n## visioneval: `my-edits`" in comment
    assert (machine.folder / "gh.txt").read_text().startswith("pr comment 7 --repo owner/shop ")
    assert not any("a-secret-of-the-repository" in environment.values() for environment in job.environments)


def test_a_pull_request_that_breaks_a_case_fails_with_a_report_and_a_comment(
    execute: Callable[..., GitHubRun], project: Path, changed: Callable[[Path], Path], machine: Machine
) -> None:
    run = execute(changed(project), "pull_request", pull_request("owner/shop"))
    job = only_job(run)
    assert not job.succeeded
    assert job.log.count("exit code 1\n") == 2, job.log  # of the run, whose gate failed, and of the comparison
    assert "FAILED  must_pass" in job.log
    assert (run.artifacts / "replay" / "runs" / "suite-replay" / "report" / "index.html").is_file()
    assert "sign_word" in (machine.folder / "comment.md").read_text(encoding="utf-8")
    assert "sign_word" in job.summary


def test_a_pull_request_from_a_fork_gets_no_comment(
    execute: Callable[..., GitHubRun], project: Path, machine: Machine
) -> None:
    job = only_job(execute(project, "pull_request", pull_request("stranger/shop")))
    assert job.succeeded, job.log
    assert not (machine.folder / "gh.txt").exists()
    assert "## visioneval compare: " in job.summary


def test_every_night_shards_run_and_are_merged(execute: Callable[..., GitHubRun], project: Path) -> None:
    run = execute(project, "schedule")
    assert {name: len(jobs) for name, jobs in run.jobs.items()} == {"nightly-shards": 4, "nightly": 1}
    logs = [job.log for jobs in run.jobs.values() for job in jobs]
    assert all(job.succeeded for jobs in run.jobs.values() for job in jobs), logs
    assert all(job.environments[-1]["OPENAI_API_KEY"] for job in run.jobs["nightly-shards"])
    with_key = [item for item in run.jobs["nightly"][0].environments if "OPENAI_API_KEY" in item]
    assert len(with_key) == 1, "only the comparison, for new samples, gets the keys"
    assert "6 of 6 cells" in run.jobs["nightly"][0].summary
    assert (run.artifacts / "nightly" / "runs" / "suite-nightly" / "report" / "index.html").is_file()


def test_a_tag_runs_the_gates_of_a_release(execute: Callable[..., GitHubRun], project: Path) -> None:
    job = only_job(execute(project, "push"))
    assert (job.name, job.succeeded) == ("release", True), job.log


def test_a_release_with_a_failed_gate_is_stopped(
    execute: Callable[..., GitHubRun], project: Path, changed: Callable[[Path], Path]
) -> None:
    run = execute(changed(project), "push")
    assert not only_job(run).succeeded
    assert (run.artifacts / "release" / "runs" / "suite-release" / "report" / "index.html").is_file()
