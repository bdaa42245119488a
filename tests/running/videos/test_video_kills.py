"""Runs that are killed or interrupted while a provider generates their videos: what has begun is not paid again."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from api_runs import wait_until
from fake_api import FakeAPI
from fake_api.http1 import ApiError
from fork_server import ForkedProgram
from suite_runner import SuiteRunner
from video_suites import MODELS, PRICE, entry, resume, write

from visioneval import read_info

pytestmark = pytest.mark.slow

pytest_plugins = ("video_fixtures",)


def started(runner: SuiteRunner, *arguments: str) -> ForkedProgram:
    """The command as a process of its own, once every video that it wants has been asked for."""
    program = ForkedProgram(
        "run", runner.folder / "suite.yaml", "--runs", runner.out, "--run-id", "r", "--trust-suite", *arguments
    )
    jobs = runner.api.videos
    wait_until(lambda: bool(jobs.created) and all(job.polls > 1 for job in jobs.created), program)
    return program


def test_a_run_killed_while_polling_pays_once(kind: str, api: FakeAPI, runner: SuiteRunner) -> None:
    api.videos.held.set()
    write(runner, entry(api, kind), prices={MODELS[kind]: PRICE})
    program = started(runner)
    program.kill()
    program.communicate(timeout=60)
    assert read_info(runner.out / "r").state == "running"
    (file,) = (runner.out / "r" / "artifacts" / "fox" / "m").iterdir()
    written = json.loads(file.read_text())
    assert (written["name"], written["ended"]) == (api.videos.created[0].name, False)
    assert api.key not in file.read_text()
    api.videos.held.clear()
    record = resume(runner)
    assert (record.status, record.verdict) == ("completed", "PASS")
    assert record.cost_usd == (2.0 if kind == "videos" else 0.5)
    assert len(api.videos.created) == 1


def test_every_sample_that_has_begun_is_asked_for_and_the_others_begin(api: FakeAPI, runner: SuiteRunner) -> None:
    api.videos.held.set()
    write(runner, entry(api, "videos"), samples=3, limits={"openai": {"max_concurrency": 2}})
    program = started(runner)
    wait_until(lambda: len(api.videos.created) == 2 and all(job.polls > 3 for job in api.videos.created), program)
    assert len(api.videos.created) == 2  # a limit counts operations in flight
    program.kill()
    program.communicate(timeout=60)
    api.videos.held.clear()
    resume(runner)
    assert len(api.videos.created) == 3
    assert len({record.artifact_sha256 for record in runner.records().values()}) == 3


def test_a_second_interrupt_stops_at_once_and_nothing_is_lost(api: FakeAPI, runner: SuiteRunner) -> None:
    api.videos.held.set()
    write(runner, entry(api, "videos"))
    program = started(runner)
    program.send_signal(signal.SIGINT)
    polls = api.videos.created[0].polls
    wait_until(lambda: api.videos.created[0].polls > polls, program)
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)
    assert program.returncode == 130
    api.videos.held.clear()
    assert resume(runner).status == "completed"
    assert len(api.videos.created) == 1


def test_changed_parameters_begin_another_operation(api: FakeAPI, runner: SuiteRunner) -> None:
    api.videos.poll.append(ApiError(401, "no access"))
    write(runner, entry(api, "videos"))
    assert runner.run("--trust-suite").exit_code == 3
    write(runner, entry(api, "videos", params={"seed": 2}))
    assert resume(runner).run_params["seed"] == 2
    assert [job.body.get("seed") for job in api.videos.created] == [None, "2"]


def test_shards_are_merged_with_the_operations_that_have_begun(api: FakeAPI, runner: SuiteRunner) -> None:
    cases = [{"id": name, "prompt": f"A {name} runs"} for name in ("fox", "hen", "cow", "dog")]
    path = write(runner, entry(api, "videos"), cases=cases)
    for number in (1, 2):
        api.videos.poll.append(ApiError(401, "no access"))
        words = ("--shard", f"{number}/2", "--runs", runner.out, "--run-id", f"s{number}", "--trust-suite")
        assert runner("run", path, *words, "--max-concurrency", "1").exit_code == 3
    begun = len(api.videos.created)
    assert 2 <= begun < 4
    merged = runner("merge", runner.out / "s1", runner.out / "s2", "--run-id", "r", "--runs", runner.out)
    assert merged.exit_code in (0, 3), merged.output
    resume(runner)
    assert sorted(api.videos.prompts) == sorted(case["prompt"] for case in cases)


def test_offline_does_not_ask(api: FakeAPI, runner: SuiteRunner, tmp_path: Path) -> None:
    api.videos.poll.append(ApiError(401, "no access"))
    write(runner, entry(api, "videos"))
    assert runner.run("--trust-suite").exit_code == 3
    seen = len(api.requests)
    record = resume(runner, "--offline", code=3)
    assert record.error.kind == "offline"
    assert len(api.requests) == seen
    assert resume(runner).status == "completed"
    assert len(api.videos.created) == 1
