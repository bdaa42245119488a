"""Writers of runs in stores: two at once, kills, lost claims, and a store that fails."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from stores import FaultyStore, Machines
from suite_runner import SuiteRunner
from toys import Toy

import visioneval as ve
from visioneval import UsageError
from visioneval.records.stores.claims import RunClaim
from visioneval.records.stores.store import ObjectStore

pytestmark = pytest.mark.slow


def run(runner: SuiteRunner, runs: str, *words: str, run_id: str = "r") -> Any:
    return runner("run", runner.folder / "suite.yaml", "--runs", runs, "--run-id", run_id, *words)


def test_of_many_writers_at_once_one_gets_the_run(any_runs: str) -> None:
    store, winners, losers = ObjectStore(any_runs), [], []
    barrier = threading.Barrier(8)

    def claim() -> None:
        barrier.wait()
        try:
            winners.append(RunClaim.acquire(store, "r"))
        except UsageError as error:
            losers.append(str(error))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(winners), len(losers)) == (1, 7)
    assert all(f"{any_runs}/r: is being written by process" in loser for loser in losers)


def test_a_second_writer_is_refused_before_it_pays(runner: SuiteRunner, runs: str, machines: Machines) -> None:
    runner.write()
    assert run(runner, runs).exit_code == 0
    claim, called = RunClaim.acquire(ObjectStore(runs), "r"), runner.called
    machines.use("b")
    for words in (("--run-id", "r"), ("--resume", "r")):
        result = runner("run", runner.folder / "suite.yaml", "--runs", runs, *words)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith(
            f"{runs}/r: is being written by {claim.body.writer} since {claim.body.since}, last heard"
        )
    assert runner.called == called
    claim.release()
    assert runner("run", "--resume", "r", "--runs", runs).exit_code == 0


def test_two_processes_with_one_run_id_generate_each_output_once(toy: Toy, runs: str, machines: Machines) -> None:
    suite = toy.write(*({"metadata": {"wait": 0.5}} for _ in range(3)))
    words = ("run", suite, "--trust-suite", "--runs", runs, "--run-id", "r", "--quiet", "--cache", "shared")
    programs = [toy.program(*words, VISIONEVAL_STORES=str(toy.folder / name)) for name in ("b", "c")]
    results = [(*program.communicate(timeout=60), program.returncode) for program in programs]
    (_, _, first), (_, error, second) = sorted(results, key=lambda result: result[2])
    assert (first, second) == (0, 2), results
    (line,) = error.splitlines()
    assert line.startswith(f"{runs}/r: is being written by process ")
    records = ve.load_run("r", runs=runs).records
    assert sorted(record.test_id for record in records) == ["case0", "case1", "case2"]
    assert [record.cached for record in records] == [False] * 3


def test_outputs_arrive_before_the_records_that_name_them(
    runner: SuiteRunner, runs: str, s3: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_SEGMENT_CELLS", "1")
    runner.write(*(f"case{number}" for number in range(6)))
    assert run(runner, runs).exit_code == 0
    store = ObjectStore(runs)
    puts = [
        path.split("?")[0].removeprefix(runs.removeprefix("s3:/")) for method, path in s3.requests if method == "PUT"
    ]
    segments = [item.key for item in store.entries("r/results")]
    for key in segments:
        for line in store.read(key).splitlines():
            output = f"/r/{json.loads(line)['artifact_path']}"
            assert puts.index(output) < puts.index(f"/{key}")
    assert puts.index("/r/run.json") < puts.index(f"/{segments[0]}") < len(puts) - puts[::-1].index("/r/run.json")


@pytest.mark.parametrize("kind", ["503", "slow", "lost"])
def test_a_run_outlives_a_store_that_fails_for_a_while(
    runner: SuiteRunner, runs: str, s3: FaultyStore, machines: Machines, kind: str
) -> None:
    runner.write()
    faults = [s3.add(kind, "PUT", part) for part in ("/artifacts/", "/results/", "run.json", "/claims/")]
    assert run(runner, runs).exit_code == 0
    assert [fault.seen for fault in faults] == [1] * len(faults)
    s3.add("cut", "GET", "/results/")
    s3.add("503", "GET", "/run.json")
    machines.use("b")
    assert len(ve.load_run("r", runs=runs).records) == 2


def test_what_a_failing_store_did_not_take_is_sent_by_the_next_resume(
    runner: SuiteRunner, runs: str, s3: FaultyStore, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISIONEVAL_CLAIM_EXPIRY_S", "2")
    runner.write()
    fault = s3.add("503", "PUT", "/results/", times=1000)
    result = run(runner, runs)
    assert result.exit_code == 3
    line = result.stderr.splitlines()[-1]
    assert line.startswith(f"cannot write {runs}/r/results/")
    assert line.endswith(f"visioneval run --resume {runs}/r")
    folder = Path(line.partition("what it lacks is in ")[2].partition("; to send")[0])
    assert len((folder / "results.jsonl").read_text().splitlines()) == 2
    fault.times = 0
    called = runner.called
    while "is being written by" in (result := runner("run", "--resume", f"{runs}/r")).output:
        pass
    assert result.exit_code == 0, result.output
    assert f"resuming {runs}/r: to generate: 0; to grade again: 0; unchanged: 2" in result.output
    assert runner.called == called
    machines.use("b")
    assert len(ve.load_run("r", runs=runs).records) == 2


def test_credentials_that_expire_lose_nothing(runner: SuiteRunner, runs: str, s3: FaultyStore) -> None:
    runner.write()
    s3.add("403", "PUT", "/artifacts/", times=1000)
    result = run(runner, runs)
    assert result.exit_code == 3, result.output
    assert "access denied" in result.stderr.splitlines()[-1]
    assert "nothing is lost: what it lacks is in " in result.stderr.splitlines()[-1]


def test_a_reader_reports_a_failing_store_in_one_line(runner: SuiteRunner, runs: str, s3: FaultyStore) -> None:
    runner.write()
    assert run(runner, runs).exit_code == 0
    s3.add("503", "GET", "/r/", times=1000)
    result = runner("show", "r", "--runs", runs)
    assert (result.exit_code, len(result.stderr.splitlines())) == (3, 1)
    assert result.stderr.startswith(f"cannot list {runs}/r: ")


def test_a_bucket_that_cannot_be_created_in_costs_nothing(runner: SuiteRunner, runs: str, s3: FaultyStore) -> None:
    s3.add("403", "PUT", "/r/", times=1000)
    runner.write()
    result = run(runner, runs)
    assert (result.exit_code, runner.called) == (2, (0, 0))
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"cannot create {runs}/r/claims/000001.json: access denied")
    result = run(runner, "s3://nowhere/runs")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("kind", ["501", "unconditional"])
def test_a_store_without_exclusive_creation_is_refused(
    runner: SuiteRunner, runs: str, s3: FaultyStore, kind: str
) -> None:
    s3.add(kind, "PUT", "/claims/000001.json", times=1000)
    runner.write()
    result = run(runner, runs)
    assert (result.exit_code, runner.called) == (2, (0, 0))
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{runs}: this store has no conditional create")
    assert ObjectStore(runs).entries("r/claims") == []


def test_a_store_that_cannot_list_is_one_line(runner: SuiteRunner, runs: str, s3: FaultyStore) -> None:
    s3.add("501", "GET", "/", times=1000)
    result = runner("show", f"{runs}/r")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("cannot ")
    assert runs in line


def test_a_writer_that_lost_its_claim_stops(
    runner: SuiteRunner, runs: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a machine slept: another one took over, and what the first still has is not sent."""
    store = ObjectStore(runs)

    def take_over(self: RunClaim) -> None:
        store.put("r/claims/000002.json", self.body.model_dump_json().encode())

    runner.write()
    original = RunClaim.check
    monkeypatch.setattr(RunClaim, "check", lambda self: (take_over(self), original(self))[1])
    result = run(runner, runs)
    assert result.exit_code == 3
    assert f"{runs}/r: another process has taken over this run" in result.stderr.splitlines()[-1]
    assert store.entries("r/results") == []


