"""The scripts of the pipeline that ``init --ci gitlab`` writes, executed in order in fresh clones of a project."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from gitlab_jobs import Pipeline
from http_server import QuietHandler, serving
from machine import Machine


class NotesHandler(QuietHandler):
    """GitLab's API, as far as comments need it."""

    notes: list[tuple[str, str, str]]

    def post(self) -> None:
        (text,) = parse_qs(self.body().decode())["body"]
        self.notes.append((self.path, self.headers["PRIVATE-TOKEN"], text))
        self.reply(b"{}", 201)


@pytest.fixture
def notes() -> list[tuple[str, str, str]]:
    """Path, token and text of each comment."""
    return []


@pytest.fixture
def gitlab(notes: list[tuple[str, str, str]]) -> Iterator[str]:
    handler = type("NotesOfOneTest", (NotesHandler,), {"notes": notes})
    with serving(handler) as url:
        yield f"{url}/api/v4"


@pytest.fixture(scope="module")
def project(new_project: Callable[[str], Path]) -> Path:
    return new_project("gitlab")


@pytest.fixture
def execute(machine: Machine, tmp_path: Path, gitlab: str) -> Callable[..., Pipeline]:
    """``execute(project, NAME=value, ...)`` runs the jobs of a pipeline with these variables."""

    def run(project: Path, **variables: str) -> Pipeline:
        of_gitlab = {
            "CI_API_V4_URL": gitlab,
            "CI_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_IID": "7",
            "CI_DEFAULT_BRANCH": "main",
        }
        pipeline = Pipeline(machine, project, tmp_path / "pipeline", {**of_gitlab, **variables})
        pipeline.execute()
        return pipeline

    return run


def test_a_merge_request_that_breaks_a_case_fails_with_a_report_and_a_comment(
    execute: Callable[..., Pipeline],
    project: Path,
    changed: Callable[[Path], Path],
    notes: list[tuple[str, str, str]],
) -> None:
    variables = {"CI_PIPELINE_SOURCE": "merge_request_event", "VISIONEVAL_COMMENT_TOKEN": "a-token"}
    pipeline = execute(changed(project), **variables)
    ((job,),) = pipeline.jobs.values()
    assert (job.name, job.succeeded) == ("replay", False), job.log
    assert "FAILED  must_pass" in job.log
    uploaded = pipeline.artifacts / "replay"
    assert {path.name for path in uploaded.iterdir()} == {
        "runs",
        "suite-replay.xml",
        "suite-run.md",
        "suite-compare.md",
        "quality.json",
    }
    (issue,) = json.loads((uploaded / "quality.json").read_text(encoding="utf-8"))
    assert (issue["check_name"], issue["severity"]) == ("visioneval: broken", "critical")
    suite = Path(project, "suite.yaml").read_text(encoding="utf-8").splitlines()
    line = next(at for at, text in enumerate(suite, 1) if "id: sign_word" in text)
    assert issue["location"] == {"path": "suite.yaml", "lines": {"begin": line}}
    assert (uploaded / "runs" / "suite-replay" / "report" / "index.html").is_file()
    ((path, token, text),) = notes
    assert (path, token) == ("/api/v4/projects/5/merge_requests/7/notes", "a-token")
    assert text.startswith("## visioneval compare: ")
    assert "sign_word" in text


def test_without_a_token_there_is_no_comment(
    execute: Callable[..., Pipeline], project: Path, notes: list[tuple[str, str, str]]
) -> None:
    ((job,),) = execute(project, CI_PIPELINE_SOURCE="merge_request_event").jobs.values()
    assert job.succeeded, job.log
    assert job.log.count("exit code 0\n") == 2, job.log
    assert notes == []


def test_the_default_branch_has_the_report_that_merge_requests_are_compared_with(
    execute: Callable[..., Pipeline], project: Path, notes: list[tuple[str, str, str]]
) -> None:
    variables = {"CI_PIPELINE_SOURCE": "push", "VISIONEVAL_COMMENT_TOKEN": "a-token"}
    pipeline = execute(project, **variables, CI_COMMIT_BRANCH="main", CI_MERGE_REQUEST_IID="")
    ((job,),) = pipeline.jobs.values()
    assert (job.name, job.succeeded) == ("replay", True), job.log
    assert (pipeline.artifacts / "replay" / "quality.json").read_text(encoding="utf-8") == "[]"
    assert notes == []
    assert execute(project, **variables, CI_COMMIT_BRANCH="other").jobs == {}


def test_a_schedule_runs_shards_and_merges_them(execute: Callable[..., Pipeline], project: Path) -> None:
    pipeline = execute(project, CI_PIPELINE_SOURCE="schedule")
    assert {name: len(jobs) for name, jobs in pipeline.jobs.items()} == {"nightly-shards": 4, "nightly": 1}
    logs = [job.log for jobs in pipeline.jobs.values() for job in jobs]
    assert all(job.succeeded for jobs in pipeline.jobs.values() for job in jobs), logs
    assert "6 of 6 cells" in (pipeline.artifacts / "nightly" / "suite-run.md").read_text(encoding="utf-8")
    assert (pipeline.artifacts / "nightly" / "runs" / "suite-nightly" / "report" / "index.html").is_file()


def test_a_tag_runs_the_gates_of_a_release(execute: Callable[..., Pipeline], project: Path) -> None:
    pipeline = execute(project, CI_COMMIT_TAG="v1.2", CI_PIPELINE_SOURCE="push")
    ((job,),) = pipeline.jobs.values()
    assert (job.name, job.succeeded) == ("release", True), job.log


def test_another_address_is_refused(execute: Callable[..., Pipeline], project: Path) -> None:
    pipeline = execute(project, CI_PIPELINE_SOURCE="merge_request_event", VISIONEVAL_SOURCE="visioneval")
    ((job,),) = pipeline.jobs.values()
    assert not job.succeeded
    assert job.log.startswith("set the CI/CD variable VISIONEVAL_SOURCE to git+https://")
