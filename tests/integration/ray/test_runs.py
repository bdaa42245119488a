"""Runs on a Ray cluster of two nodes on this machine, against the fake API."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_runs import KEY, ApiRun, case_id, image_for, wait_until
from fake_api import FakeAPI, Fault
from PIL import Image
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray_clusters import GRADERS, check_paid_once, flags, hang_generations, in_flight, running_cluster, started
from typer.testing import CliRunner

from visioneval import read_info, read_records
from visioneval.cli import app
from visioneval.records.between_cells import read_all_answers
from visioneval.records.questions import read_questions


def lines(run: ApiRun) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.run_folder / "results.jsonl").read_text().splitlines()]


def test_sixty_cells_over_both_nodes(cluster: Cluster, api_run: Callable[..., ApiRun]) -> None:
    run = api_run(60)
    result = run.run(*flags(cluster))
    assert result.exit_code == 0, result.output
    records = list(read_records(run.run_folder))
    assert sorted(record.test_id for record in records) == [case_id(at) for at in range(60)]
    assert len(lines(run)) == 60
    assert all((run.run_folder / str(record.artifact_path)).is_file() for record in records)
    nodes = {grader.details["node"] for record in records for grader in record.graders if grader.key == "where"}
    assert len(nodes) == 2
    check_paid_once(run, result.output)
    assert len(run.api.paid_by_digest) == 120
    assert not [path.name for path in run.run_folder.iterdir() if path.name.startswith(".")]


def check_whole(run: ApiRun) -> None:
    """Every cell has a record and its own image."""
    records = list(read_records(run.run_folder))
    assert sorted(record.test_id for record in records) == [case_id(at) for at in range(run.cells)]
    for record in records:
        assert (run.run_folder / str(record.artifact_path)).read_bytes() == image_for(record.prompt)
    assert read_info(run.run_folder).state == "complete"


def test_node_that_dies_in_the_middle(cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun]) -> None:
    """Its unfinished cells are done by the other node; only calls in flight at its death are paid again."""
    api.latency = {"images": 0.3, "judge": 0.3}
    run = api_run(60)
    doomed = cluster.add_node(num_cpus=1)
    program = started(run, *flags(cluster), "--max-concurrency", "6")
    wait_until(lambda: api.paid.total() > 30, program)
    unanswered = in_flight(api)
    cluster.remove_node(doomed, allow_graceful=False)
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, output + errors
    assert "lost the worker on node" in errors
    check_whole(run)
    assert len(lines(run)) == 60
    assert run.repeated_calls <= unanswered + 6


def test_budget_ends_the_run(cluster: Cluster, api_run: Callable[..., ApiRun]) -> None:
    prices = {"openai:gpt-image-2": {"per_image": 0.04}, "openai:gpt-5.4": {"per_call": 0.01}}
    run = api_run(40, prices=prices)
    first = run.run(*flags(cluster), "--budget", "0.63")
    assert first.exit_code == 3, first.output
    assert read_info(run.run_folder).stopped_by == "budget"
    spent = 0.04 * run.generated + 0.01 * run.judged
    assert 0.5 < spent <= 0.63
    assert "to resume: visioneval run --resume runs/r" in first.output
    result = run.run(*flags(cluster), resume=True)
    assert result.exit_code == 0, result.output
    check_whole(run)
    check_paid_once(run, first.output, result.output)


def test_a_429_of_one_worker_slows_all(cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun]) -> None:
    """After a 429 no generation starts until the wait that it asks for is over, whichever worker met it."""
    api.latency = {"images": 0.05}
    run = api_run(40, graders=GRADERS[1:], verdict=["here"])
    api.faults.queue(*[None] * 10, Fault("rate_limit", retry_after=3))
    result = run.run(*flags(cluster), "--max-concurrency", "4")
    assert result.exit_code == 0, result.output
    times = [entry.at for entry in api.requests]
    (limited,) = [entry.at for entry in api.requests if entry.status == 429]
    assert not [at for at in times if limited + 1 < at < limited + 2.9]
    assert len([at for at in times if at >= limited + 2.9]) > 20


def test_interrupted_once_and_resumed(cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun]) -> None:
    """Calls in flight are finished and recorded, and the resumed run pays for nothing twice."""
    api.latency = {"images": 0.3, "judge": 0.3}
    run = api_run(60)
    program = started(run, *flags(cluster), "--max-concurrency", "4")
    wait_until(lambda: api.paid.total() > 15, program)
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=60)
    assert program.returncode == 130, output + errors
    assert "stopping: waiting for what has begun" in errors
    assert "visioneval run --resume runs/r" in output + errors
    assert f"--ray --ray-address {cluster.address}" in output + errors
    assert 0 < len(lines(run)) < 60
    assert read_info(run.run_folder).state == "interrupted"
    api.latency.clear()
    result = run.run(*flags(cluster), resume=True)
    assert result.exit_code == 0, result.output
    check_whole(run)
    check_paid_once(run, errors, result.output)


def test_interrupted_twice(cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun]) -> None:
    """Ends at once, with the records up to there."""
    hang_generations(api)
    run = api_run(20)
    program = started(run, *flags(cluster))
    wait_until(lambda: in_flight(api) > 0, program)
    program.send_signal(signal.SIGINT)
    said: list[str] = []
    for line in program.stderr or ():
        said.append(line)
        if "stopping" in line:
            break
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate(timeout=30)
    assert program.returncode == 130, output + errors
    assert read_info(run.run_folder).state == "interrupted"


def test_cluster_that_shrinks_to_none(
    api: FakeAPI, api_run: Callable[..., ApiRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with what it has, and says how to resume it."""
    monkeypatch.setattr("visioneval.scale.ray.driver.NEW_WORKER_S", 2)
    run = api_run(40)
    with running_cluster(api, nodes=1) as (cluster, (node,)):
        api.latency = {"images": 0.3, "judge": 0.3}
        remover = threading.Thread(target=remove_after, args=(cluster, node, lambda: api.paid.total() > 10))
        remover.start()
        result = run.run(*flags(cluster), "--max-concurrency", "4")
        remover.join()
    assert result.exit_code == 3, result.output
    assert "no worker is left, and none has started within 2 s" in result.output
    assert "to resume: visioneval run --resume runs/r" in result.output
    assert "Traceback" not in result.output
    assert 0 < len(lines(run)) < 40
    assert read_info(run.run_folder).state == "interrupted"


