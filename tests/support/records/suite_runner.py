"""Runs suites that call the local server for images and judgements, and reads their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fake_api import FakeAPI, GenerationRequest, JudgeRequest
from typer.testing import CliRunner, Result

from visioneval import Record, RunInfo, read_info, read_records
from visioneval.cli import app

PRICES: dict[str, Any] = {"openai:gpt-image-2": {"per_image": 0.04}, "openai:gpt-5.4": {"per_call": 0.01}}
LOOK: dict[str, Any] = {
    "key": "look",
    "type": "rubric",
    "judge": "default",
    "metrics": {"nice": {"type": "pass_fail", "description": "it is nice to look at"}},
}


class SuiteRunner:
    """A folder with a suite that calls the local server. ``changes`` are top-level keys of the suite."""

    def __init__(self, folder: Path, api: FakeAPI) -> None:
        self.folder = folder
        self.api = api
        api.script.judge({"nice": True, "reason": "so it is", "verdict": "PASS"})

    def write(self, *ids: str, **changes: Any) -> Path:
        host = {"base_url": self.api.openai_base_url, "api_key_env": "LOCAL_KEY"}
        suite = {
            "name": "paid",
            "judges": {"default": {"provider": "openai", "model": "gpt-5.4", **host}},
            "cases": [{"id": name, "prompt": f"a {name}"} for name in ids or ("tree", "boat")],
            "models": [{"provider": "openai", "label": "m", "params": {"model": "gpt-image-2"}, **host}],
            "graders": [LOOK],
            "verdict": ["nice"],
            "prices": PRICES,
            **changes,
        }
        path = self.folder / "suite.yaml"
        self.folder.mkdir(exist_ok=True)
        path.write_text(json.dumps(suite))
        return path

    def __call__(self, *arguments: str | Path) -> Result:
        return CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)

    def run(self, *arguments: str | Path, run_id: str = "r") -> Result:
        return self("run", self.folder / "suite.yaml", "--runs", self.out, "--run-id", run_id, *arguments)

    @property
    def out(self) -> Path:
        return self.folder / "runs"

    def info(self, run_id: str = "r") -> RunInfo:
        return read_info(self.out / run_id)

    def records(self, run_id: str = "r") -> dict[tuple[str, int], Record]:
        return {(record.test_id, record.sample_index): record for record in read_records(self.out / run_id)}

    def summary(self, run_id: str = "r") -> dict[str, Any]:
        summary: dict[str, Any] = json.loads((self.out / run_id / "summary.json").read_text())
        return summary

    @property
    def called(self) -> tuple[int, int]:
        """The numbers of generations and judgements that the server received."""
        asked = [entry.asked for entry in self.api.requests]
        return sum(isinstance(request, GenerationRequest) for request in asked), sum(
            isinstance(request, JudgeRequest) for request in asked
        )
