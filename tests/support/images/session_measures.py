"""Local measurements that a session of tests makes once, below the program's own cache.

A measurement is a pure function of what its key names, so what a test sees is the same, also how many measurements are
cached. Tests whose subject is a measure make their own.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from visioneval.atomic import write_whole
from visioneval.graders.measures import Measure
from visioneval.graders.text import ocr
from visioneval.running.calls.cache import content_digest
from visioneval.running.cells.measurements import Measurements, measure_key


@pytest.fixture(scope="module")
def session_measures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests of a module take the measurements that an earlier test of the session has made."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "measurements"
    folder.mkdir(exist_ok=True)
    run = Measurements._run

    def run_once(measurements: Measurements, measure: Measure[Any]) -> Any:
        try:
            key = measure_key(measure, content_digest)
        except OSError:  # measuring reports it
            key = None
        if key is None:
            return run(measurements, measure)
        path = folder / f"{key.removeprefix('measure:')}-{ocr.MAX_AREA}"  # which tests reduce
        if not path.is_file():
            write_whole(path, pickle.dumps(run(measurements, measure)))
        return pickle.loads(path.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Measurements, "_run", run_once)
        yield
