"""A run in a store that is killed while a video is generated: another machine asks for its end."""

from __future__ import annotations

import pytest
from api_runs import wait_until
from fake_api import FakeAPI
from fork_server import ForkedProgram
from stores import Machines
from suite_runner import SuiteRunner
from video_suites import entry, write

import visioneval as ve
from visioneval.records.stores.store import ObjectStore

pytestmark = pytest.mark.slow

pytest_plugins = ("video_fixtures",)


def test_another_machine_asks_for_an_operation_that_has_begun(
    api: FakeAPI, runner: SuiteRunner, runs: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_CLAIM_EXPIRY_S", "2")
    machines.use("a")
    api.videos.held.set()
    path = write(runner, entry(api, "videos"))
    program = ForkedProgram("run", path, "--runs", runs, "--run-id", "r", "--trust-suite")
    wait_until(lambda: any("operation-" in item.key for item in ObjectStore(runs).walk("r/artifacts")), program)
    program.kill()
    program.communicate(timeout=60)
    api.videos.held.clear()
    machines.use("b")
    resume = ("run", "--resume", f"{runs}/r", "--runs", runs, "--trust-suite")
    result = runner(*resume)
    while "is being written by" in result.output:
        result = runner(*resume)
    assert result.exit_code == 0, result.output
    (record,) = ve.load_run("r", runs=runs).records
    assert record.status == "completed"
    assert len(api.videos.created) == 1
