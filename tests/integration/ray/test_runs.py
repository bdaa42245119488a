"""Runs on a Ray cluster of two nodes on this machine, against the fake API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from api_runs import KEY, ApiRun, case_id, prompt, scripted
from fake_api import FakeAPI
from ray.cluster_utils import Cluster

from visioneval.records.model import read_info, read_records

WHERE = """\
import ray
from visioneval import Grade


class Where:
    def __init__(self, config): pass

    async def grade(self, context):
        return Grade(scores={"here": True}, details={"node": ray.get_runtime_context().get_node_id()})
"""
GRADERS = [
    {
        "key": "look",
        "type": "rubric",
        "judge": "eye",
        "metrics": {
            "quality": {
                "type": "score",
                "scale": [0, 5],
                "description": "How good is it?",
                "anchors": {"0": "bad", "5": "good"},
            }
        },
    },
    {"key": "file", "type": "properties"},
    {"key": "where", "type": "where:Where", "writes": {"here": {"type": "bool"}}},
]


@pytest.fixture(scope="module")
def api() -> Iterator[FakeAPI]:
    with FakeAPI(scripted()) as server:
        yield server


@pytest.fixture(autouse=True)
def quiet_api(api: FakeAPI) -> None:
    """Forgets the requests of the test before."""
    api.requests.clear()
    api.paid_by_digest.clear()
    api.latency.clear()


@pytest.fixture(scope="module")
def cluster(api: FakeAPI) -> Iterator[Cluster]:
    """Two nodes of one core, beside a head without any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv(KEY, api.key)
        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            nodes.add_node(num_cpus=1)
        yield nodes
        ray.shutdown()
        nodes.shutdown()


@pytest.fixture
def api_run(tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ApiRun]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    (tmp_path / "where.py").write_text(WHERE)
    return lambda cells, **suite: ApiRun(tmp_path, api, cells, **{"graders": GRADERS, **suite})


def flags(cluster: Cluster) -> tuple[str, ...]:
    return "--ray", "--ray-address", cluster.address


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
    assert (run.generated, run.judged, run.repeated_calls) == (60, 60, 0)
    assert not [path.name for path in run.run_folder.iterdir() if path.name.startswith(".")]
