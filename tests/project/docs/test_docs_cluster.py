"""docs/how_to/ray_cluster.md: its Kubernetes manifest is well-formed, and its commands of clusters are valid."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

import pytest
import typer
import yaml
from test_docs import ROOT

from visioneval.api.options import run_options
from visioneval.cli import app


@cache
def page() -> str:
    return (ROOT / "docs" / "how_to" / "ray_cluster.md").read_text()


@cache
def manifest() -> dict[str, Any]:
    assert "(../examples/ray_job.yaml)" in page()
    (document,) = yaml.safe_load_all((ROOT / "docs" / "examples" / "ray_job.yaml").read_text())
    return dict(document)


def commands() -> list[str]:
    """Each `visioneval run` of the page, after the words of another command that starts it."""
    lines = page().replace("\\\n", "").splitlines()
    typed = [line.partition("#")[0] for line in lines if line.startswith("    ") and "visioneval run " in line]
    return [line[line.index("visioneval run ") :].strip() for line in typed]


@pytest.mark.slow
@pytest.mark.parametrize("command", [*commands(), manifest()["spec"]["entrypoint"]])
def test_every_command_runs_a_suite_on_a_cluster(command: str) -> None:
    _, _, suite, *flags = shlex.split(command)
    assert suite.endswith("suite.yaml")
    run = typer.main.get_command(app).commands["run"]  # type: ignore[attr-defined]
    parsed = run.make_context("run", [str(ROOT / "suites" / "quickstart" / "suite.yaml"), *flags]).params
    names = ("ray", "ray_address", "workers", "runs", "cache")
    options = run_options(**{name: parsed[name] for name in names if parsed[name] is not None})
    assert options.cluster is not None
    assert options.cluster.address == parsed["ray_address"]


def test_a_submitted_command_is_the_one_of_the_manifest() -> None:
    submitted = [line for line in commands() if "--ray-address auto" in line]
    assert submitted == [manifest()["spec"]["entrypoint"]]


def test_manifest_has_what_the_operator_needs() -> None:
    """By the types of KubeRay's API ``ray.io/v1``: names of keys, and values that are text or whole numbers."""
    assert (manifest()["apiVersion"], manifest()["kind"]) == ("ray.io/v1", "RayJob")
    spec = manifest()["spec"]
    assert spec.keys() == {"entrypoint", "shutdownAfterJobFinishes", "rayClusterSpec"}
    cluster = spec["rayClusterSpec"]
    assert cluster.keys() == {"headGroupSpec", "workerGroupSpecs"}
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert head.keys() == {"rayStartParams", "template"}
    assert workers.keys() == head.keys() | {"groupName", "replicas", "minReplicas", "maxReplicas"}
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in (head, workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {"name", "image"} <= container.keys()
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounts == {volume["name"]: "/shared" for volume in pod["volumes"]}
        assert "cpu" in container["resources"]["limits"]  # how many workers a node has room for
