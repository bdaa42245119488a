"""Starts Ray here, or joins a cluster. Every fault of an address is one line."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from visioneval.errors import UsageError
from visioneval.installation import install_command
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.services import Services
from visioneval.running.execution import Progress
from visioneval.running.jobs import Jobs
from visioneval.running.prepare import ClusterOptions
from visioneval.threads import processors

CONNECT_S = 5.0
"""How long an address may take to accept a connection."""
ANSWER_S = 20.0
"""How long a cluster may take to report its status."""
STORE_BYTES = 256 * 1024**2
"""Shared memory of a Ray that is started here: the plan is the largest object."""


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A connected cluster. ``workers`` is how many actors run the cells of each run."""

    settings: CallSettings
    workers: int

    async def run_cells(self, context: Services, jobs: Jobs, progress: Progress) -> bool:
        """Runs the jobs of a run on the workers. Returns whether any are left."""
        from visioneval.scale.ray.driver import DistributedCells

        return await DistributedCells(context, jobs, progress, self.settings, self.workers).run()


@contextlib.contextmanager
def connected_cluster(options: ClusterOptions, settings: CallSettings) -> Iterator[RayCluster]:
    """Connects to the cluster at ``options.address``, or starts Ray here. A Ray of this process is used as it is.

    Raises ``UsageError`` if Ray is not installed, nobody answers, or the cluster has another version.
    """
    if find_spec("ray") is None:
        raise UsageError(f"--ray needs an extra: {install_command('ray')}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    is_started = ray.is_initialized()
    try:
        if not is_started:
            _connect(options, shows_logs=settings.debug)
        yield RayCluster(settings, options.workers or max(1, int(ray.cluster_resources().get("CPU", 1))))
    finally:
        if not is_started:
            ray.shutdown()


def _connect(options: ClusterOptions, *, shows_logs: bool) -> None:
    import ray

    common: dict[str, Any] = {"log_to_driver": shows_logs, "logging_level": "ERROR", "namespace": "visioneval"}
    if options.address is None:
        cores = max(options.workers or 0, processors())
        ray.init("local", num_cpus=cores, include_dashboard=False, object_store_memory=STORE_BYTES, **common)
        return
    _check_address(options.address)
    try:
        ray.init(options.address, **common)
    except (RuntimeError, ValueError, OSError) as error:
        is_silent, reason = isinstance(error, (ConnectionError, TimeoutError)), " ".join(str(error).split())
        problem = f"no Ray cluster answers there: {reason[:300]}" if is_silent else f"cannot join: {reason}"
        raise UsageError(f"--ray-address {options.address}: {problem}") from None


def _check_address(address: str) -> None:
    """Raises ``UsageError`` for an invalid address, or one without a listener, on which Ray would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"--ray-address {address}: use HOST:PORT of the cluster's head, or auto on one of its nodes"
            " (docs/how_to/ray_cluster.md shows how to submit a run from outside)"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise UsageError(f"--ray-address {address}: no answer: {error.strerror or error}") from None
    try:  # in a child, because in this process Ray would wait for minutes, and print what it waits for
        subprocess.run(  # noqa: S603 - Ray's own command, with a checked address
            [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address],
            capture_output=True,
            timeout=ANSWER_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"--ray-address {address}: no Ray cluster answers there within {ANSWER_S:g} s") from None
    except subprocess.CalledProcessError as error:
        output = error.stderr + error.stdout
        if b"uthentication token" in output:
            raise UsageError(
                f"--ray-address {address}: this cluster asks for its token: set RAY_AUTH_MODE=token, with the token in"
                " ~/.ray/auth_token or in the file that RAY_AUTH_TOKEN_PATH names"
            ) from None
        if b"ersion mismatch" not in output:  # that one is reported by the connection itself
            raise UsageError(f"--ray-address {address}: no Ray cluster answers there") from None