def remove_after(cluster: Cluster, node: Any, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    cluster.remove_node(node, allow_graceful=False)


def test_ray_of_another_version(cluster: Cluster, api_run: Callable[..., ApiRun]) -> None:
    """By what the cluster says of itself."""
    run = api_run(1)
    with changed_metadata(cluster, ray_version="2.9.0"):
        result = run.run(*flags(cluster))
    assert result.exit_code == 2
    (line,) = result.output.strip().splitlines()
    assert line.startswith(f"--ray-address {cluster.address}: cannot join: Version mismatch")
    assert "Ray: 2.9.0" in line
    assert not run.run_folder.exists()


@contextmanager
def changed_metadata(cluster: Cluster, **changes: str) -> Iterator[None]:
    client = GcsClient(address=cluster.address)
    key, space = b"CLUSTER_METADATA", b"cluster"
    before = client.internal_kv_get(key, space)
    client.internal_kv_put(key, json.dumps({**json.loads(before), **changes}).encode(), True, space)
    try:
        yield
    finally:
        client.internal_kv_put(key, before, True, space)


def test_address_that_is_no_cluster(api: FakeAPI, api_run: Callable[..., ApiRun]) -> None:
    run = api_run(1)
    result = run.run("--ray", "--ray-address", f"127.0.0.1:{api.port}")
    assert result.exit_code == 2
    assert result.output.startswith(f"--ray-address 127.0.0.1:{api.port}: no Ray cluster answers there")
    assert len(result.output.splitlines()) == 1


def test_starts_ray_here(api: FakeAPI, api_run: Callable[..., ApiRun]) -> None:
    run = api_run(4)
    program = started(run, "--ray", "--workers", "2", "--json")
    output, errors = program.communicate(timeout=120)
    assert program.returncode == 0, output + errors
    assert json.loads(output)["counts"]["passed"] == 4
    check_whole(run)


def test_key_that_the_nodes_lack(cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun]) -> None:
    """The nodes have no secret of the driver: the error names node and key, and nothing is paid."""
    run = api_run(
        2,
        judges={
            "eye": {
                "provider": "openai",
                "model": "gpt-5.4",
                "base_url": api.openai_base_url,
                "api_key_env": "OTHER_API_KEY",
            }
        },
    )
    program = started(run, *flags(cluster), OTHER_API_KEY=api.key)
    output, errors = program.communicate(timeout=60)
    assert program.returncode == 2, output + errors
    assert "node" in errors
    assert "set the environment variable OTHER_API_KEY" in errors
    assert not api.requests


