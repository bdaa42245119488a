"""Videos generated on a cluster: what has begun is asked for by the next run, in a folder and in a store."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from api_runs import KEY, wait_until
from fake_api import FakeAPI, Script, Videos
from ray.cluster_utils import Cluster
from ray_clusters import flags
from stores import Machines
from suite_runner import SuiteRunner
from video_suites import JUDGE, entry, write

from visioneval.records.stores.claims import read_claim
from visioneval.records.stores.store import ObjectStore


@pytest.fixture
def runner(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> SuiteRunner:
    monkeypatch.setenv(KEY, api.key)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(api, "videos", Videos())
    monkeypatch.setattr(api, "script", Script())  # whose judge ``SuiteRunner`` sets; the server is that of all tests
    runner = SuiteRunner(tmp_path / "suite", api)
    judge = {"provider": "gemini", "model": JUDGE, "base_url": api.gemini_base_url, "api_key_env": KEY}
    cases = [{"id": name, "prompt": f"A {name} runs"} for name in ("fox", "hen")]
    write(runner, entry(api, "videos", api_key_env=KEY), judges={"default": judge}, cases=cases)
    return runner


def command(runner: SuiteRunner, cluster: Cluster, *arguments: str | Path) -> subprocess.Popen[str]:
    words = ("run", runner.folder / "suite.yaml", *arguments, "--trust-suite", *flags(cluster))
    return subprocess.Popen(
        [sys.executable, "-m", "visioneval", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )


def check_resumed(runner: SuiteRunner, cluster: Cluster, *arguments: str | Path) -> None:
    runner.api.videos.held.clear()
    program = command(runner, cluster, *arguments)
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, output + errors
    assert sorted(runner.api.videos.prompts) == ["A fox runs", "A hen runs"]


def claim_is_live(runs: str) -> bool:
    claim = read_claim(ObjectStore(runs), "r")
    return claim is not None and claim.is_live(datetime.now(UTC))


def test_a_killed_driver_pays_once(cluster: Cluster, api: FakeAPI, runner: SuiteRunner) -> None:
    api.videos.held.set()
    program = command(runner, cluster, "--runs", runner.out, "--run-id", "r")
    wait_until(lambda: [job.polls > 0 for job in api.videos.created] == [True, True], program)  # type: ignore[arg-type]
    program.kill()
    program.communicate(timeout=60)
    check_resumed(runner, cluster, "--runs", runner.out, "--resume", runner.out / "r")


def test_a_killed_driver_whose_run_is_in_a_store_pays_once(
    cluster: Cluster, api: FakeAPI, runner: SuiteRunner, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_CLAIM_EXPIRY_S", "2")
    runs = "s3://bkt/videos/runs"
    api.videos.held.set()
    program = command(runner, cluster, "--runs", runs, "--run-id", "r")

    def is_written() -> bool:
        return sum("operation-" in item.key for item in ObjectStore(runs).walk("r/artifacts")) == 2

    wait_until(is_written, program)  # type: ignore[arg-type]
    program.kill()
    program.communicate(timeout=60)
    machines.use("b")
    while claim_is_live(runs):
        time.sleep(0.1)
    check_resumed(runner, cluster, "--runs", runs, "--resume", f"{runs}/r")
