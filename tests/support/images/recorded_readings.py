"""Readings by OCR's models, recorded with the project for tests whose subject is not OCR itself.

A model's reading is a pure function of the pixels, so it is found by them: whatever changes an image, or prepares it
otherwise, has it read by the models. ``make readings`` records all readings anew.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from visioneval.atomic import write_whole
from visioneval.graders.text.reading import ocr, ocr_models

RECORDINGS = Path(__file__).with_name("readings.jsonl")
RECORDING = "RECORD_READINGS" in os.environ
"""Whether to read all images and record that, as ``make readings`` does."""


@dataclass(frozen=True)
class WordColumns:
    """The columns of the characters of a line."""

    line_txt_len: float
    word_cols: list[list[int]]


@dataclass(frozen=True)
class EngineResult:
    """What ``ocr`` takes of the result of a RapidOCR engine."""

    boxes: list[list[list[float]]] | None
    txts: list[str] | None
    scores: list[float] | None
    word_results: list[WordColumns]

    @classmethod
    def of(cls, result: Any) -> EngineResult:
        """The same of RapidOCR's own object, whose arrays are of 32 bits."""
        boxes = getattr(result, "boxes", None)
        words = [item for item in result.word_results or () if hasattr(item, "word_cols")]
        return cls(
            boxes=None if boxes is None else [[[float(x), float(y)] for x, y in box] for box in boxes],
            txts=None if result.txts is None else list(result.txts),
            scores=None if result.scores is None else [float(score) for score in result.scores],
            word_results=[
                WordColumns(float(word.line_txt_len), [[int(column) for column in cols] for cols in word.word_cols])
                for word in words
            ],
        )

    @classmethod
    def from_json(cls, text: str) -> EngineResult:
        data = json.loads(text)
        return cls(**{**data, "word_results": [WordColumns(**word) for word in data["word_results"]]})


class RecordedReadings:
    """The engine's results by the pixels it reads: from recordings, else from a folder that all workers of the session
    share, else by ``read``.
    """

    def __init__(
        self, recordings: dict[str, str], folder: Path, read: Callable[[bool, Image.Image], EngineResult]
    ) -> None:
        self._recordings = recordings
        self._folder = folder
        self._read = read
        self._locks: dict[str, threading.Lock] = {}

    def __call__(self, detect: bool, image: Image.Image) -> EngineResult:
        about = f"{versions()} {detect} {image.mode} {image.size} "
        name = hashlib.sha256(about.encode() + image.tobytes()).hexdigest()
        if name in self._recordings:
            return EngineResult.from_json(self._recordings[name])
        path = self._folder / name
        with self._locks.setdefault(name, threading.Lock()):
            if not path.is_file():
                text = json.dumps(asdict(self._read(detect, image)), ensure_ascii=False, separators=(",", ":"))
                write_whole(path, text.encode())
            return EngineResult.from_json(path.read_text(encoding="utf-8"))


@cache
def versions() -> str:
    """What decides what the engine reads in given pixels.

    Without the version of onnxruntime, whose releases change confidences in their last digits: every fresh environment
    would read anew. Tests whose subject is OCR take no recorded readings.
    """
    code = inspect.getsource(ocr._load_engine) + inspect.getsource(ocr_models)
    tools = {name: version for name, version in ocr.tool_versions().items() if name != "onnxruntime"}
    return json.dumps({**tools, "code": hashlib.sha256(code.encode()).hexdigest()})


@cache
def recordings() -> dict[str, str]:
    """The JSON of each recorded result by the hash of its pixels."""
    if RECORDING or not RECORDINGS.is_file():
        return {}
    lines = RECORDINGS.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)  # type: ignore[misc]


def record(folder: Path) -> int:
    """Makes the readings of a session the recorded ones; returns how many there are."""
    lines = [f"{path.name} {path.read_text(encoding='utf-8')}\n" for path in sorted(folder.iterdir())]
    write_whole(RECORDINGS, "".join(lines).encode())
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
    engine, run = ocr._engine, ocr._run

    def read(detect: bool, image: Image.Image) -> EngineResult:
        return EngineResult.of(run(engine(detect=detect), image))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ocr, "_engine", lambda *, detect: detect)
        patch.setattr(ocr, "_run", RecordedReadings(recordings(), folder, read))
        yield


@pytest.fixture(scope="module")
def reduced_readings(recorded_readings: None) -> Iterator[None]:
    """As ``recorded_readings``, with images over 600,000 pixels reduced to that, for whole suites: OCR's time grows
    with the area.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ocr, "_MAX_AREA", 600_000)
        yield
