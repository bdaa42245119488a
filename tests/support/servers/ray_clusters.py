"""Ray clusters of several nodes on this machine, for the tests in the environment of ``make integration``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray
from api_runs import KEY, ApiRun
from fake_api import FakeAPI
from ray.cluster_utils import Cluster


@contextmanager
def running_cluster(api: FakeAPI, nodes: int) -> Iterator[tuple[Cluster, tuple[Any, ...]]]:
    """A head without cores, and so many nodes of one core, whose environment has the key of the server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv(KEY, api.key)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        try:
            yield cluster, tuple(cluster.add_node(num_cpus=1) for _ in range(nodes))
        finally:
            ray.shutdown()
            cluster.shutdown()


def flags(cluster: Cluster) -> tuple[str, ...]:
    """The flags of a command that joins a cluster."""
    return "--ray", "--ray-address", cluster.address


def started(run: ApiRun, *flags: str, **environment: str) -> subprocess.Popen[str]:
    """The command of a run in a new process."""
    return subprocess.Popen(
        [sys.executable, "-m", "visioneval", *run.arguments(*flags)],
        cwd=run.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, KEY: run.api.key, **environment},
    )
