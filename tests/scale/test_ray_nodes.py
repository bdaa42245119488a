"""What a worker checks of its node before anything is paid, and the flags of a cluster."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest
from engine_parts import plan_of
from typer.testing import CliRunner

from visioneval import UsageError, __version__
from visioneval.api.options import run_options
from visioneval.cli import app
from visioneval.running.calls.settings import CallSettings
from visioneval.running.prepare import ClusterOptions
from visioneval.scale.ray import cluster
from visioneval.scale.ray.jobs import Assignment, Probe


@pytest.fixture
def assignment(tmp_path: Path, write_suite: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Assignment:
    monkeypatch.chdir(tmp_path)
    plan = plan_of(write_suite())
    (tmp_path / "probe").write_bytes(b"token")
    probe = Probe("the run folder", tmp_path / "probe", sha256(b"token").hexdigest(), is_written=True)
    return Assignment(
        plan=plan,
        info=None,  # type: ignore[arg-type]
        folder=tmp_path,
        runs_url=None,
        has_outputs=False,
        settings=CallSettings(),
        cache_url=None,
        has_budget=False,
        working_directory=tmp_path,
        bounds={},
        probes=(probe,),
        extras={},
        version=__version__,
    )


def problem(assignment: Assignment) -> str:
    with pytest.raises(UsageError) as raised:
        assignment.check_node()
    return str(raised.value)


def test_a_node_like_the_driver_leaves_nothing_behind(assignment: Assignment, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assignment.check_node()
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_the_node_does_not_see(assignment: Assignment, tmp_path: Path) -> None:
    (tmp_path / "probe").unlink()
    assert problem(assignment).startswith(f"cannot reach the run folder {tmp_path}: workers need the same folder")


def test_a_folder_of_the_same_name_elsewhere(assignment: Assignment, tmp_path: Path) -> None:
    (tmp_path / "probe").write_bytes(b"another")
    assert "is another file than the driver's" in problem(assignment)


def test_an_extra_that_the_node_lacks(assignment: Assignment) -> None:
    lacking = replace(assignment, extras={"ocr": ("json", "no_such_package")})
    assert (
        problem(lacking)
        == "lacks the extra 'ocr' (no_such_package): on this node, run pip install -e '.[ocr]' in a checkout of visioneval"
    )


def test_another_version_of_visioneval(assignment: Assignment) -> None:
    assert problem(replace(assignment, version="0.0.1")).startswith(
        f"has visioneval {__version__}, the driver has 0.0.1"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--workers", "2"), "--workers needs --ray"),
        (("--ray-address", "auto"), "--ray-address needs --ray"),
        (("--ray", "--workers", "0"), "--workers: 0 is less than 1"),
        (("--ray", "--workers", "10001"), "--workers: 10001 is more than 10000"),
    ],
)
def test_flags(flags: tuple[str, ...], message: str, write_suite: Callable[..., Path]) -> None:
    result = CliRunner().invoke(app, ["run", str(write_suite()), *flags])
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray(write_suite: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", str(write_suite()), "--ray"])
    assert result.exit_code == 2
    assert result.output == "--ray needs an extra: run pip install -e '.[ray]' in a checkout of visioneval\n"
    assert not (tmp_path / "runs").exists()


def test_options_of_the_python_api() -> None:
    assert run_options(ray=True, ray_address="auto", workers=3).cluster == ClusterOptions("auto", 3)
    assert run_options().cluster is None


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"InvalidAuthToken: Authentication token is missing or incorrect", "this cluster asks for its token"),
        (b"enabled but no authentication token was found", "set RAY_AUTH_MODE=token, with the token in ~/.ray/"),
        (b"Ray cluster is not found", "no Ray cluster answers there"),
    ],
)
def test_cluster_that_refuses_to_report_its_status(
    output: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, "ray", stderr=output, output=b"")

    monkeypatch.setattr(cluster.subprocess, "run", status)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError) as raised:
            cluster._check_address(address)
    assert str(raised.value).startswith(f"--ray-address {address}: ")
    assert message in str(raised.value)
