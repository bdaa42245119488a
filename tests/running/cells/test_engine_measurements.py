"""Measurements are cached by the content of the files that were measured."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from visioneval.graders.measures import Measure
from visioneval.running.calls.cache import Cache
from visioneval.running.calls.judges import Meter
from visioneval.running.cells.measurements import Measurements


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


@pytest.mark.parametrize(
    ("name", "data", "is_drawn"),
    [
        ("logo.png", b"<svg/>", True),
        ("logo.svg", b"<svg/>", True),
        ("logo.svg", b"\x89PNG", False),
        ("gone.svg", b"", False),
    ],
)
def test_the_version_of_what_draws_a_file_counts_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, is_drawn: bool
) -> None:
    monkeypatch.setattr("visioneval.graders.measures.has_extra", lambda _: True)
    monkeypatch.setattr("visioneval.graders.measures.version", lambda _: "9.9")
    if data:
        (tmp_path / name).write_bytes(data)
    versions = Measure("length", {"file": tmp_path / name}, lambda: Length(0), Length).versions
    assert ("resvg" in (versions or {})) == is_drawn
