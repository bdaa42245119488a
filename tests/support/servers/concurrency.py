"""Helpers for concurrent tasks: a runner with a timeout, and a manual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from visioneval.running.calls import throttle


def run_with_timeout(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine with a timeout."""

    async def main() -> None:
        async with asyncio.timeout(20):
            await scenario

    asyncio.run(main())


async def settle() -> None:
    """Lets all tasks run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


class Clock:
    """A clock that only advances when a test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(throttle, "monotonic", lambda: self.now)
