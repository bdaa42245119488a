"""A suite with a custom provider and graders, whose behavior the metadata of a case selects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fork_server import COMMAND, ForkedProgram
from typer.testing import CliRunner

from visioneval import Record, RunInfo, read_info, read_records
from visioneval.cli import app

CODE = """\
import asyncio, inspect, io, os, threading, time
from pathlib import Path
from PIL import Image
from visioneval.errors import BudgetError, GraderError, ImageError, ProviderError
from visioneval.graders.base import Grade
from visioneval.providers.base import Generation


def encoded(size=(32, 24), color="white", kind="PNG"):
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, kind)
    return buffer.getvalue()


class Generate:
    at_once = most = started = 0

    def __init__(self, config):
        self.config = config

    async def generate(self, request):
        cls = type(self)
        cls.started += 1
        cls.at_once += 1
        cls.most = max(cls.most, cls.at_once)
        try:
            await asyncio.sleep(float(request.case.metadata.get("wait", 0)))
            while not Path(request.case.metadata.get("wait_for", "/")).exists():
                await asyncio.sleep(0.05)
            return getattr(self, request.case.metadata.get("generate", "fine"))(request)
        finally:
            cls.at_once -= 1

    edit = generate

    def fine(self, request):
        return Generation(outputs=(encoded(),), cost_usd=0.5, usage={"images": 1})

    def jpeg(self, request):
        return Generation(outputs=(encoded(kind="JPEG"),))

    def raises(self, request):
        raise RuntimeError("the model is on fire")

    def exits(self, request):
        raise SystemExit(7)

    def cancels(self, request):
        raise asyncio.CancelledError

    def gives_none(self, request):
        return None

    def gives_path(self, request):
        return Generation(outputs=(Path("/etc/hostname"),))

    def times_out(self, request):
        raise TimeoutError("my service")

    def invalid(self, request):
        raise ProviderError("bad request", kind="invalid")

    def limited(self, request):
        raise ProviderError("slow down", kind="rate_limit", retry_after=0.05)

    def refuses(self, request):
        return Generation(refused="not that")

    def refuses_with_error(self, request):
        raise ProviderError("against the rules", kind="refused")

    def text(self, request):
        return Generation(outputs=(b"I am no image",))

    def empty(self, request):
        return Generation(outputs=(b"",))

    def cut(self, request):
        return Generation(outputs=(encoded((320, 240), "red")[:200],))

    def few(self, request):
        return Generation()

    def odd(self, request):
        params = {"path": Path("a"), "nan": float("nan"), "surrogate": "\\ud800", "set": {1}, "bytes": b"x", 3: object}
        return Generation(outputs=(encoded(),), run_params=params, usage={"a": "b", "c": 2})

    def leaks_key(self, request):
        raise RuntimeError("401 for the key " + os.environ["TOY_KEY"])


class Look:
    def __init__(self, config):
        self.config = config

    async def grade(self, subject):
        return await graded(self, subject.case.metadata.get("look", "fine"), subject)

    def fine(self, subject):
        return Grade(scores={"fine": True, "level": 0.5}, reasons={"fine": "all is well"})

    def bad(self, subject):
        return Grade(scores={"fine": False, "level": 0.25}, reasons={"look": "all is ill"}, failure_tags=("ill",))

    def raises(self, subject):
        raise RuntimeError("the lens is broken")

    def judge_down(self, subject):
        raise ProviderError("the judge is out", kind="transient")

    def half(self, subject):
        return Grade(scores={"fine": True, "level": None}, error="no scale in the image")

    def nothing(self, subject):
        return Grade(scores={})

    def undeclared(self, subject):
        return Grade(scores={"fine": True, "level": 0.5, "mood": 1})

    def saves(self, subject):
        return Grade(scores={"fine": True, "level": 0.5}, details={"map": subject.save("look.map.png", encoded())})


class Second(Look):
    async def grade(self, subject):
        return await graded(self, subject.case.metadata.get("second", "passes"), subject)

    def passes(self, subject):
        return Grade(scores={"second": True})

    def fails(self, subject):
        return Grade(scores={"second": False})


def fail(error):
    raise error


async def graded(grader, how, subject):
    # how is the name of a method, or an expression whose value is the grade
    result = getattr(grader, how)(subject) if how.isidentifier() else eval(how, {**globals(), "subject": subject})
    return await result if inspect.isawaitable(result) else result
"""


def at(text: str) -> str:
    """The line of ``CODE`` with ``text``, as in messages about custom code."""
    return f"(mine.py:{CODE[: CODE.index(text)].count(chr(10)) + 1})"


LOOK: dict[str, Any] = {
    "key": "look",
    "type": "mine:Look",
    "writes": {"fine": {"type": "bool"}, "level": {"type": "number", "range": [0, 1]}},
}
SECOND: dict[str, Any] = {"key": "second", "type": "mine:Second", "writes": {"second": {"type": "bool"}}}


class Toy:
    """A folder with toy suites and their runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine.py").write_text(CODE)

    def write(self, *cases: dict[str, Any], name: str = "suite.yaml", **changes: Any) -> Path:
        """Writes a suite as JSON, which is valid YAML."""
        suite = {
            "name": "toy",
            "cases": [{"id": f"case{at}", "prompt": "a tree", **case} for at, case in enumerate(cases or ({},))],
            "models": [{"provider": "mine:Generate", "label": "toy"}],
            "graders": [LOOK],
            "verdict": ["fine"],
        }
        path = self.folder / name
        path.write_text(json.dumps({**suite, **changes}, ensure_ascii=False))
        return path

    def __call__(self, *arguments: str | Path, **environment: str) -> Any:
        """Runs the command in this process."""
        return CliRunner().invoke(app, [str(word) for word in arguments], env=environment)

    def run(self, *cases: dict[str, Any], arguments: tuple[str, ...] = (), **changes: Any) -> Any:
        """Writes a suite and runs it."""
        return self("run", self.write(*cases, **changes), "--trust-suite", *arguments)

    def program(self, *arguments: str | Path, code: str = COMMAND, **environment: str) -> ForkedProgram:
        """Starts the command, or other ``code``, in a process of its own."""
        return ForkedProgram(*arguments, cwd=self.folder, environment=environment, code=code)

    @property
    def latest(self) -> Path:
        """The folder of the latest run."""
        return max((self.folder / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)

    @property
    def info(self) -> RunInfo:
        """The ``run.json`` of the latest run."""
        return read_info(self.latest)

    @property
    def records(self) -> dict[str, Record]:
        """The records of the latest run by case; the last record if a case has several."""
        return {record.test_id: record for record in read_records(self.latest)}

    @property
    def record(self) -> Record:
        """The only record of the latest run."""
        (record,) = read_records(self.latest)
        return record

    @property
    def summary(self) -> dict[str, Any]:
        """The ``summary.json`` of the latest run."""
        summary: dict[str, Any] = json.loads((self.latest / "summary.json").read_text())
        return summary

    def outputs(self, *names: str, **save: Any) -> None:
        """Writes small images."""
        from PIL import Image

        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 24), "white").save(path, **save)
