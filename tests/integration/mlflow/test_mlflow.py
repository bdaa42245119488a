"""Runs in a real MLflow server on SQLite."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import pytest
from canned_api import canned
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow_server import free_port, mlflow_server
from tracked_runs import LABELS, tracked_demo
from typer.testing import CliRunner, Result

from visioneval import load_run
from visioneval.cli import app
from visioneval.export.mlflow import LIMITS

Runs = dict[str | None, Run]
SUITE = """\
name: tracked
experiment: after-run
cases: [{id: one, prompt: a tree}, {id: two, prompt: a boat}]
models: [{provider: mock}, {provider: mock, label: blank, params: {flaw: blank}}]
graders: [{key: image, type: properties}]
verdict: [not image.blank]
gates: [pass_rate >= 0.4]
tracking: TARGET
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    memory = Path("/dev/shm")  # else SQLite waits for the disk after each of hundreds of requests
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder, mlflow_server(Path(folder)) as url:
        yield url


@pytest.fixture(scope="module")
def client(server: str) -> MlflowClient:
    return MlflowClient(server)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``command(*arguments)`` in an empty folder, which trusts the server."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    for name in LIMITS:
        monkeypatch.setenv(name, "0" if name.endswith("RETRIES") else "20")
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def runs_of(client: MlflowClient, experiment: str) -> Runs:
    """The active runs of an experiment by the label of the model run."""
    found_experiment = client.get_experiment_by_name(experiment)
    runs = client.search_runs([found_experiment.experiment_id]) if found_experiment else []
    labels = [run.data.tags.get("visioneval.model_run") for run in runs]
    assert len(labels) == len(set(labels)), "a second export doubled the runs"
    return dict(zip(labels, runs, strict=True))


def artifact(server: str, run: Run, path: str) -> bytes:
    with urlopen(f"{server}/get-artifact?path={path}&run_uuid={run.info.run_id}", timeout=30) as answer:
        return bytes(answer.read())


@pytest.fixture(scope="module")
def sent_demo(server: str, client: MlflowClient, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Runs]:
    """An export of a run, and its runs in MLflow."""
    root = tmp_path_factory.mktemp("runs")
    tracked_demo(root)
    arguments = ["export", "demo", "--to", "mlflow", "--option", f"uri={server}", "--runs", str(root)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result, runs_of(client, "trees")


def test_a_run_with_nested_model_runs(server: str, sent_demo: tuple[Result, Runs]) -> None:
    result, runs = sent_demo
    assert runs.keys() == {None, *LABELS}
    whole, steady, odd = runs[None], runs[LABELS[0]], runs[LABELS[1]]
    assert result.stdout == f"{server}/#/experiments/{whole.info.experiment_id}/runs/{whole.info.run_id}\n"
    assert (whole.info.run_name, whole.info.status) == ("demo", "FINISHED")
    assert steady.data.tags["mlflow.parentRunId"] == odd.data.tags["mlflow.parentRunId"] == whole.info.run_id
    assert odd.info.run_name == LABELS[1]
    assert whole.data.metrics["pass_rate"] == 0.5
    assert whole.data.metrics["pass_rate_low"] < 0.5 < whole.data.metrics["pass_rate_high"]
    assert whole.data.tags["gate.1"].startswith("failed: pass_rate >= 0.9")
    assert whole.data.metrics["failure_tags/wrong_color"] == 1
    assert steady.data.metrics["look__sharp_/edge"] == 4.5
    assert steady.data.metrics["look__sharp_/edge-2"] == 3
    assert len(steady.data.params) == 154
    assert len(steady.data.params["options.text"]) == 6_000


def test_its_report_and_tables(server: str, client: MlflowClient, sent_demo: tuple[Result, Runs]) -> None:
    _, runs = sent_demo
    names = {file.path for file in client.list_artifacts(runs[None].info.run_id)}
    assert names == {"report.html", "gates.json", "summary.json", "all_cells.csv"}
    assert b"<html" in artifact(server, runs[None], "report.html")
    whole = list(csv.DictReader(io.StringIO(artifact(server, runs[None], "all_cells.csv").decode())))
    assert [row["verdict"] for row in whole] == ["FAIL", "ERROR", "ERROR", "PASS"]
    assert {row["model run"] for row in whole} == set(LABELS)
    odd = runs[LABELS[1]]
    assert json.loads(odd.data.tags["mlflow.loggedArtifacts"]) == [{"path": "cells.json", "type": "table"}]
    table = json.loads(artifact(server, odd, "cells.json"))
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(row["case"], row["verdict"]) for row in rows] == [("tree", "FAIL"), ("boat", "ERROR")]
    assert rows[0]["reasons"].startswith("look: =1+1")
    assert artifact(server, odd, rows[0]["image"]["filepath"]).startswith(b"RIFF")
    assert rows[1]["image"] is None


