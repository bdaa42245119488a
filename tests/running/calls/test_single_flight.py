"""Tests of single-flight: concurrent callers share one result."""

from __future__ import annotations

import asyncio

import pytest

from visioneval.running.cells.services import SingleFlight


def test_first_caller_does_the_work_for_all() -> None:
    created: list[str] = []

    async def make() -> str:
        created.append("x")
        await asyncio.sleep(0)
        return "done"

    async def all_at_once() -> list[str]:
        once = SingleFlight()
        message = await asyncio.gather(*(once("a", make) for _ in range(5)), once("b", make))
        return [*message, await once("a", make)]

    assert asyncio.run(all_at_once()) == ["done"] * 7
    assert created == ["x", "x"]


def test_failure_reaches_all_waiting_callers_and_is_not_cached() -> None:
    tries = 0

    async def make() -> int:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        if tries == 1:
            raise ValueError("no luck")
        return tries

    async def all_at_once() -> int:
        once = SingleFlight()
        message = await asyncio.gather(*(once("a", make) for _ in range(3)), return_exceptions=True)
        assert [str(item) for item in message] == ["no luck"] * 3
        return await once("a", make)

    assert asyncio.run(all_at_once()) == 2


def test_cancelled_caller_does_not_cancel_others() -> None:
    async def scenario() -> str:
        once, go = SingleFlight(), asyncio.Event()

        async def make() -> str:
            await go.wait()
            return "done"

        first = asyncio.create_task(once("a", make))
        second = asyncio.create_task(once("a", make))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        go.set()
        return await second

    assert asyncio.run(scenario()) == "done"
