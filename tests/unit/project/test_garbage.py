"""When Python searches for unreachable cycles of objects."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from visioneval.aio import gather_all
from visioneval.garbage import collect_new_objects, collect_seldom
from visioneval.running.calls.budget import Budget
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.log import CallLog
from visioneval.running.calls.prices import Prices
from visioneval.running.calls.throttle import Throttle
from visioneval.running.execution import Outcome, Progress, run_to_end


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_loading_is_not_searched_and_what_a_run_leaves_behind_soon_is() -> None:
    collect_seldom()
    loading = gc.get_threshold()[0]
    collect_new_objects()
    assert gc.get_threshold()[0] * 10 < loading


def test_the_process_of_a_user_is_left_as_it_is(thresholds: tuple[int, int, int]) -> None:
    frozen = gc.get_freeze_count()
    collect_new_objects()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (thresholds, frozen)


def test_a_run_of_the_command_collects_new_objects() -> None:
    async def work() -> Outcome:
        return Outcome(complete=gc.get_threshold()[0] < loading)

    collect_seldom()
    loading = gc.get_threshold()[0]
    assert run_to_end(work, Progress(Calls(Throttle({}, 8), Prices(), Budget(), CallLog())), print).complete


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