def test_a_second_export_updates(server: str, client: MlflowClient, command: Callable[..., Result]) -> None:
    def sent(**changes: Any) -> Runs:
        shutil.rmtree("runs", ignore_errors=True)
        tracked_demo(Path("runs"), experiment="again", **changes)
        flags = ("--option", f"uri={server}", "--option", "report=false", "--option", "rows=1")
        assert command("export", "demo", "--to", "mlflow", *flags).exit_code == 0
        return runs_of(client, "again")

    def ids(runs: Runs) -> dict[str | None, str]:
        return {label: run.info.run_id for label, run in runs.items()}

    first = sent()
    second = sent(extra=1, note=None)
    assert ids(second) == ids(first)
    assert second[LABELS[0]].data.metrics["cells/all"] == 3
    assert "visioneval.note" in first[None].data.tags.keys() - second[None].data.tags.keys()
    changed = sent(source_sha256="1" * 64)  # a parameter, which MLflow cannot change
    assert changed[None].info.run_id != first[None].info.run_id
    assert changed[LABELS[0]].data.tags["mlflow.parentRunId"] == changed[None].info.run_id


def test_every_way_to_finish_a_run_sends_it(server: str, client: MlflowClient, command: Callable[..., Result]) -> None:
    Path("suite.yaml").write_text(SUITE.replace("TARGET", f"{{to: mlflow, uri: '{server}', report: false}}"))

    def names() -> set[str]:
        runs = client.search_runs([client.get_experiment_by_name("after-run").experiment_id])
        return {run.info.run_name for run in runs if run.data.tags["visioneval.kind"] == "run"}

    done = command("run", "suite.yaml", "--run-id", "first")
    assert done.exit_code == 0, done.output
    assert f"tracking: {server}/#/experiments/" in done.stderr
    assert f"tracking: {server}" not in done.stdout
    runs = runs_of(client, "after-run")
    assert runs["blank"].data.params["flaw"] == "blank"
    assert (runs["mock"].data.metrics["pass_rate"], runs["blank"].data.metrics["pass_rate"]) == (1, 0)
    assert command("run", "--resume", "first").exit_code == 0
    assert runs_of(client, "after-run")[None].info.run_id == runs[None].info.run_id
    for shard in ("1", "2"):
        part = command("run", "suite.yaml", "--shard", f"{shard}/2", "--run-id", f"part{shard}")
        assert (part.exit_code, "tracking" in part.stderr) == (0, False), part.output
    assert names() == {"first"}
    merged = command("merge", "part1", "part2", "--run-id", "whole")
    assert (merged.exit_code, "tracking: http" in merged.stderr) == (0, True), merged.output
    graded = command("grade", "first", "--run-id", "graded")
    assert (graded.exit_code, "tracking: http" in graded.stderr) == (0, True), graded.output
    assert names() == {"first", "whole", "graded"}


def test_a_server_that_is_down_costs_the_export_only(command: Callable[..., Result]) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    Path("suite.yaml").write_text(SUITE.replace("TARGET", f"{{to: mlflow, uri: '{uri}'}}"))
    done = command("run", "suite.yaml", "--run-id", "lonely")
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stderr.splitlines() if "tracking" in line]
    assert line.startswith("tracking: the results were not sent: mlflow: ")
    assert line.endswith(f"; to send them: visioneval export runs/lonely --to mlflow --option uri={uri}")
    assert load_run("lonely").exit_code == 0
    failed = command("export", "lonely", "--to", "mlflow", "--option", f"uri={uri}")
    assert (failed.exit_code, failed.stdout, len(failed.stderr.splitlines())) == (2, "", 1), failed.output
    assert "Connection refused" in failed.stderr or "Max retries" in failed.stderr


def test_a_refused_token_is_one_line_without_it(
    command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "token-of-a-test")
    tracked_demo(Path("runs"))
    with canned({"error_code": "UNAUTHENTICATED", "message": "token-of-a-test is refused"}, status=401) as refusing:
        uri = refusing.url.removesuffix("/v1")
        failed = command("export", "demo", "--to", "mlflow", "--option", f"uri={uri}")
    assert (failed.exit_code, len(failed.stderr.splitlines())) == (2, 1), failed.output
    assert "token-of-a-test" not in failed.output


BAD_STORES = [
    ("./mlruns", "mlflow: "),
    ("ftp://host/x", "mlflow: "),
]


@pytest.mark.parametrize(("uri", "message"), BAD_STORES)
def test_a_store_that_mlflow_refuses_is_one_line(command: Callable[..., Result], uri: str, message: str) -> None:
    tracked_demo(Path("runs"))
    failed = command("export", "demo", "--to", "mlflow", "--option", f"uri={uri}")
    assert (failed.exit_code, len(failed.stderr.splitlines())) == (2, 1), failed.output
    assert failed.stderr.startswith(message)


def test_without_an_address_it_is_asked_for(command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    tracked_demo(Path("runs"))
    failed = command("export", "demo", "--to", "mlflow")
    assert failed.stderr == "name the server: --option uri=http://HOST:PORT, or MLFLOW_TRACKING_URI\n"


def test_the_environment_names_the_server(
    server: str, command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    tracked_demo(Path("runs"), extra=8)
    done = command("export", "demo", "--to", "mlflow", "--option", "rows=3", "--option", "report=false")
    assert (done.exit_code, done.stdout.startswith(server)) == (0, True), done.output
    assert "mlflow: the table has 3 of 12 cells, those that did not pass first (option rows)" in done.stderr
