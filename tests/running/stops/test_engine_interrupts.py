"""Cells whose graders measure in threads: the order in which they are done, and what interrupts do to them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from engine_parts import calls_for, info_of, plan_of
from PIL import Image
from record_factory import generated_png
from toys import Toy

from visioneval import Generation, GenerationRequest, Grade, GradingContext, Record, read_records
from visioneval.graders.measures import Measure
from visioneval.media.images import sha256
from visioneval.records.writer import RunWriter
from visioneval.running import execution as loop_module
from visioneval.running.calls.cache import Cache
from visioneval.running.cells.services import Components, Interrupt, Listener
from visioneval.running.execution import Outcome, execute
from visioneval.running.runner import run_all
from visioneval.threads import is_any_busy

CELLS = 5
WAIT_S = 30.0


LARGE_PNG = BytesIO()
Image.effect_noise((800, 800), 100).save(LARGE_PNG, "PNG")


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("visioneval.running.cells.measurements.processors", lambda: 1)


class PlainProvider:
    """Generates an image of another color for each call, as equal ones would be measured once."""

    def __init__(self) -> None:
        self._images = map(generated_png, ("red", "teal", "navy", "olive", "white"))

    async def generate(self, request: GenerationRequest) -> Generation:
        return Generation(outputs=(next(self._images),))


class SlowGrader:
    """A grader whose measurement calls ``work`` with the case, in a thread."""

    def __init__(self, work: Callable[[str], None]) -> None:
        self.work = work
        self.measured: list[str] = []

    async def grade(self, context: GradingContext) -> Grade:
        def measure() -> Grade:
            self.measured.append(context.case.id)
            self.work(context.case.id)
            return Grade(scores={})

        return await context.measure(Measure("slow", {"output": context.generated.path}, measure, Grade))


class InterruptedRun:
    """A run of five cells with one thread, whose measurements may interrupt it."""

    def __init__(self, toy: Toy, work: Callable[[str], None], run_id: str = "r") -> None:
        graders = [{"key": "file", "type": "properties"}]  # the configuration of one that measures; its work is ours
        suite = plan_of(toy.write(*[{}] * CELLS, graders=graders, verdict=["not file.blank"]))
        self.plan = suite
        self.grader = SlowGrader(work)
        self.provider: Any = PlainProvider()
        self.records: list[Record] = []
        self.messages: list[str] = []
        self._said = threading.Event()
        self._interrupts: list[Interrupt] = []
        self.writer = RunWriter.create(Path("runs"), info_of(suite, run_id))

    def _say(self, message: str) -> None:
        self.messages.append(message)
        self._said.set()

    def send_interrupt(self) -> None:
        """Interrupts at the next turn of the event loop."""
        self._interrupts[0]()

    def interrupt(self) -> None:
        """Interrupts from a thread, and waits until the run says that it stops."""
        self.send_interrupt()
        assert self._said.wait(WAIT_S)

    def execute(self, cache: Cache | None = None) -> Outcome:
        listener = Listener(self.records.append, say=self._say, started=self._interrupts.append)
        parts = Components({run.label: self.provider for run in self.plan.runs}, {"file": self.grader})
        try:
            return execute(run_all, self.plan, parts, self.writer, calls_for(self.plan, cache=cache), listener)
        finally:
            self.writer.finish("complete", "2025-01-01T00:00:00+00:00")


def test_the_first_interrupt_waits_for_running_measurements_only(toy: Toy) -> None:
    run = InterruptedRun(toy, lambda case: run.interrupt())
    cache = Cache(toy.folder / "cache")
    assert run.execute(cache) == Outcome(complete=False)
    assert len(run.grader.measured) == 1
    assert [record.test_id for record in run.records] == run.grader.measured
    assert list(read_records(run.writer.folder)) == run.records
    assert run.messages == ["stopping: waiting for 1 measurement (interrupt again to stop now)"]


def test_the_first_interrupt_drops_no_cell_whose_output_no_cache_keeps(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt_once(case: str) -> None:
        if len(run.grader.measured) == 1:
            run.interrupt()

    run = InterruptedRun(toy, interrupt_once)
    run.execute()
    assert sorted(run.grader.measured) == [f"case{at}" for at in range(CELLS)]
    monkeypatch.setattr(Cache, "is_writable", property(lambda _: False))
    run = InterruptedRun(toy, interrupt_once, "read-only")
    cache = Cache(toy.folder / "cache")
    run.execute(cache)
    assert sorted(record.test_id for record in run.records) == [f"case{at}" for at in range(CELLS)]


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_the_second_interrupt_waits_for_no_measurement(
    toy: Toy, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_PATIENCE_S", 0.0)
    ended = threading.Event()

    def block(case: str) -> None:
        if len(run.grader.measured) < 2:
            return
        run.interrupt()
        run.interrupt()
        release.wait(WAIT_S)
        ended.set()

    run = InterruptedRun(toy, block)
    assert run.execute() == Outcome(complete=False)
    assert is_any_busy()
    assert len(run.grader.measured) == 2
    assert len(run.messages) == 1
    recorded = list(read_records(run.writer.folder))
    release.set()
    assert ended.wait(WAIT_S)
    assert list(read_records(run.writer.folder)) == recorded, "a measurement that ends later changes nothing"
    assert {record.test_id for record in recorded} <= {run.grader.measured[0]}


class LateProvider:
    """The first call returns at once, the second a large image while the only thread is at work, the others never."""

    def __init__(self, is_measuring: threading.Event, answered: Callable[[], None]) -> None:
        self.is_measuring = is_measuring
        self.answered = answered
        self.own_thread = ThreadPoolExecutor(1)
        self.calls = 0

    async def generate(self, request: GenerationRequest) -> Generation:
        self.calls += 1
        if self.calls == 1:
            return Generation(outputs=(generated_png("red"),))
        if self.calls > 2:
            await asyncio.Event().wait()
        await asyncio.get_running_loop().run_in_executor(self.own_thread, self.is_measuring.wait, WAIT_S)
        self.answered()
        return Generation(outputs=(LARGE_PNG.getvalue(),))


def test_the_second_interrupt_keeps_a_paid_answer_that_waits_for_a_thread(
    toy: Toy, release: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs cannot be stopped, so it is stored in another thread."""
    monkeypatch.setattr(loop_module, "_PATIENCE_S", WAIT_S)
    is_measuring = threading.Event()

    def block(case: str) -> None:
        is_measuring.set()
        release.wait(WAIT_S / 10)

    class NotedCache(Cache):
        stored = 0

        def put(self, *args: Any, **options: Any) -> None:
            super().put(*args, **options)
            self.stored += 1
            if self.stored == 2:
                release.set()

    run = InterruptedRun(toy, block)
    run.provider = LateProvider(is_measuring, lambda: [run.send_interrupt() for _ in range(2)])
    cache = NotedCache(toy.folder / "cache")
    assert run.execute(cache) == Outcome(complete=False)
    assert cache.path(sha256(LARGE_PNG.getvalue())).is_file()