@pytest.mark.parametrize("name", ["VISIONEVAL_CLAIM_EXPIRY_S", "VISIONEVAL_SEGMENT_CELLS", "VISIONEVAL_SEGMENT_S"])
@pytest.mark.parametrize("value", ["x", "0", "-1", "1e3", "9999999999"])
def test_a_bad_setting_is_one_line(
    runner: SuiteRunner, runs: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    runner.write()
    result = run(runner, runs)
    assert (result.exit_code, runner.called) == (2, (0, 0))
    assert result.stderr.startswith(f"{name}={value!r}: must be a whole number from ")


def test_a_killed_run_is_resumed_on_another_machine(
    toy: Toy, runs: str, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CLAIM_EXPIRY_S", "2"), ("SEGMENT_CELLS", "1"), ("SEGMENT_S", "1")):
        monkeypatch.setenv(f"VISIONEVAL_{name}", value)
    suite = toy.write(*({} for _ in range(3)), {"metadata": {"wait": 60}})
    program = toy.program("run", suite, "--trust-suite", "--runs", runs, "--run-id", "r", "--cache", "a")
    store, count = ObjectStore(runs), 0
    while count < 3 and program.poll() is None:
        items = store.entries("r/results")
        count = sum(len(store.read(item.key).splitlines()) for item in items)
    os.kill(program.pid, signal.SIGKILL)
    program.communicate(timeout=60)
    assert count == 3
    machines.use("b")
    while (state := ve.load_run("r", runs=runs).info.state) == "running":
        pass
    assert state == "stopped"
    assert (
        f"{runs}/r: the run was killed; to resume: visioneval run --resume {runs}/r"
        in toy("runs", "--runs", runs).stderr
    )
    suite.write_text(suite.read_text().replace('"wait": 60', '"wait": 0'))
    words = ("run", suite, "--trust-suite", "--resume", "r", "--runs", runs, "--cache", "b")
    while "is being written by" in (result := toy(*words)).output:
        pass
    assert result.exit_code == 0, result.output
    assert "to generate: 1 (1 not done yet)" in result.output
    assert len(ve.load_run("r", runs=runs).records) == 4
