"""Complete runs against the fake API. Every cell has its own image, question and score."""

from __future__ import annotations

import io
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from fake_api import FakeAPI, Fault, GenerationRequest, JudgeRequest, LoggedRequest
from fork_server import ForkedProgram
from PIL import Image
from typer.testing import CliRunner, Result

from visioneval import Record, read_info, read_records
from visioneval.cli import app

KEY = "PAID_KEY"
MODELS = {"openai": ("gpt-image-2", "gpt-5.4"), "gemini": ("gemini-nano-banana-2.1", "gemini-3.5-flash")}
FIFTH: dict[str | Fault, float] = {
    Fault("rate_limit"): 0.04,
    Fault("rate_limit", retry_after=0.05): 0.03,
    "server_error": 0.03,
    "unavailable": 0.03,
    "reset": 0.025,
    "truncated_body": 0.02,
    "hang": 0.01,
}
"""Fails one call in five, with all kinds of faults."""
METRIC = {"type": "score", "scale": [0, 5], "description": "How good is it?", "anchors": {"0": "bad", "5": "good"}}


def case_id(at: int) -> str:
    return f"case{at:04}"


def prompt(at: int) -> str:
    return f"image number {at:04}, on its own"


def image_for(text: str) -> bytes:
    """A distinct image for each prompt."""
    number = zlib.crc32(text.encode())
    out = io.BytesIO()
    Image.new("RGB", (32, 24), (number & 255, number >> 8 & 255, number >> 16 & 255)).save(out, "PNG")
    return out.getvalue()


def quality(image: bytes) -> int:
    """The score of an image."""
    return zlib.crc32(image) % 6


def images_for(asked: GenerationRequest) -> list[bytes]:
    """The images of a call: they reveal a mix-up of cells."""
    return [image_for(asked.prompt)] * asked.n


def judged(asked: JudgeRequest) -> dict[str, Any]:
    """The answer about a cell: its score reveals a mix-up of cells."""
    return {"quality": quality(asked.images[0].data), "reason": "as it is", "verdict": "PASS"}


class ApiRun:
    """A folder with a suite of ``cells`` cells, its run ``r`` and its cache. ``suite`` are additional suite keys."""

    def __init__(
        self, folder: Path, api: FakeAPI, cells: int, provider: Literal["openai", "gemini"] = "openai", **suite: Any
    ) -> None:
        self.folder = folder
        self.api = api
        self.cells = cells
        api.script.by_default(images_for, judged)
        self.cache = folder / "cache"
        generates, judges = MODELS[provider]
        url = api.gemini_base_url if provider == "gemini" else api.openai_base_url
        custom = {"provider": provider, "base_url": url, "api_key_env": KEY}
        text = {
            "name": "paid",
            "judges": {"eye": {**custom, "model": judges}},
            "cases": [{"id": case_id(at), "prompt": prompt(at)} for at in range(cells)],
            "models": [{**custom, "label": "m", "params": {"model": generates}}],
            "graders": [{"key": "look", "type": "rubric", "judge": "eye", "metrics": {"quality": METRIC}}],
            "verdict": ["quality >= 0"],
            **suite,
        }
        (folder / "suite.yaml").write_text(json.dumps(text))

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / "r"

    @property
    def records(self) -> list[Record]:
        return list(read_records(self.run_folder))

    def arguments(self, *flags: str, resume: bool = False, run_id: str = "r", out: str = "runs") -> list[str]:
        """The arguments of a command that starts or resumes the run."""
        target = ["--resume", f"{out}/{run_id}"] if resume else ["suite.yaml", "--run-id", run_id]
        return ["run", *target, "--runs", out, "--trust-suite", "--cache", str(self.cache), *flags]

    def run(self, *flags: str, key: str | None = None, **more: Any) -> Result:
        """Runs the command in this process; the working directory must be the folder."""
        return CliRunner().invoke(app, self.arguments(*flags, **more), env={KEY: key or self.api.key})

    def program(self, *flags: str, **more: Any) -> ForkedProgram:
        """Runs the command in a process of its own."""
        return ForkedProgram(*self.arguments(*flags, **more), cwd=self.folder, environment={KEY: self.api.key})

    def check_complete(self) -> None:
        """Checks that every cell is recorded once, with its own image and score."""
        records = self.records
        assert [record.test_id for record in sorted(records, key=lambda record: record.test_id)] == [
            case_id(at) for at in range(self.cells)
        ]
        for record in records:
            self.check(record)
        assert read_info(self.run_folder).state == "complete"

    def check(self, record: Record) -> None:
        """Checks that a cell passed with its own image and score."""
        image = (self.run_folder / str(record.artifact_path)).read_bytes()
        assert image == image_for(record.prompt), record.test_id
        assert record.scores == {"quality": quality(image)}, record.test_id
        assert (record.verdict, record.error) == ("PASS", None)

    @property
    def generated(self) -> int:
        """The number of paid generations, counted by the server."""
        return sum(entry.paid for entry in self.api.requests if isinstance(entry.asked, GenerationRequest))

    @property
    def judged(self) -> int:
        """The number of paid judgements."""
        return sum(entry.paid for entry in self.api.requests if isinstance(entry.asked, JudgeRequest))

    @property
    def repeated_calls(self) -> int:
        """The number of paid calls that repeat an earlier paid call."""
        return self.api.paid_by_digest.total() - len(self.api.paid_by_digest)

    def requests_for(self, test_id: str) -> dict[str, list[LoggedRequest]]:
        """The requests about a cell, by digest of the call."""
        cell_prompt = prompt(int(test_id.removeprefix("case")))
        calls: dict[str, list[LoggedRequest]] = {}
        for entry in self.api.requests:
            text = (
                entry.asked.prompt if isinstance(entry.asked, GenerationRequest) else entry.asked and entry.asked.text
            )
            if text and cell_prompt in text:
                calls.setdefault(entry.digest, []).append(entry)
        return calls


def wait_until(condition: Callable[[], bool], program: ForkedProgram, seconds: float = 60) -> None:
    """Waits until a condition holds while the program runs."""
    end = time.monotonic() + seconds
    while not condition():
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)