class ReversedGrader(SlowGrader):
    """The cell that began last asks for its measurement first, while the only thread is at work."""

    def __init__(self) -> None:
        super().__init__(lambda case: None)
        self.begun: list[str] = []
        self._turns = [asyncio.Event() for _ in range(CELLS)]
        self._all_asked = threading.Event()

    async def grade(self, context: GradingContext) -> Grade:
        position = len(self.begun)
        self.begun.append(context.case.id)
        if position == CELLS - 1:
            thread_begun = threading.Event()

            def block() -> Grade:
                thread_begun.set()
                self._all_asked.wait(WAIT_S)
                return Grade(scores={})

            blocking = context.measure(Measure("block", {"output": context.generated.path}, block, Grade))
            self._blocker = asyncio.ensure_future(blocking)
            await asyncio.to_thread(thread_begun.wait, WAIT_S)
        else:
            await self._turns[position].wait()
        grading = asyncio.ensure_future(super().grade(context))
        await asyncio.sleep(0)  # it has asked
        if position:
            self._turns[position - 1].set()
        else:
            self._all_asked.set()
        return await grading


def test_the_oldest_cell_is_measured_first(toy: Toy) -> None:
    run = InterruptedRun(toy, lambda case: None)
    run.grader = grader = ReversedGrader()
    assert run.execute() == Outcome(complete=True)
    assert grader.measured == grader.begun
    assert [record.test_id for record in run.records] == grader.begun
