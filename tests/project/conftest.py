"""What the tests of shipped suites and documented pages share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def measured_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, reduced_readings: None, hermetic: None
) -> None:
    """Tests of whole suites share one cache in a session: the README, the tutorial and the demo run the same suite, and
    images that were measured are not measured again.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    monkeypatch.setenv("XDG_CACHE_HOME", str(base / "measured"))
