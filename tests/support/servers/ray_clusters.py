"""Ray clusters of several nodes on this machine, for the tests in the environment of ``make integration``."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from api_runs import KEY, ApiRun
from fake_api import FakeAPI, Fault, GenerationRequest
from ray.cluster_utils import Cluster

WHERE = """\
import ray
from visioneval import Grade


class Where:
    def __init__(self, config): pass

    async def grade(self, context):
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""  # else it starts Ray here
        return Grade(scores={"here": True}, details={"node": node})
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


@contextmanager
def running_cluster(api: FakeAPI, nodes: int, folder: Path | None = None) -> Iterator[tuple[Cluster, tuple[Any, ...]]]:
    """A head without cores, and so many nodes of one core, whose environment has the key of the server.

    With ``folder``, each node has folders of its own for stores and caches there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # else other programs' memory may end a worker
        patch.setenv(KEY, api.key)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        try:
            yield cluster, tuple(add_node(cluster, folder) for _ in range(nodes))
        finally:
            ray.shutdown()
            cluster.shutdown()


def add_node(cluster: Cluster, folder: Path | None = None) -> Any:
    """A node of one core; with ``folder``, one that shares none of its own with others."""
    with pytest.MonkeyPatch.context() as patch:
        if folder is not None:
            patch.setenv("VISIONEVAL_STORES", str(folder / secrets.token_hex(4)))
        return cluster.add_node(num_cpus=1)


def in_flight(api: FakeAPI) -> int:
    return sum(not entry.status for entry in list(api.requests))


def hang_generations(api: FakeAPI) -> None:
    """No generation is answered: one that is answered late would count as paid in a later test."""
    api.faults.when(lambda asked: isinstance(asked, GenerationRequest), Fault("hang"))


def check_paid_once(run: ApiRun, *outputs: str) -> None:
    """Checks that no call was paid twice, unless a machine without memory for it has lost a worker with its calls."""
    if not any("lost the worker on node" in output for output in outputs):
        again = [entry for entry in run.api.requests if run.api.paid_by_digest[entry.digest] > 1]
        assert not again, ([(entry.at, entry.endpoint, entry.status, entry.asked) for entry in again], outputs)


def flags(cluster: Cluster) -> tuple[str, ...]:
    """The flags of a command that joins a cluster."""
    return "--ray", "--ray-address", cluster.address


def started(run: ApiRun, *flags: str, out: str = "runs", **environment: str) -> subprocess.Popen[str]:
    """The command of a run in a new process."""
    return subprocess.Popen(
        [sys.executable, "-m", "visioneval", *run.arguments(*flags, out=out)],
        cwd=run.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, KEY: run.api.key, **environment},
    )
