"""One event loop for all calls of this folder, so that they share one process of LiteLLM, whose start takes seconds."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from visioneval import CaseFiles, GenerationRequest, TaskType, TestCase
from visioneval.providers import image_replies
from visioneval.providers.litellm import LiteLLMProvider
from visioneval.providers.litellm.generator import LiteLLMGenerator

KEY = "sk-fake-0123456789abcdef"
"""The key of the fake API, and of every other server here."""
FORMS = {"fal": "fal_ai/fal-ai/flux-pro/v1.1", "stability": "stability/sd3.5-large", "openai": "openai/gpt-image-2"}


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def wait_for(loop: asyncio.Runner) -> Callable[[Awaitable[Any]], Any]:
    async def result_of(work: Awaitable[Any]) -> Any:
        return await work

    return lambda work: loop.run(result_of(work))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISIONEVAL_TRUSTED_HOSTS", "127.0.0.1")
    monkeypatch.setenv("LOCAL_KEY", KEY)
    for name in ("FAL_AI_API_KEY", "STABILITY_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "sk-not-named-0123456789")
    monkeypatch.setattr(image_replies, "WAITS_S", (0.0, 0.0))


@pytest.fixture(scope="session")
def image() -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def generate(wait_for: Callable[[Awaitable[Any]], Any], tmp_path: Path) -> Callable[..., Any]:
    """``generate(model, base_url, **options)``: the result of one call, or of an edit of ``files``."""

    def called(
        model: str, base_url: str | None, *, files: CaseFiles | None = None, params: Any = None, **options: Any
    ) -> Any:
        sent = {"model": model, **(params or {})}
        entry = {"provider": "litellm", "base_url": base_url, "api_key_env": "LOCAL_KEY", "params": sent}
        generator = LiteLLMGenerator(LiteLLMProvider.model_validate({**entry, **options}))
        request = GenerationRequest(
            case=TestCase(id="one", prompt="a tree"),
            task_type=TaskType.IMAGE_EDITING if files else TaskType.IMAGE_GENERATION,
            prompt="a tree",
            model_label="m",
            params=sent,
            files=files or CaseFiles(),
            samples=(0,),
            folder=tmp_path,
        )
        return wait_for(generator.edit(request) if files else generator.generate(request))

    return called
