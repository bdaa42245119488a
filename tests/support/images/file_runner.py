"""Runs a suite of one case on the command line, whose output is given as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from visioneval import Record, read_records
from visioneval.cli import app


class FileRunner:
    """A suite of one case in a folder. The first of its graders decides."""

    def __init__(self, folder: Path, case: dict[str, Any], grader: dict[str, Any]) -> None:
        self.folder, self.case, self.graders = folder, case, [grader]

    def __call__(self, output: bytes, *flags: str, run_id: str = "r") -> Result:
        """Runs the suite with a cache of its own."""
        (self.folder / "output").write_bytes(output)
        suite = {
            "name": "files",
            "cases": [self.case],
            "models": [{"provider": "files", "path": "output"}],
            "graders": self.graders,
            "verdict": [self.graders[0]["key"]],
        }
        (self.folder / "suite.yaml").write_text(json.dumps(suite))
        runs = ["--runs", str(self.folder / "runs"), "--run-id", run_id, "--cache", str(self.folder / "cache")]
        return CliRunner().invoke(app, ["run", str(self.folder / "suite.yaml"), *runs, *flags])

    def record(self, run_id: str = "r") -> Record:
        """The record of the only cell of a run."""
        (record,) = read_records(self.folder / "runs" / run_id)
        return record