def comparable(run: ApiRun, run_id: str) -> dict[tuple[str, str, int], Any]:
    """What two runs of a suite have in common, by cell."""
    return {
        record.cell: (record.verdict, record.scores, record.artifact_sha256, record.generation_key, record.grade_key)
        for record in read_records(run.folder / "runs" / run_id)
    }


def test_equals_a_run_in_one_process(cluster: Cluster, api_run: Callable[..., ApiRun], tmp_path: Path) -> None:
    """With turns, shared outputs, samples, a pairwise grader and questions that a judge makes."""
    Image.new("RGB", (64, 48), "white").save(tmp_path / "base.png")
    pair = {"key": "better", "type": "pairwise", "judge": "eye"}
    gecko = {"key": "gecko", "type": "gecko", "judge": "eye"}
    run = api_run(
        0,
        samples=2,
        cases=[
            {"id": "tree", "prompt": "a tall tree"},
            {"id": "again", "prompt": "one red tree", "output_of": "tree"},
            {"id": "boat", "prompt": "a tall tree"},
            {"id": "edit", "images": ["base.png"], "turns": ["add some stars", "remove every star"]},
        ],
        models=[{"provider": "mock", "label": "a"}, {"provider": "mock", "label": "b", "params": {"flaw": "blank"}}],
        graders=[{"key": "file", "type": "properties"}, gecko, pair],
        verdict=[{"rule": "not file.blank", "level": "warn"}, "gecko >= 0"],
    )
    assert run.run(run_id="here").exit_code == 0
    run.api.requests.clear()
    run.api.paid_by_digest.clear()
    run.cache = tmp_path / "another_cache"
    result = run.run(*flags(cluster), run_id="there")
    assert result.exit_code == 0, result.output
    assert len(comparable(run, "here")) == 5 * 2 * 2
    assert comparable(run, "there") == comparable(run, "here")
    folders = [tmp_path / "runs" / name for name in ("here", "there")]
    questions = [{entry.prompt_sha256 for entry in read_questions(folder)} for folder in folders]
    assert len(questions[0]) == 4
    assert questions[0] == questions[1]
    pairs = [{(answer.test_id, answer.sample_index) for answer in read_all_answers(folder)} for folder in folders]
    assert pairs[0]
    assert pairs[0] == pairs[1]
    check_paid_once(run, result.output)


def test_a_local_run_is_resumed_on_a_cluster(
    cluster: Cluster, api: FakeAPI, api_run: Callable[..., ApiRun], tmp_path: Path
) -> None:
    """Whose rules have changed since, so that existing outputs are graded by the workers."""
    run = api_run(12, graders=GRADERS[:2], verdict=["quality >= 0"])
    assert run.run("--limit", "5").exit_code == 0
    before = len(api.requests)
    suite = json.loads((tmp_path / "suite.yaml").read_text())
    suite["graders"].append(GRADERS[2])
    (tmp_path / "suite.yaml").write_text(json.dumps(suite))
    words = ["run", "suite.yaml", "--resume", "runs/r", "--trust-suite", "--cache", str(run.cache), *flags(cluster)]
    result = CliRunner().invoke(app, words, env={KEY: api.key})
    assert result.exit_code == 0, result.output
    records = list(read_records(run.run_folder))
    assert len(records) == 5
    assert all(record.scores["here"] is True for record in records)
    assert len(api.requests) == before
