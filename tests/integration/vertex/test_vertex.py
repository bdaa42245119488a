"""Runs in Vertex AI Experiments: sent over REST to a server that holds to the discovery document, read by Google's client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from fake_experiments import FakeExperiments, fake_experiments
from google.cloud import aiplatform
from tracked_runs import LABELS, tracked_demo
from typer.testing import CliRunner, Result
from vertex import vertex

from visioneval.cli import app

TARGET = ("--to", "vertex", "--option", "project=mine", "--option", "location=us-central1")
PAGE = (
    "https://console.cloud.google.com/vertex-ai/experiments/locations/us-central1/experiments/trees/runs?project=mine\n"
)
SUITE = """\
name: tracked
cases: [{id: one, prompt: a tree}]
models: [{provider: mock}]
graders: [{key: image, type: properties}]
verdict: [not image.blank]
tracking: {to: vertex, project: mine, location: us-central1}
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeExperiments]:
    """Google's services for the machine's credentials, in an empty working directory."""
    document = files("googleapiclient") / "discovery_cache" / "documents" / "aiplatform.v1.json"
    monkeypatch.chdir(tmp_path)
    with (
        fake_experiments(json.loads(document.read_text()), "a-token") as fake,
        vertex(fake.url, "a-token", tmp_path, monkeypatch) as log,
    ):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "chain.pem"))
        yield fake
        assert not fake.invalid
        own = {"iamcredentials.googleapis.com"}  # of google-auth
        assert set(log.hosts) - own <= {"us-central1-aiplatform.googleapis.com", "storage.googleapis.com"}


@pytest.fixture
def command() -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def names_of(service: FakeExperiments) -> set[str]:
    return {name.rpartition("/")[2] for name in service.resources if "/contexts/" in name}


def test_google_reads_the_experiment(service: FakeExperiments, command: Callable[..., Result]) -> None:
    tracked_demo(Path("runs"))
    result = command("export", "demo", *TARGET)
    assert (result.exit_code, result.stdout) == (0, PAGE), result.output
    aiplatform.init(project="mine", location="us-central1", api_transport="rest")
    runs = aiplatform.ExperimentRun.list(experiment="trees")
    assert len(runs) == 3
    whole, odd = (next(run for run in runs if run.name.startswith(name)) for name in ("demo-", "odd-q"))
    assert whole.get_metrics()["pass_rate"] == 0.5
    assert whole.get_metrics()["pass_rate_low"] < 0.5 < whole.get_metrics()["pass_rate_high"]
    assert whole.get_params()["gate.1"].startswith("failed: pass_rate >= 0.9")
    assert odd.get_metrics()["look:[sharp]/edge"] == 1.5
    assert odd.get_params()["options.quality"] == "high"
    assert odd.get_params()["visioneval.model_run"] == LABELS[1]
    assert len(odd.get_params()["options.text"]) == 500
    frame = aiplatform.get_experiment_df("trees")
    assert sorted(frame["metric.pass_rate"].dropna()) == [0, 0.5, 1]
    assert set(frame["state"]) == {"COMPLETE"}


def test_a_second_export_updates(service: FakeExperiments, command: Callable[..., Result]) -> None:
    folder = tracked_demo(Path("runs"))
    assert command("export", "demo", *TARGET).exit_code == 0
    first = names_of(service)
    results = folder / "results.jsonl"
    results.write_text("".join(line for line in results.read_text().splitlines(keepends=True) if LABELS[0] in line))
    info = json.loads((folder / "run.json").read_text())
    info["suite"]["models"], info["planned_cells"] = info["suite"]["models"][:1], 2
    (folder / "run.json").write_text(json.dumps(info))
    assert command("export", "demo", *TARGET).exit_code == 0
    left = names_of(service)
    assert left < first
    assert len(first - left) == 1
    assert next(iter(first - left)).startswith("trees-odd-q")
    whole = next(item for item in service.resources.values() if str(item.get("displayName")).startswith("demo-"))
    assert whole["metadata"]["_metrics"]["cells/all"] == 2
    assert whole["parentContexts"] == ["projects/mine/locations/us-central1/metadataStores/default/contexts/trees"]


def test_report_table_and_images_lie_in_the_bucket(service: FakeExperiments, command: Callable[..., Result]) -> None:
    tracked_demo(Path("runs"))
    assert command("export", "demo", *TARGET, "--option", "bucket=gs://team/evals").exit_code == 0
    (folder,) = {name.rpartition("/")[0] for name in service.objects}
    assert folder.startswith("team/evals/trees-demo-")
    assert b"<html" in service.objects[f"{folder}/report.html"]
    rows = json.loads(service.objects[f"{folder}/cells.json"])
    assert [row["verdict"] for row in rows] == ["FAIL", "ERROR", "ERROR", "PASS"]
    assert service.objects[rows[0]["image"].removeprefix("gs://")].startswith(b"RIFF")
    assert rows[1]["image"] is None
    (artifact,) = (item for name, item in service.resources.items() if "/artifacts/" in name)
    assert artifact["uri"] == f"gs://{folder}"


def test_after_a_run_of_a_trusted_project(
    service: FakeExperiments, command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("suite.yaml").write_text(SUITE)
    refused = command("run", "suite.yaml")
    assert (refused.exit_code, "add the project 'mine' to VISIONEVAL_TRUSTED_PROJECTS" in refused.stderr) == (2, True)
    assert not service.calls
    monkeypatch.setenv("VISIONEVAL_TRUSTED_PROJECTS", "mine")
    done = command("run", "suite.yaml")
    assert (done.exit_code, "tracking: https://console.cloud.google.com/" in done.stderr) == (0, True), done.output
    service.refusal = (403, "Permission denied on mine")
    failed = command("run", "suite.yaml", "--run-id", "denied")
    assert failed.exit_code == 0, failed.output
    assert "tracking: the results were not sent: vertex: us-central1-aiplatform.googleapis.com: 403 " in failed.stderr


def test_errors_are_one_line(
    service: FakeExperiments, command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("visioneval.export.vertex._WAITS_S", (0.0,))
    tracked_demo(Path("runs"))
    for status, message in ((503, "try later"), (302, "elsewhere")):
        service.refusal = (status, message)
        service.calls.clear()
        failed = command("export", "demo", *TARGET)
        assert (failed.exit_code, len(failed.stderr.splitlines())) == (2, 1), failed.output
        assert failed.stderr == f"vertex: us-central1-aiplatform.googleapis.com: {status} {message}\n"
        assert len(service.calls) == (2 if status == 503 else 1)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere.json")
    failed = command("export", "demo", *TARGET)
    assert (failed.exit_code, len(failed.stderr.splitlines())) == (2, 1)
    assert failed.stderr.startswith("vertex: no Google credentials: run gcloud auth application-default login")
