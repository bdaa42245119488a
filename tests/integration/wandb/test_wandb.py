"""Runs in Weights & Biases, offline: the files that its client writes are read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import wandb
from mlflow_server import free_port
from tracked_runs import LABELS, tracked_demo
from typer.testing import CliRunner, Result
from wandb_files import records

from visioneval.cli import app

SUITE = """\
name: tracked
cases: [{id: one, prompt: a tree}]
models: [{provider: mock}]
graders: [{key: image, type: properties}]
verdict: [not image.blank]
tracking: TARGET
"""


@dataclass
class OfflineRun:
    """What the files of one run say."""

    folder: Path
    run: Any = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    artifacts: list[Any] = field(default_factory=list)
    exit_code: int | None = None

    def files(self, kind: str) -> dict[str, Path]:
        """The files of its artifacts of a type, by their names there."""
        entries = (
            entry for artifact in self.artifacts if artifact.type == kind for entry in artifact.manifest.contents
        )
        return {entry.path: Path(entry.local_path) for entry in entries}

    def table(self, name: str) -> list[dict[str, Any]]:
        table = json.loads(self.files("run_table")[f"{name}.table.json"].read_text())
        return [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]


def offline_runs(folder: Path) -> dict[str, OfflineRun]:
    """The runs in a folder of W&B, by name."""
    wandb.teardown()  # its service writes the last bytes when it ends
    runs = [_read(path) for path in sorted(folder.glob("offline-run-*"))]
    names = [run.run.display_name for run in runs]
    assert len(names) == len(set(names)), "a second export doubled the runs"
    return dict(zip(names, runs, strict=True))


def _read(folder: Path) -> OfflineRun:
    read = OfflineRun(folder)
    for record in records(folder):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            read.run = record.run
            for item in record.run.config.update:
                _put(read.config, item)
        elif kind in ("summary", "history"):
            for item in record.summary.update if kind == "summary" else record.history.item:
                _put(read.summary, item)
        elif kind == "artifact":
            read.artifacts.append(record.artifact)
        elif kind == "exit":
            read.exit_code = record.exit.exit_code
    return read


def _put(target: dict[str, Any], item: Any) -> None:
    *parents, key = item.nested_key or [item.key]
    for parent in parents:
        target = target.setdefault(parent, {})
    target[key] = json.loads(item.value_json)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``command(*arguments)`` in an empty folder, without a key."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_offline_files_of_a_run(command: Callable[..., Result]) -> None:
    tracked_demo(Path("runs"))
    first = command("export", "demo", "--to", "wandb", "--option", "mode=offline")
    assert first.exit_code == 0, first.output
    assert first.stdout == "runs/demo/wandb, to be sent by: wandb sync runs/demo/wandb/offline-run-*\n"
    assert not first.stderr
    runs = offline_runs(Path("runs/demo/wandb"))
    assert runs.keys() == {"demo", *LABELS}
    whole, odd = runs["demo"], runs[LABELS[1]]
    assert {(run.run.project, run.run.run_group) for run in runs.values()} == {("trees", "demo")}
    assert (whole.run.job_type, odd.run.job_type, whole.exit_code) == ("run", "model run", 0)
    assert "**gate failed**" in whole.run.notes
    assert list(whole.run.tags) == ["demo", "gate failed"]
    assert (whole.summary["pass_rate"], whole.summary["gates/failed"]) == (0.5, 1)
    assert whole.config["gate.1"].startswith("failed: pass_rate >= 0.9")
    assert (odd.config["options.quality"], odd.config["options.option149"]) == ("high", "149")
    assert odd.summary["look:[sharp]/edge"] == 1.5
    table = odd.table("cells")
    assert [(row["case"], row["verdict"]) for row in table] == [("tree", "FAIL"), ("boat", "ERROR")]
    assert table[0]["reasons"].startswith("look: =1+1")
    assert odd.files("run_table")[table[0]["image"]["path"]].read_bytes().startswith(b"\x89PNG")
    assert table[1]["image"] is None
    assert len(whole.table("all_cells")) == 4
    assert sorted(whole.files("visioneval")) == ["gates.json", "report.html", "summary.json"]
    assert command("export", "demo", "--to", "wandb", "--option", "mode=offline").exit_code == 0
    again = offline_runs(Path("runs/demo/wandb"))
    assert {name: run.run.run_id for name, run in again.items()} == {name: run.run.run_id for name, run in runs.items()}


def test_after_a_run_without_calls(command: Callable[..., Result]) -> None:
    Path("suite.yaml").write_text(SUITE.replace("TARGET", "{to: wandb, mode: offline, project: posters}"))
    assert command("run", "suite.yaml", "--run-id", "first", "--cache", "cache").exit_code == 0
    done = command("run", "suite.yaml", "--run-id", "replayed", "--cache", "cache", "--offline")
    assert done.exit_code == 0, done.output
    assert "tracking: runs/replayed/wandb, to be sent by: wandb sync " in done.stderr
    runs = offline_runs(Path("runs/replayed/wandb"))
    assert {run.run.project for run in runs.values()} == {"posters"}


def test_without_a_key_it_is_one_line(command: Callable[..., Result]) -> None:
    Path("suite.yaml").write_text(SUITE.replace("TARGET", "{to: wandb}"))
    problem = "wandb: no API key: set WANDB_API_KEY or run wandb login; offline: --option mode=offline"
    done = command("run", "suite.yaml", "--run-id", "first")
    assert done.exit_code == 0, done.output
    assert f"tracking: the results were not sent: {problem}; to send them: " in done.stderr
    failed = command("export", "first", "--to", "wandb")
    assert (failed.exit_code, failed.stderr) == (2, f"{problem}\n")


def test_a_server_that_is_down_is_one_line_without_the_key(
    command: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setattr("visioneval.export.wandb.INIT_TIMEOUT_S", 3)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("WANDB_API_KEY", key)
    tracked_demo(Path("runs"))
    failed = command("export", "demo", "--to", "wandb")
    assert (failed.exit_code, failed.stdout, len(failed.stderr.splitlines())) == (2, "", 1), failed.output
    assert failed.stderr == "wandb: 127.0.0.1 does not answer: check the network and WANDB_BASE_URL\n"
    assert key not in failed.stderr
