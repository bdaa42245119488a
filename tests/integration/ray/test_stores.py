"""Runs on a Ray cluster whose nodes and driver share nothing but an object store."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from api_runs import ApiRun, case_id, image_for, wait_until
from fake_api import FakeAPI
from PIL import Image
from ray.cluster_utils import Cluster
from ray_clusters import GRADERS, add_node, check_paid_once, flags, hang_generations, in_flight, started
from stores import FaultyStore, Machines
from typer.testing import CliRunner

import visioneval as ve
from visioneval import Record
from visioneval.cli import app
from visioneval.records.between_cells import read_all_answers
from visioneval.records.questions import read_questions
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.records.stores.store import ObjectStore

_NUMBERS = itertools.count(1)


@pytest.fixture
def runs() -> str:
    """The URL of a folder of runs of its own. ``store`` has the cache beside it."""
    return f"s3://bkt/{next(_NUMBERS)}/runs"


def stored_run(api_run: Callable[..., ApiRun], runs: str, cells: int, **suite: Any) -> ApiRun:
    run = api_run(cells, **suite)
    run.cache = runs.removesuffix("runs") + "cache"  # type: ignore[assignment]
    return run


def check_whole(run: ApiRun, runs: str, machines: Machines) -> None:
    """On another machine, every cell has one record and its own image."""
    machines.use("reader")
    stored = ve.load_run("r", runs=runs)
    assert stored.info.state == "complete"
    fetch_outputs(stored.folder)
    records = list(stored.records)
    assert sorted(record.test_id for record in records) == [case_id(at) for at in range(run.cells)]
    for record in records:
        assert (stored.folder / str(record.artifact_path)).read_bytes() == image_for(record.prompt)


def comparable(record: Record) -> dict[str, Any]:
    """All of a record but times and ids, and which of the cells that asked the same question has paid for it."""
    differing = {"seconds", "waited_seconds", "cached", "cost_usd", "usage"}
    return record.model_dump(
        exclude={"run_id": True, "graders": {"__all__": differing}, **dict.fromkeys(differing, True)}
    )


def test_equals_a_run_in_one_process(
    cluster: Cluster, api_run: Callable[..., ApiRun], machines: Machines, runs: str, tmp_path: Path
) -> None:
    """Record by record, with turns, shared outputs, samples, pairs, diversity and questions that a judge makes."""
    Image.new("RGB", (64, 48), "white").save(tmp_path / "base.png")
    pair = {"key": "better", "type": "pairwise", "judge": "eye"}
    gecko = {"key": "gecko", "type": "gecko", "judge": "eye"}
    run = stored_run(
        api_run,
        runs,
        0,
        samples=2,
        cases=[
            {"id": "tree", "prompt": "a tall tree"},
            {"id": "again", "prompt": "one red tree", "output_of": "tree"},
            {"id": "boat", "prompt": "a tall tree"},
            {"id": "edit", "images": ["base.png"], "turns": ["add some stars", "remove every star"]},
        ],
        models=[{"provider": "mock", "label": "a"}, {"provider": "mock", "label": "b", "params": {"flaw": "blank"}}],
        graders=[{"key": "file", "type": "properties"}, {"key": "spread", "type": "diversity"}, gecko, pair],
        verdict=[{"rule": "not file.blank", "level": "warn"}, "gecko >= 0"],
    )
    shared, run.cache = run.cache, tmp_path / "cache"
    assert run.run(run_id="here").exit_code == 0
    run.api.requests.clear()
    run.api.paid_by_digest.clear()
    run.cache = shared
    result = run.run(*flags(cluster), "--runs", runs, run_id="r")
    assert result.exit_code == 0, result.output
    check_paid_once(run, result.output)
    machines.use("reader")
    here, there = ve.load_run("here", runs=tmp_path / "runs"), ve.load_run("r", runs=runs)
    fetch_outputs(there.folder)
    records = [{record.cell: comparable(record) for record in each.records} for each in (here, there)]
    assert len(records[0]) == 5 * 2 * 2
    for cell, record in records[0].items():
        assert records[1][cell] == record
    files = [
        {str(path.relative_to(each.folder)): path.read_bytes() for path in each.folder.rglob("artifacts/**/*.*")}
        for each in (here, there)
    ]
    assert files[1] == files[0]
    pairs = [
        {(answer.test_id, answer.sample_index) for answer in read_all_answers(each.folder)} for each in (here, there)
    ]
    assert pairs[0]
    assert pairs[1] == pairs[0]
    assert (there.folder / "diversity.jsonl").read_bytes() == (here.folder / "diversity.jsonl").read_bytes()
    questions = [{entry.prompt_sha256 for entry in read_questions(each.folder)} for each in (here, there)]
    assert len(questions[0]) == 4
    assert questions[1] == questions[0]


def test_workers_send_outputs_themselves(
    cluster: Cluster,
    s3: FaultyStore,
    api_run: Callable[..., ApiRun],
    machines: Machines,
    runs: str,
    tmp_path: Path,
) -> None:
    """Each by one request, and the driver has none of them."""
    run = stored_run(api_run, runs, 12)
    result = run.run(*flags(cluster), out=runs)
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "machines" / "a").rglob("artifacts/*/*/*"))
    assert [method for method, path in s3.requests if "/r/artifacts/" in path] == ["PUT"] * 12
    check_whole(run, runs, machines)
    check_paid_once(run, result.output)


def test_resumed_with_changed_rules(
    cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun], machines: Machines, runs: str, tmp_path: Path
) -> None:
    """Workers get the outputs of a run in one process from the store, and grade them."""
    run = stored_run(api_run, runs, 12, graders=GRADERS[:2], verdict=["quality >= 0"])
    assert run.run(out=runs).exit_code == 0
    before = len(api.requests)
    suite = (tmp_path / "suite.yaml").read_text()
    (tmp_path / "suite.yaml").write_text(
        suite.replace(
            '"graders": [',
            '"graders": [' + '{"key": "where", "type": "where:Where", "writes": {"here": {"type": "bool"}}}, ',
        )
    )
    machines.use("b")
    words = ["run", "suite.yaml", "--resume", f"{runs}/r", "--runs", runs, "--trust-suite", "--cache", str(run.cache)]
    result = CliRunner().invoke(app, [*words, *flags(cluster)], env={"PAID_KEY": api.key})
    assert result.exit_code == 0, result.output
    assert len(api.requests) == before
    check_whole(run, runs, machines)
    assert all(record.scores["here"] is True for record in ve.load_run("r", runs=runs).records)


def test_node_that_dies_in_the_middle(
    cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun], machines: Machines, runs: str, tmp_path: Path
) -> None:
    """Its unfinished cells are done by others, with answers that it paid for and put into the shared cache."""
    api.latency = {"images": 0.3, "judge": 0.3}
    run = stored_run(api_run, runs, 60)
    doomed = add_node(cluster, tmp_path)
    program = started(run, *flags(cluster), "--max-concurrency", "6", out=runs)
    wait_until(lambda: api.paid.total() > 30, program)
    unanswered = in_flight(api)
    cluster.remove_node(doomed, allow_graceful=False)
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, output + errors
    assert "lost the worker on node" in errors
    check_whole(run, runs, machines)
    results = ve.load_run("r", runs=runs).folder / "results.jsonl"
    assert len(results.read_bytes().splitlines()) == 60
    assert run.repeated_calls <= unanswered + 6


def test_budget_and_interrupt_are_resumed(
    cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun], machines: Machines, runs: str
) -> None:
    """Each leaves a run that another machine resumes, with and without the cluster. Nothing is paid for twice."""
    api.latency = {"images": 0.3, "judge": 0.3}
    prices = {"openai:gpt-image-2": {"per_image": 0.04}, "openai:gpt-5.4": {"per_call": 0.01}}
    run = stored_run(api_run, runs, 40, prices=prices)
    program = started(run, *flags(cluster), "--max-concurrency", "4", out=runs)
    wait_until(lambda: api.paid.total() > 15, program)
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=60)
    assert program.returncode == 130, output + errors
    assert f"visioneval run --resume {runs}/r" in output + errors
    assert f"--ray --ray-address {cluster.address}" in output + errors
    api.latency.clear()
    machines.use("b")
    result = run.run(*flags(cluster), "--budget", "0.33", resume=True, out=runs)
    assert result.exit_code == 3, result.output
    assert ve.load_run("r", runs=runs).info.stopped_by == "budget"
    machines.use("c")
    result = run.run(resume=True, out=runs)
    assert result.exit_code == 0, result.output
    check_whole(run, runs, machines)
    check_paid_once(run, errors, result.output)


def test_interrupted_twice(
    cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun], machines: Machines, runs: str
) -> None:
    hang_generations(api)
    run = stored_run(api_run, runs, 20)
    program = started(run, *flags(cluster), out=runs)
    wait_until(lambda: in_flight(api) > 0, program)
    program.send_signal(signal.SIGINT)
    assert any("stopping" in line for line in program.stderr or ())
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=30)
    assert program.returncode == 130, output + errors
    assert ve.load_run("r", runs=runs).info.state == "interrupted"


def test_store_that_fails_during_the_run(
    cluster: Cluster,
    s3: FaultyStore,
    api_run: Callable[..., ApiRun],
    machines: Machines,
    runs: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver gets what workers cannot send. If it cannot either, ``--resume`` on its machine sends the rest."""
    run = stored_run(api_run, runs, 6)
    run.cache = tmp_path / "cache"
    monkeypatch.setenv("VISIONEVAL_CLAIM_EXPIRY_S", "2")
    s3.add("503", "PUT", "/artifacts/", times=1_000_000)
    result = run.run(*flags(cluster), out=runs)
    assert result.exit_code == 3, result.output
    assert "the driver sends the outputs that a worker cannot" in result.output
    assert "nothing is lost: what it lacks is in " in result.output
    s3.reset()
    requests = len(run.api.requests)
    while "is being written by" in (result := run.run(*flags(cluster), resume=True, out=runs)).output:
        pass
    assert result.exit_code == 0, result.output
    assert len(run.api.requests) == requests
    check_whole(run, runs, machines)


