"""The workflow that ``init --ci github`` writes, executed with visioneval's action in fresh clones of a project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from github_api import FORK_TOKEN, JOB_TOKEN, FakeGitHub, fake_github
from github_jobs import SELF, ExecutedJob, GitHubRun
from machine import Machine, git

SHARDED = """\
name: nights
on: {{schedule: [{{cron: "17 3 * * *"}}]}}
jobs:
  shards:
    strategy: {{matrix: {{shard: [1, 2]}}}}
    steps:
      - uses: actions/checkout@v6
      - uses: {action}
        with: {{suites: suite.yaml, offline: false, shard: "${{{{ matrix.shard }}}}/2"}}
        env: {{OPENAI_API_KEY: "${{{{ secrets.OPENAI_API_KEY }}}}"}}
  merged:
    needs: [shards]
    if: ${{{{ !cancelled() }}}}
    steps:
      - uses: actions/checkout@v6
      - uses: {action}
        with: {{suites: suite.yaml, offline: false, merge: true, confirm: 3}}
"""


@pytest.fixture(scope="module")
def project(new_project: Callable[[str], Path]) -> Path:
    return new_project("github")


@pytest.fixture
def github(machine: Machine) -> Iterator[FakeGitHub]:
    with fake_github(machine.folder / "bin") as server:
        yield server


@pytest.fixture
def execute(machine: Machine, tmp_path: Path, github: FakeGitHub) -> Callable[..., GitHubRun]:
    """``execute(project, event_name, token=...)`` runs all jobs that an event starts."""

    def run(project: Path, event_name: str, token: str = JOB_TOKEN) -> GitHubRun:
        request = {"number": 7, "head": {"sha": git(project, "rev-parse", "HEAD")}}
        event = {"pull_request": request} if event_name == "pull_request" else {}
        contexts = {"event_name": event_name, "event": event, "repository": "owner/shop", "token": token}
        contexts["ref_type"] = "tag" if event_name == "push" else "branch"
        result = GitHubRun(machine, project, tmp_path / "run", contexts)
        result.execute()
        return result

    return run


def only_job(run: GitHubRun) -> ExecutedJob:
    (job,) = run.jobs.values()
    return job


def test_a_pull_request_replays_comments_and_sets_a_status(
    execute: Callable[..., GitHubRun], project: Path, github: FakeGitHub
) -> None:
    run = execute(project, "pull_request")
    job = only_job(run)
    assert list(run.jobs) == ["replay"]
    assert job.succeeded, job.log
    assert "\n::error" not in job.log
    assert "::notice title=visioneval" not in job.log
    results = run.artifacts / "visioneval" / "visioneval-results" / "visioneval"
    assert (results / "site" / "run" / "suite-visioneval" / "index.html").is_file()
    assert (run.artifacts / "visioneval" / "visioneval-runs" / "visioneval" / "suite-visioneval" / "run.json").is_file()
    ((login, comment),) = github.bodies
    assert login == "github-actions[bot]"
    assert "([all images and reports](https://github.com/owner/shop/artifacts/visioneval))" in comment
    assert comment.endswith(job.summary)
    assert job.summary.startswith("## visioneval compare: All gates passed")
    ((commit, status),) = github.statuses
    assert commit == git(project, "rev-parse", "HEAD")
    assert (status["state"], status["description"]) == (
        "success",
        "All gates passed: 0 broken, 3 still failing, 3 still passing",
    )
    assert not any("a-secret-of-the-repository" in environment.values() for environment in job.environments)


def test_a_pull_request_that_breaks_a_case_fails_with_a_report_and_a_comment(
    execute: Callable[..., GitHubRun], project: Path, changed: Callable[[Path], Path], github: FakeGitHub
) -> None:
    run = execute(changed(project), "pull_request")
    job = only_job(run)
    assert not job.succeeded
    assert "FAILED must_pass" in " ".join(job.log.split()), job.log
    results = run.artifacts / "visioneval" / "visioneval-results" / "visioneval"
    assert (results / "suite-compare.html").is_file()
    assert "sign_word" in github.bodies[0][1]
    assert "sign_word" in job.summary
    ((_, status),) = github.statuses
    assert (status["state"], status["description"]) == (
        "failure",
        "A gate failed: 1 broken, 3 still failing, 2 still passing",
    )


def test_a_fork_gets_no_comment_and_the_same_outcome(
    execute: Callable[..., GitHubRun], project: Path, github: FakeGitHub
) -> None:
    job = only_job(execute(project, "pull_request", FORK_TOKEN))
    assert job.succeeded, job.log
    assert (github.comments, github.statuses) == ([], [])
    assert "::notice title=visioneval::no comment: gh: Resource not accessible by integration (HTTP 403)" in job.log
    assert "## visioneval compare: " in job.summary


def test_no_module_of_the_checkout_is_imported(
    execute: Callable[..., GitHubRun], project: Path, changed: Callable[[Path], Path], tmp_path: Path
) -> None:
    copy = changed(project)
    for name in ("visioneval", "yaml", "json"):
        (copy / f"{name}.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\n")
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "--message", "modules")
    job = only_job(execute(copy, "pull_request"))
    assert "FAILED" in job.log
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("event", ["schedule", "push"])
def test_every_night_and_before_a_release_models_are_called(
    execute: Callable[..., GitHubRun], project: Path, github: FakeGitHub, event: str
) -> None:
    run = execute(project, event)
    job = only_job(run)
    assert list(run.jobs) == ["live"]
    assert job.succeeded, job.log
    assert "--offline" not in job.log
    assert "--budget 10" in job.log
    assert all(environment["OPENAI_API_KEY"] for environment in job.environments)
    assert (github.comments, github.statuses) == ([], [])
    assert "6 of 6 cells" in job.summary


def test_shards_run_in_jobs_of_their_own_and_are_merged(
    execute: Callable[..., GitHubRun], project: Path, changed: Callable[[Path], Path], machine: Machine
) -> None:
    copy = changed(project)
    git(copy, "reset", "--quiet", "--hard", "HEAD~1")
    workflow = copy / ".github" / "workflows" / "visioneval.yml"
    workflow.write_text(SHARDED.format(action=f"{SELF}@{machine.commit}"))
    git(copy, "commit", "--quiet", "--all", "--message", "shards")
    run = execute(copy, "schedule")
    assert all(job.succeeded for job in run.jobs.values()), [job.log for job in run.jobs.values()]
    assert {path.name for path in run.artifacts.iterdir()} == {"visioneval-shard-1", "visioneval-shard-2", "visioneval"}
    merged = run.jobs["merged"]
    assert "6 of 6 cells" in merged.summary
    assert not any("OPENAI_API_KEY" in environment for environment in merged.environments)
    assert {path.name for path in (run.artifacts / "visioneval" / "visioneval-runs" / "visioneval").iterdir()} == {
        "suite-visioneval"
    }
