"""Fixtures: a module takes them with ``pytest_plugins = ("fake_api.fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from google import genai

from fake_api import FakeAPI, Script

from .samples import gemini_client


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def api(script: Script) -> Iterator[FakeAPI]:
    with FakeAPI(script) as server:
        yield server


@pytest.fixture
def client(api: FakeAPI) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=api.openai_base_url, api_key=api.key, max_retries=0, timeout=5) as created:
        yield created


@pytest.fixture
def gemini(api: FakeAPI) -> Iterator[genai.Client]:
    created = gemini_client(api)
    yield created
    created.close()
