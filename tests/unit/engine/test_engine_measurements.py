"""Measurements are cached by the content of the files that were measured."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from visioneval.engine.calls.caching.cache import Cache
from visioneval.engine.calls.cost.meter import Meter
from visioneval.engine.cells.measurements import Measurements
from visioneval.graders.measures import Measure


@dataclass(frozen=True)
class Length:
    """How long a file is."""

    size: int


def measured(cache: Cache, path: Path, digest: str) -> tuple[int, bool]:
    """The size of a file whose hash is taken to be ``digest``, and whether it came from the cache."""
    measure = Measure("length", {"file": path}, lambda: Length(len(path.read_bytes())), Length)
    meter = Meter()
    result = asyncio.run(Measurements(cache)(measure, hash_of=lambda _: digest, meter=meter))
    return result.size, meter.is_from_cache


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_file_that_changes_while_it_is_measured_is_not_cached(tmp_path: Path, is_changed: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    digest = sha256(b"before").hexdigest()
    if is_changed:
        path.write_bytes(b"after it")
    cache = Cache(tmp_path / "cache")
    assert measured(cache, path, digest) == (8 if is_changed else 6, False)
    path.write_bytes(b"before")
    assert measured(cache, path, digest) == (6, not is_changed)
