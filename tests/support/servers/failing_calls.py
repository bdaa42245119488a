"""Runs of one cell whose generation or judgement call fails, for every API of the providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from api_runs import METRIC, MODELS, ApiRun
from fake_api import FakeAPI, Fault, JudgeRequest
from PIL import Image

from visioneval import Record

CALLS = ("generation", "edit", "responses", "chat", "gemini", "gemini judge")
"""The calls that can fail."""


class FailingCall:
    """A run of one cell in which one kind of call fails."""

    def __init__(self, folder: Path, api: FakeAPI, call: str, **suite: Any) -> None:
        self.api = api
        self.is_judged = call in ("responses", "chat", "gemini judge")
        self.provider = "gemini" if call.startswith("gemini") else "openai"
        url = api.gemini_base_url if self.provider == "gemini" else api.openai_base_url
        host = {"provider": self.provider, "base_url": url, "api_key_env": "PAID_KEY"}
        eye = {**host, "model": MODELS[self.provider][1], **({"api": "chat"} if call == "chat" else {})}  # type: ignore[index]
        changes: dict[str, Any] = {"judges": {"eye": eye}}
        if call == "edit":
            Image.new("RGB", (32, 24), "red").save(folder / "base.png")
            changes["cases"] = [{"id": "case0000", "prompt": "make it blue", "images": ["base.png"]}]
            changes["task"] = "image_editing"
        grader = {"key": "look", "type": "rubric", "judge": "eye", "metrics": {"quality": METRIC}}
        limits = {self.provider: {"max_attempts": 2, "timeout_s": 20}}
        self.api_run = ApiRun(folder, api, 1, self.provider, graders=[grader], limits=limits, **changes, **suite)  # type: ignore[arg-type]

    def run_with_fault(self, fault: Fault, *flags: str, resume: bool = False) -> Record:
        """The record of a run in which every call of this kind fails with ``fault``."""
        self.api.faults.clear()
        self.api.faults.when(lambda asked: isinstance(asked, JudgeRequest) == self.is_judged, fault)
        return self.run(*flags, resume=resume)

    def run(self, *flags: str, resume: bool = False) -> Record:
        """The record of a run."""
        self.result = self.api_run.run("--quiet", *flags, resume=resume)
        assert not isinstance(self.result.exception, Exception) or isinstance(self.result.exception, SystemExit), (
            self.result.exception
        )
        (record,) = self.api_run.records
        return record

    @property
    def calls(self) -> int:
        """The number of calls of the failing kind."""
        return sum(isinstance(entry.asked, JudgeRequest) == self.is_judged for entry in self.api.requests)

    def logged(self, log: Path) -> list[str]:
        """The status of each of these calls in the call log."""
        lines = map(json.loads, log.read_text().splitlines())
        return [line["status"] for line in lines if (line["kind"] == "judge") == self.is_judged]


def error_of(record: Record) -> str:
    """The error message of a cell, whichever call failed."""
    assert record.error is not None, record
    return record.error.message.removeprefix("look: ").removesuffix("; --resume RUN --retry-unusable pays for another")


__all__ = ["CALLS", "FailingCall", "error_of"]
