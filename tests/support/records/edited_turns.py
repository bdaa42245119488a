"""Runs of a case with turns on the local server, whose edits depend on the prompt and on the image that is sent."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

from fake_api import FakeAPI, Fault, GenerationRequest, JudgeRequest
from PIL import Image
from suite_runner import SuiteRunner

from visioneval import Record, read_records

TURNS = ["make it red", "make it green", "make it blue"]
COLORS = dict(zip(TURNS, ((224, 0, 0), (0, 224, 0), (0, 0, 224)), strict=True))
"""The darkest shade of a prompt's outputs; the shade depends on the images that are sent."""
CAT: dict[str, Any] = {"id": "cat", "images": ["base.png"], "tags": ["must_pass"], "turns": TURNS}


@dataclass(frozen=True)
class Edit:
    """An edit that the server received, or an answer of a judge: the prompt, and hashes of the images."""

    prompt: str
    images: tuple[str, ...]


class TurnRuns(SuiteRunner):
    """``salts`` change the edits of a prompt, ``faults`` fail them; the judge fails the prompts in ``bad``."""

    def __init__(self, folder: Path, api: FakeAPI) -> None:
        super().__init__(folder, api)
        self.salts: dict[str, str] = {}
        self.faults: dict[str, Fault] = {}
        self.bad: set[str] = set()
        api.script.generate(self._generate)
        api.script.judge(self._judge)
        Image.new("RGB", (32, 24), "white").save(folder / "base.png")

    def write(self, *ids: str, **changes: Any) -> Path:
        return super().write(*ids, **{"cases": [CAT], **changes})

    def edit(self, **changes: Any) -> None:
        """Changes top-level keys of the suite that was written."""
        path = self.folder / "suite.yaml"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def _generate(self, request: GenerationRequest) -> Any:
        if fault := self.faults.get(request.prompt):
            return fault
        seen = sha256("".join((request.prompt, self.salts.get(request.prompt, ""))).encode())
        for image in request.images:
            seen.update(image.data)
        color = COLORS.get(request.prompt, (128, 128, 0))
        shade = tuple(channel + byte % 32 for channel, byte in zip(color, seen.digest(), strict=False))
        out = io.BytesIO()
        Image.new("RGB", (32, 24), shade).save(out, "PNG")
        return out.getvalue()

    def _judge(self, request: JudgeRequest) -> Any:
        is_nice = not any(prompt in request.text for prompt in self.bad)
        return {"nice": is_nice, "reason": "as it is", "verdict": "PASS" if is_nice else "FAIL"}

    def take_edits(self) -> list[Edit]:
        """The edits since the last time, and forgets all requests."""
        return self._take(GenerationRequest)

    def _take(self, kind: type) -> list[Edit]:
        asked = [entry.asked for entry in self.api.requests if isinstance(entry.asked, kind)]
        self.api.requests.clear()
        return [
            Edit(getattr(request, "prompt", ""), tuple(sha256(image.data).hexdigest() for image in request.images))
            for request in asked
        ]

    def judged_images(self) -> set[tuple[str, ...]]:
        """The hashes of the images of each question since the last time, and forgets all requests."""
        return {edit.images for edit in self._take(JudgeRequest)}

    def forget(self) -> None:
        """Forgets all requests."""
        self.api.requests.clear()

    def turns(self, run_id: str = "r", sample: int = 0, case: str = "cat") -> list[Record]:
        """The records of a case's turns, in their order."""
        records = (record for record in read_records(self.out / run_id) if record.sample_index == sample)
        return sorted((record for record in records if record.test_id.startswith(f"{case}/")), key=lambda r: r.test_id)

    def rewrite(self, run_id: str, change: Any) -> None:
        """Replaces each record of a run by ``change(record)``, a dictionary; drops those for which it is ``None``."""
        path = self.out / run_id / "results.jsonl"
        lines = filter(None, map(change, map(json.loads, path.read_text().splitlines())))
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def links(turns: list[Record]) -> Iterator[bool]:
    """For each later turn: whether it is an edit of the output of the turn before, as its record says."""
    for before, turn in pairwise(turns):
        yield (turn.base_path, turn.base_sha256) == (before.artifact_path, before.artifact_sha256)
