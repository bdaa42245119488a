"""Who may write a run in a store: a writer that lives keeps it, however long a cell or a transfer lasts."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from stores import FaultyStore, Machines
from toys import Toy

import visioneval as ve
from visioneval.records.stores.store import ObjectStore

pytestmark = pytest.mark.slow

EXPIRY_S = 2
PAUSE_S = 0.5
"""Between two attempts to write a run: without it, they keep a processor busy for a quarter of a minute."""


@pytest.fixture(autouse=True)
def short_expiry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_CLAIM_EXPIRY_S", str(EXPIRY_S))


def heard_from(store: ObjectStore, run_id: str) -> datetime:
    """When a writer was last heard from, by the clock of the store."""
    return max(item.modified for item in store.entries(f"{run_id}/claims") if item.modified is not None)


def check_kept(toy: Toy, runs: str, program: Any) -> None:
    """Nobody else gets the run ``r`` until its writer has lived for longer than its claim is good for."""
    store, words = ObjectStore(runs), ("run", toy.folder / "suite.yaml", "--trust-suite", "--runs", runs)
    while not store.entries("r/claims"):
        assert program.poll() is None, program.communicate(timeout=60)
    start = heard_from(store, "r")
    while heard_from(store, "r") - start <= timedelta(seconds=EXPIRY_S + 1):
        assert program.poll() is None, program.communicate(timeout=60)
        result = toy(*words, "--run-id", "r", "--cache", "other")
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), result.output
        assert result.stderr.startswith(f"{runs}/r: is being written by process ")
        time.sleep(PAUSE_S)


def test_a_cell_that_lasts_longer_than_the_expiry(toy: Toy, any_runs: str, machines: Machines) -> None:
    release = toy.folder / "release"
    suite = toy.write({"metadata": {"wait_for": str(release)}})
    words = ("run", suite, "--trust-suite", "--runs", any_runs, "--run-id", "r", "--cache", "here")
    program = toy.program(*words, VISIONEVAL_STORES=str(toy.folder / "writer"))
    check_kept(toy, any_runs, program)
    release.touch()
    output, errors = program.communicate(timeout=60)
    assert program.returncode == 0, output + errors
    machines.use("b")
    assert (len(ve.load_run("r", runs=any_runs).records), ve.load_run("r", runs=any_runs).exit_code) == (1, 0)


@pytest.mark.parametrize("command", ["run", "resume", "merge"])
def test_a_transfer_that_lasts_longer_than_the_expiry(
    toy: Toy, runs: str, s3: FaultyStore, machines: Machines, command: str
) -> None:
    """A run is sent or read for longer than a claim is good for."""
    words = ("--trust-suite", "--runs", runs, "--cache", "here")
    run = ("run", toy.write({}), *words, "--run-id", "r")
    if command == "resume":
        assert toy(*run).exit_code == 0
        run = ("run", "--resume", "r", *words)
    elif command == "merge":
        assert toy(*run[:-1], "part", "--shard", "1/1").exit_code == 0
        run = ("merge", "part", "--run-id", "r", "--runs", runs)
    s3.released.clear()
    fault = s3.add("held", "GET" if command == "resume" else "PUT", "/r/artifacts/case0/toy/0.png")
    program = toy.program(*run, VISIONEVAL_STORES=str(toy.folder / "writer"))
    while not fault.seen:
        assert program.poll() is None, program.communicate(timeout=60)
    check_kept(toy, runs, program)
    s3.released.set()
    output, errors = program.communicate(timeout=60)
    assert program.returncode == 0, output + errors
    machines.use("c")
    assert ve.load_run("r", runs=runs).exit_code == 0


def test_a_writer_that_gave_up_lets_its_claim_expire(toy: Toy, runs: str, s3: FaultyStore, machines: Machines) -> None:
    """Its process, such as a notebook, lives on."""
    suite, words = toy.write({}), ("--trust-suite", "--runs", runs, "--cache", "here")
    s3.add("503", "PUT", "/results/", times=1000)
    assert toy("run", suite, *words, "--run-id", "r").exit_code == 3
    s3.faults.clear()
    store = ObjectStore(runs)
    start = heard_from(store, "r")
    while "is being written by" in (result := toy("run", "--resume", "r", *words)).output:
        assert heard_from(store, "r") == start, "it is still renewed"
        time.sleep(PAUSE_S)
    assert result.exit_code == 0, result.output
