"""Fixtures of suites that generate videos: a module takes them with ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_api import FakeAPI
from vertex import ProxyLog, vertex
from video_suites import KINDS

from visioneval.running.calls import outputs as operations


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(operations.throttle, "BACKOFF_S", 0.01)


@pytest.fixture
def google(
    api: FakeAPI, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ProxyLog]:
    with vertex(api.gemini_base_url, api.key, tmp_path_factory.mktemp("google"), monkeypatch) as seen:
        yield seen


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "veo":
        request.getfixturevalue("google")
    return str(request.param)
