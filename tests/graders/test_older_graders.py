"""A run that an older version of a grader graded: ``compare`` says so, ``grade`` and ``--resume`` grade it again."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from file_runner import FileRunner
from PIL import Image
from typer.testing import CliRunner

from visioneval import read_records
from visioneval.cli import app
from visioneval.graders.properties import PropertiesGrader

OLDER = "1"


@pytest.fixture
def runner(tmp_path: Path) -> FileRunner:
    return FileRunner(
        tmp_path, {"id": "a", "prompt": "x", "expect": {"size": "256x256"}}, {"key": "file", "type": "properties"}
    )


@pytest.fixture
def output() -> bytes:
    encoded = BytesIO()
    Image.radial_gradient("L").save(encoded, "PNG")
    return encoded.getvalue()


@pytest.fixture(autouse=True)
def _older_run(runner: FileRunner, output: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PropertiesGrader, "version", OLDER)
        assert runner(output, run_id="older").exit_code == 0
    assert version(runner, "older") == OLDER


def version(runner: FileRunner, run_id: str) -> str | None:
    (record,) = read_records(runner.folder / "runs" / run_id)
    return record.graders[0].fingerprint.version


def compare(runner: FileRunner, a: str, b: str) -> str:
    result = CliRunner().invoke(app, ["compare", a, b, "--runs", str(runner.folder / "runs")])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_compare_names_the_other_version(runner: FileRunner, output: bytes) -> None:
    for run_id in ("new", "again"):
        assert runner(output, run_id=run_id).exit_code == 0
    now = version(runner, "new")
    assert f"version: {OLDER} -> {now} (1 of 1 pair)" in compare(runner, "older", "new")
    assert "Graded differently" not in compare(runner, "new", "again")


def test_grade_measures_again_into_another_run(runner: FileRunner) -> None:
    runs = ["--runs", str(runner.folder / "runs"), "--trust-suite"]
    result = CliRunner().invoke(app, ["grade", "older", "--run-id", "renewed", *runs])
    assert result.exit_code == 0, result.output
    assert version(runner, "renewed") not in (OLDER, None)
    assert version(runner, "older") == OLDER


def test_a_resumed_run_is_graded_alike(runner: FileRunner) -> None:
    runs = ["--runs", str(runner.folder / "runs"), "--cache", str(runner.folder / "cache")]
    result = CliRunner().invoke(app, ["run", str(runner.folder / "suite.yaml"), "--resume", "older", *runs])
    assert result.exit_code == 0, result.output
    assert version(runner, "older") not in (OLDER, None)