def test_node_that_may_not_write(
    cluster: Cluster, s3: FaultyStore, api_run: Callable[..., ApiRun], machines: Machines, runs: str
) -> None:
    """The error names node and object, and nothing is paid."""
    run = stored_run(api_run, runs, 2)
    s3.add("403", "PUT", "/claims/worker-", times=10)
    result = run.run(*flags(cluster), out=runs)
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.output.splitlines() if "cannot write" in line]
    assert line.startswith("node ")
    assert f"{runs}/r/claims/worker-" in line
    assert not run.api.requests


def test_shared_cache(
    cluster: Cluster, api_run: Callable[..., ApiRun], machines: Machines, runs: str, tmp_path: Path
) -> None:
    """All answers that workers paid for are in it: another machine replays the run without any call."""
    run = stored_run(api_run, runs, 12, graders=GRADERS[:2], verdict=["quality >= 0"])
    result = run.run(*flags(cluster))
    assert result.exit_code == 0, result.output
    assert (run.generated, run.judged, run.repeated_calls) == (12, 12, 0)
    assert len(ObjectStore(str(run.cache)).walk("answers")) == 24
    machines.use("b")
    result = run.run("--offline", "--reuse", "all", run_id="replayed")
    assert result.exit_code == 0, result.output
    assert len(run.api.requests) == 24
    records = [
        {r.cell: (r.scores, r.artifact_sha256) for r in ve.load_run(name, runs=tmp_path / "runs").records}
        for name in ("r", "replayed")
    ]
    assert records[1] == records[0]
