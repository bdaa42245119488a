"""Synthetic runs with images to label, and a label server in a process of its own."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
from fork_server import ForkedProgram
from PIL import Image, ImageDraw
from record_factory import info, record
from typer.testing import CliRunner

from visioneval.cli import app
from visioneval.media.images import encode_png
from visioneval.records.writer import RunWriter
from visioneval.suite.model import Suite

if TYPE_CHECKING:
    from playwright.sync_api import Page

    OpenPage = Callable[..., Page]

READY = "#work:not([hidden]) .frame img, #end:not([hidden])"
SECRET_A, SECRET_B = "secret-alpha-7", "secret-beta-9"
QUESTIONS: dict[str, Any] = {
    "questions": [
        {"key": "usable", "ask": "Would you use it?", "type": "yes_no", "metric": "verdict"},
        {"key": "clarity", "ask": "How clear is it?", "type": "scale", "scale": [1, 5]},
        {"key": "wrong", "ask": "What is wrong?", "type": "tags", "choices": ["missing part", "odd colours"]},
        {"key": "note", "ask": "Anything else?", "type": "text"},
    ],
    "pairs": [{"key": "preferred", "ask": "Which is better?"}],
}
SCORE = 0.73125
REASON = "judge said this in private"


def make_image(number: int, size: tuple[int, int] = (160, 120)) -> Image.Image:
    """A distinct image for every number."""
    image = Image.new("RGB", size, ((number * 67) % 256, (number * 29) % 256, 120))
    ImageDraw.Draw(image).ellipse((20 + number, 20, 90 + number, 90), fill="white")
    return image


def write_run(
    root: Path,
    cases: Sequence[dict[str, Any]] = ({"id": "one"},),
    models: Sequence[str] = (SECRET_A,),
    *,
    run_id: str = "r",
    labels: dict[str, Any] | None = QUESTIONS,
    change: Callable[[int], dict[str, Any]] = lambda number: {},
) -> Path:
    """A finished run of every case on every model run; ``change`` returns extra record fields for a number."""
    metrics = {"fine": {"type": "bool"}, "level": {"type": "number", "range": [0, 1]}}
    suite = Suite.model_validate(
        {
            "name": "demo",
            "cases": [{"prompt": f"generate {case['id']}", **case} for case in cases],
            "models": [{"provider": "own:Generate", "label": label} for label in models],
            "graders": [{"key": "look", "type": "own:Look", "writes": metrics}],
            "verdict": ["fine"],
            **({"labels": labels} if labels else {}),
        }
    )
    facts = info(
        suite=suite,
        metrics=metrics,
        run_id=run_id,
        state="complete",
        suite_path=str(root / "suite.yaml"),
        planned_cells=len(cases) * len(models),
    )
    writer = RunWriter.create(root, facts)
    cells = [(case, label) for case in suite.cases for label in models]
    for number, (case, label) in enumerate(cells):
        path = writer.save(case.id, label, "0.png", encode_png(make_image(number)))
        defaults = {
            "run_id": run_id,
            "test_id": case.id,
            "model_label": label,
            "prompt": case.prompt,
            "scores": {"fine": True, "level": SCORE},
            "reasons": {"look": REASON},
            "artifact_path": path,
            "mime": "image/png",
        }
        writer.append(record(**{**defaults, **change(number)}))
    writer.finish("complete", "2025-01-01T00:01:00+00:00")
    return writer.folder


class Server:
    """``visioneval label`` in a thread of the test: all of it but its process. ``url`` is the URL to open."""

    def __init__(self, *arguments: str | Path) -> None:
        self.arguments = [*map(str, arguments)]
        self.start()

    def start(self, port: int | None = None) -> None:
        from visioneval.serve.server import LocalAddress, listening  # needs an extra, and every test imports this file

        applications: list[Any] = []
        with patch.object(LocalAddress, "serve", lambda _, application, **more: applications.append(application)):
            result = CliRunner().invoke(app, ["label", *self.arguments, "--no-open"])
        assert applications, result.output
        self.output = result.output
        self._ending = ExitStack()
        address = self._ending.enter_context(listening("127.0.0.1", port, "the label page"))
        server = address.server(applications[0])
        thread = threading.Thread(target=server.run, kwargs={"sockets": [address.listener]}, daemon=True)
        self._ending.callback(thread.join, 30)
        self._ending.callback(setattr, server, "should_exit", True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        self._opened(f"{address.origin}/{address.token}/")

    def _opened(self, url: str) -> None:
        self.url, self.port, self.token = url, int(urlsplit(url).port or 0), urlsplit(url).path.strip("/")

    def kill(self) -> None:
        self._ending.close()

    def ask(
        self, path: str, body: Any = None, *, method: str | None = None, token: str | None = "", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """A request as the page sends it, with changed ``headers`` (``_`` for ``-``). ``path`` follows the token."""
        defaults = {"host": f"127.0.0.1:{self.port}"}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        if body is not None:
            defaults["content-type"] = "application/json"
        changed = {**defaults, **{name.replace("_", "-"): value for name, value in headers.items()}}
        target = path if token is None else f"/{token or self.token}{path}"
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            line.request(method or ("GET" if body is None else "POST"), target, body=data, headers=changed)
            reply = line.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        finally:
            line.close()

    def next_item(self, rater: str) -> dict[str, Any]:
        status, _, body = self.ask(f"/api/item?rater={rater}")
        assert status == 200, body
        result: dict[str, Any] = json.loads(body)
        return result


class ServerProcess(Server):
    """``visioneval label`` in a process of its own, which can be killed."""

    def start(self, port: int | None = None) -> None:
        more = [] if port is None else ["--port", str(port)]
        self.program = ForkedProgram("label", *self.arguments, "--no-open", *more, is_merged=True)
        self.output = ""
        while (match := re.search("^open (.*)\n", self.output, re.MULTILINE)) is None:
            line = self.program.stdout.readline()
            assert line, self.output
            self.output += line
        self._opened(match[1])

    def kill(self) -> None:
        """Kills the process without a signal handler, like a power failure."""
        self.program.kill()
        if not self.program.stdout.closed:
            self.program.communicate(timeout=60)

    def restart(self) -> None:
        """Restarts on the same port; waits while another test's server uses it."""
        for _ in range(60):
            try:
                return self.start(self.port)
            except AssertionError as error:
                if "in use" not in str(error):
                    raise
                self.kill()
                time.sleep(0.5)
        raise AssertionError(f"the port {self.port} stays in use")


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """``serve(RUN, ..., kind=ServerProcess)`` starts a label server that stops with the test."""
    with ExitStack() as started:

        def start_server(*arguments: str | Path, kind: type[Server] = Server) -> Server:
            server = kind(*arguments)
            started.callback(server.kill)
            return server

        yield start_server


def lines(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def secrets_in(text: str) -> list[str]:
    """Secrets in a text that a rater must not see."""
    return re.findall(rf"secret-\w+-\d|{SCORE}|{REASON}|artifacts/|PASS|FAIL|\.png", text)


@pytest.fixture
def rate(open_page: OpenPage) -> Callable[..., Page]:
    """``rate(server, rater)`` opens the page as a rater and waits for the first image."""

    def open_page_as(server: Server, rater: str, **context: Any) -> Page:
        custom = f"http://127.0.0.1:{server.port}/"
        page: Page = open_page(f"{server.url}?rater={rater}", allowed=(custom, f"blob:{custom}"), **context)
        page.wait_for_selector(READY)
        return page

    return open_page_as


def wait_for_progress(page: Page, done: int, total: int) -> None:
    """Waits for a progress, and for its image."""
    expect = pytest.importorskip(
        "playwright.sync_api"
    ).expect  # what waits in the page is forbidden there: it uses eval
    expect(page.locator("#count")).to_have_text(f"{done} of {total}", timeout=20_000)
    page.wait_for_selector(READY)
