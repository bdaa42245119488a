"""Readings by OCR's models, recorded with the project for tests whose subject is not OCR itself.

A model's reading is a pure function of the pixels, so it is found by them: whatever changes an image, or prepares it
otherwise, has it read by the models. ``make readings`` records all readings anew.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from PIL import Image

from visioneval.atomic import write_whole
from visioneval.graders.text import networks, ocr
from visioneval.graders.text.layout import Corners

RECORDINGS = Path(__file__).with_name("readings.jsonl")
RECORDING = "RECORD_READINGS" in os.environ
"""Whether to read all images and record that, as ``make readings`` does."""


Kind = Literal["boxes", "line", "likelihood"]
"""What the networks are asked: where text is, what a line says, and how likely it says a text."""
Answer = Callable[[Kind, Image.Image, str], Any]
"""Answers in JSON's types. Only a likelihood has a text."""


class RecordedReadings:
    """The networks' answers by the pixels: from recordings, else from a folder that all workers of the session share,
    else by ``read``.
    """

    def __init__(self, recordings: dict[str, str], folder: Path, read: Answer) -> None:
        self._recordings = recordings
        self._folder = folder
        self._read = read
        self._locks: dict[str, threading.Lock] = {}

    def __call__(self, kind: Kind, image: Image.Image, text: str = "") -> Any:
        about = f"{versions()} {kind} {text} {image.mode} {image.size} "
        name = hashlib.sha256(about.encode() + image.tobytes()).hexdigest()
        if name in self._recordings:
            return json.loads(self._recordings[name])
        path = self._folder / name
        with self._locks.setdefault(name, threading.Lock()):
            if not path.is_file():
                answer = json.dumps(self._read(kind, image, text), ensure_ascii=False, separators=(",", ":"))
                write_whole(path, answer.encode())
            return json.loads(path.read_text(encoding="utf-8"))


@cache
def versions() -> str:
    """What decides what the engine reads in given pixels.

    Without the version of onnxruntime, whose releases change confidences in their last digits: every fresh environment
    would read anew. Tests whose subject is OCR take no recorded readings.
    """
    lines = inspect.getsource(networks).splitlines()
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):  # where a function is imported from decides nothing
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    code = "\n".join(line for line in lines if line)
    tools = {name: version for name, version in ocr.tool_versions().items() if name != "onnxruntime"}
    return json.dumps({**tools, "code": hashlib.sha256(code.encode()).hexdigest()})


@cache
def recordings() -> dict[str, str]:
    """The JSON of each recorded result by the hash of its pixels."""
    if RECORDING or not RECORDINGS.is_file():
        return {}
    lines = RECORDINGS.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)  # type: ignore[misc]


def record(folder: Path, *, anew: bool) -> int:
    """Makes the readings of a session the recorded ones, or adds them to these; returns how many there are."""
    lines = {path.name: f"{path.name} {path.read_text(encoding='utf-8')}\n" for path in folder.iterdir()}
    if not anew and RECORDINGS.is_file():
        recorded = RECORDINGS.read_text(encoding="utf-8").splitlines(keepends=True)
        lines = {line.partition(" ")[0]: line for line in recorded} | lines
    write_whole(RECORDINGS, "".join(lines[name] for name in sorted(lines)).encode())
    return len(lines)


def folder_of_readings(base: Path) -> Path:
    """The folder of new readings for all workers of a session, by pytest's base folder of the session."""
    folder = base / "readings"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def recorded_readings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests of a module take recorded readings where there are some. Real engines are loaded where not."""
    pytest.importorskip("rapidocr")
    base = tmp_path_factory.getbasetemp()
    # the base folder of a worker is in that of the session
    folder = folder_of_readings(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
    detect, read_line, log_likelihood = networks.detect, networks.read_line, networks.log_likelihood

    def answer(kind: Kind, image: Image.Image, text: str) -> Any:
        if kind == "boxes":
            return detect(image)
        return asdict(read_line(image)) if kind == "line" else log_likelihood(image, text)

    recorded = RecordedReadings(recordings(), folder, answer)

    def boxes(image: Image.Image) -> list[Corners]:
        return [(a, b, c, d) for a, b, c, d in (map(tuple, box) for box in recorded("boxes", image))]

    def line(image: Image.Image) -> networks.Line:
        said = recorded("line", image)
        return networks.Line(said["text"], said["confidence"], tuple(said["columns"]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "detect", boxes)
        patch.setattr(networks, "read_line", line)
        patch.setattr(networks, "log_likelihood", lambda image, text: recorded("likelihood", image, text))
        yield


@pytest.fixture(scope="module")
def reduced_readings(recorded_readings: None) -> Iterator[None]:
    """As ``recorded_readings``, with images over 600,000 pixels reduced to that, for whole suites: OCR's time grows
    with the area.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ocr, "MAX_AREA", 600_000)
        yield
