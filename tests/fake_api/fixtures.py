"""The fixtures of every test: the server, and official clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from fake_api import FakeAPI, Script

if TYPE_CHECKING:
    import openai
    from google import genai


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def api(script: Script) -> Iterator[FakeAPI]:
    with FakeAPI(script) as server:
        yield server


@pytest.fixture
def client(api: FakeAPI) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(base_url=api.openai_base_url, api_key=api.key, max_retries=0, timeout=5) as created:
        yield created


@pytest.fixture
def gemini(api: FakeAPI) -> Iterator[genai.Client]:
    from .samples import gemini_client

    created = gemini_client(api)
    yield created
    created.close()
