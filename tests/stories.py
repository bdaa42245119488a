"""Stories of tasks that run at once, and a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from visioneval.engine.calls import throttle


def play(story: Coroutine[Any, Any, None]) -> None:
    """Runs a story that must come to an end."""

    async def whole() -> None:
        async with asyncio.timeout(20):
            await story

    asyncio.run(whole())


async def settle() -> None:
    """Lets everybody go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(throttle, "monotonic", lambda: self.now)
