"""Coroutines that run together."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from visioneval.threads import gather_all


class Body:
    """What a call sent."""


def test_the_error_of_several_calls_does_not_stay_in_memory() -> None:
    bodies: list[weakref.ref[Body]] = []

    async def fail() -> None:
        body = Body()
        bodies.append(weakref.ref(body))
        raise ValueError("no answer")

    async def both() -> None:
        with pytest.raises(ValueError, match="no answer"):
            await gather_all([fail(), fail()])

    gc.disable()
    try:
        asyncio.run(both())
        assert [body() for body in bodies] == [None, None]
    finally:
        gc.enable()
