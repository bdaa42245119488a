"""Time at work and time spent waiting, with real sleeps: in the event loop, in threads, and in the records of a run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from toys import LOOK, Toy

from visioneval import GraderRecord, ProviderError, Record, read_records
from visioneval.media.images import PixelBudget
from visioneval.running.calls.throttle import Throttle
from visioneval.running.cells.services import SingleFlight
from visioneval.running.keys import RateLimitKey
from visioneval.suite.entries.providers import Limits
from visioneval.threads import Slots, Stopwatch, in_thread, waiting, working

STEP = 0.3


def times(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """The times at work and waiting, in steps."""

    async def run() -> tuple[float, float]:
        with Stopwatch() as stopwatch:
            await work()
            at_work, waited = stopwatch.read()
            return at_work / STEP, waited / STEP

    return asyncio.run(run())


def near(at_work: float, waited: float) -> object:
    return pytest.approx((at_work, waited), abs=0.6)


def test_without_waits_everything_is_work() -> None:
    assert times(lambda: asyncio.sleep(STEP)) == near(1, 0)


def test_a_wait_in_the_event_loop() -> None:
    async def work() -> None:
        await asyncio.sleep(STEP)
        with waiting():
            await asyncio.sleep(2 * STEP)

    assert times(work) == near(1, 2)


def test_a_wait_beside_work_is_no_wait() -> None:
    async def call() -> None:
        with working(), working():
            await asyncio.sleep(2 * STEP)

    async def wait() -> None:
        with waiting():
            await asyncio.sleep(3 * STEP)

    async def work() -> None:
        await asyncio.gather(call(), wait(), wait())

    assert times(work) == near(2, 1)


def test_a_wait_within_work_is_a_wait() -> None:
    async def work() -> None:
        with working():
            await asyncio.sleep(STEP)
            with waiting():
                await asyncio.sleep(2 * STEP)

    assert times(work) == near(1, 2)


async def measure(slots: Slots, seconds: float) -> None:
    async with slots.taken(1):
        await in_thread(time.sleep, seconds)


async def behind(other: Coroutine[Any, Any, None], work: Coroutine[Any, Any, None]) -> tuple[float, float]:
    """The times of ``work``, which begins after the ``other``."""
    begun = asyncio.ensure_future(other)
    await asyncio.sleep(STEP / 10)
    with Stopwatch() as stopwatch:
        await work
        at_work, waited = stopwatch.read()
    await begun
    return at_work / STEP, waited / STEP


def test_a_wait_for_a_slot() -> None:
    slots = Slots(1)

    async def work() -> None:
        await asyncio.gather(measure(slots, STEP), measure(slots, STEP))

    assert times(work) == near(2, 0), "one of its functions is at work all the time"
    assert asyncio.run(behind(measure(slots, 2 * STEP), measure(slots, STEP))) == near(1, 2)


def test_a_wait_for_memory_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.media.images.max_pixels", lambda: 10)
    budget = PixelBudget()

    def decode() -> None:
        with budget.reserve(10):
            time.sleep(STEP)

    async def work() -> None:
        await asyncio.gather(in_thread(decode), in_thread(decode))

    assert times(work) == near(2, 0), "both are work of the same grader"
    assert asyncio.run(behind(in_thread(decode), in_thread(decode))) == near(1, 1)


def test_a_cancelled_wait_for_a_slot_ends() -> None:
    slots = Slots(1)

    async def work() -> None:
        first = asyncio.ensure_future(measure(slots, STEP))
        second = asyncio.ensure_future(measure(slots, STEP))
        await asyncio.sleep(STEP / 10)
        second.cancel()
        await first
        await asyncio.sleep(STEP)

    assert times(work) == near(2, 0)


def test_rate_limits_and_retries_are_waits() -> None:
    throttle = Throttle({"p": Limits(max_concurrency=1)}, 1)
    key = RateLimitKey("p", "m", "judge")

    async def call() -> None:
        await asyncio.sleep(STEP)

    async def run() -> tuple[float, float]:
        other = asyncio.ensure_future(throttle.call(key, call))
        await asyncio.sleep(0)
        with Stopwatch() as stopwatch:
            await throttle.call(key, call)
            at_work, waited = stopwatch.read()
        await other
        return at_work / STEP, waited / STEP

    assert asyncio.run(run()) == near(1, 1)
    attempts: list[int] = []

    async def fails_once() -> None:
        await asyncio.sleep(STEP)
        attempts.append(1)
        if len(attempts) == 1:
            raise ProviderError("busy", kind="rate_limit", retry_after=2 * STEP)

    assert times(lambda: throttle.call(key, fails_once)) == near(2, 2)


def test_a_wait_for_the_same_work_of_another_cell() -> None:
    async def run() -> list[tuple[float, float]]:
        once = SingleFlight()

        async def ask() -> tuple[float, float]:
            with Stopwatch() as stopwatch:
                await once("key", lambda: asyncio.sleep(STEP))
                at_work, waited = stopwatch.read()
                return at_work / STEP, waited / STEP

        return await asyncio.gather(ask(), ask())

    assert asyncio.run(run()) == [near(1, 0), near(0, 1)]


SLOW = """
import time
from visioneval.graders.base import Grade
from visioneval.providers.base import Generation
from mine import encoded


class Generate:
    def __init__(self, config):
        pass

    async def generate(self, request):
        import asyncio
        await asyncio.sleep(0.2)
        return Generation(outputs=(encoded(),))


class Look:
    def __init__(self, config):
        pass

    async def grade(self, context):
        from visioneval.graders.measures import Measure
        return await context.measure(Measure("slow", {}, self.slow, Grade))

    @staticmethod
    def slow():
        time.sleep(0.2)
        return Grade(scores={"fine": True, "level": 0.5})
"""


def test_records_tell_work_from_waiting(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(toy.folder)
    monkeypatch.setattr("visioneval.running.cells.measurements.processors", lambda: 1)
    Path("slow.py").write_text(SLOW)
    models = [{"provider": "slow:Generate", "label": "m"}]
    limits = {"slow:Generate": {"max_concurrency": 4}}
    path = toy.write({}, {}, {}, {}, models=models, limits=limits, graders=[{**LOOK, "type": "slow:Look"}])
    result = toy("run", path, "--trust-suite", "--run-id", "r")
    assert result.exit_code == 0, result.output
    records: list[Record] = list(read_records(Path("runs/r")))
    graders: list[GraderRecord] = [record.graders[0] for record in records]
    assert [grader.seconds for grader in graders] == [pytest.approx(0.2, abs=0.15)] * 4
    assert max(grader.waited_seconds for grader in graders) > 0.4, "the fourth waits for the only thread"
    assert [record.seconds for record in records] == [pytest.approx(0.2, abs=0.15)] * 4
    last = max(records, key=lambda record: record.graders[0].waited_seconds)
    shown = toy("show", "r", last.test_id).stdout
    assert "(waited 0." in shown
    again = toy("grade", "r", "--trust-suite", "--run-id", "g")
    assert again.exit_code == 0
    assert {record.waited_seconds for record in read_records(Path("runs/g"))} == {0.0}
