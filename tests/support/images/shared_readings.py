"""Reads the text of equal images once in a test session, for tests whose subject is not OCR itself."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from visioneval.atomic import write_whole
from visioneval.graders.text.copy_match import Reading
from visioneval.graders.text.reading import ocr


class SharedReadings:
    """``read``, with its results in a folder that all workers of the session share.

    The first reading of each image is a real one. Equal images have equal sizes and pixels.
    """

    def __init__(self, folder: Path, read: Callable[[Image.Image], list[Reading]]) -> None:
        self._folder = folder
        self._read = read
        self._locks: dict[str, threading.Lock] = {}

    def __call__(self, image: Image.Image) -> list[Reading]:
        name = hashlib.sha256(f"{image.mode} {image.size} ".encode() + image.tobytes()).hexdigest()
        path = self._folder / name
        with self._locks.setdefault(name, threading.Lock()):
            if not path.is_file():
                write_whole(path, pickle.dumps(self._read(image)))
            readings: list[Reading] = pickle.loads(path.read_bytes())
        return readings


@pytest.fixture(scope="session")
def readings_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all workers: the base folder of a worker is in that of the session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "readings"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def shared_readings(readings_folder: Path) -> Iterator[None]:
    """The tests of a module read equal images once in a session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ocr, "read", SharedReadings(readings_folder, ocr.read))
        yield


@pytest.fixture(scope="module")
def reduced_readings(readings_folder: Path) -> Iterator[None]:
    """As ``shared_readings``, with images over 600,000 pixels reduced to that, for whole suites: OCR's time grows with
    the area.
    """
    folder = readings_folder / "reduced"
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ocr, "_MAX_AREA", 600_000)
        patch.setattr(ocr, "read", SharedReadings(folder, ocr.read))
        yield
