"""The loop: workers pull jobs from the plan, finish their cells, and append their records."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from visioneval.builtin import builtin
from visioneval.engine.bench import Bench, secrets_around
from visioneval.engine.calls import Calls, draw_lane
from visioneval.engine.cell import Job, work
from visioneval.engine.throttle import Lane
from visioneval.engine.tools import Tools
from visioneval.errors import BudgetError, ClosingError, StoppedError
from visioneval.images import MAX_BYTES
from visioneval.plan import Plan
from visioneval.question_file import QuestionsWriter
from visioneval.records import Record
from visioneval.run_writer import RunWriter
from visioneval.suite.model import template_folders
from visioneval.types import ModelRun

Jobs = Callable[[Plan], Iterator[Job]]
LOOKING_AHEAD = 2
"""Cells in the works for each drawing at once: while one is judged the next is drawn."""
TOLD_EVERY_S = 1.0


def every_cell(plan: Plan) -> Iterator[Job]:
    """The jobs of a run that begins: all is drawn."""
    return (Job(call, call.samples) for call in plan.calls())


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told how a run goes: of each finished record, of who waits for what, and in a line now and then."""

    record: Callable[[Record], None] = lambda _: None
    waiting: Callable[[list[str]], None] = lambda _: None
    say: Callable[[str], None] = print
    debug: Callable[[BaseException], None] = lambda _: None


@dataclass(slots=True)
class Progress:
    """Whether a run goes on, and why it does not."""

    calls: Calls
    out_of_budget: bool = False
    left: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Begins nothing new."""
        self.stopping.set()
        self.calls.throttle.close()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: whether all was done, and whether the budget ended it."""

    complete: bool
    out_of_budget: bool = False


def execute(
    plan: Plan, tools: Tools, writer: RunWriter, calls: Calls, listener: Listener, jobs: Jobs = every_cell
) -> Outcome:
    """Does every job of the plan.

    The first interrupt (Ctrl-C) lets running calls finish, the second cancels them. A run that cannot be written any
    more raises ``StorageError``, a key that a provider refuses ``AuthError``; nothing else gets out.
    """
    try:
        return asyncio.run(_execute(plan, tools, writer, calls, listener, jobs))
    except BaseExceptionGroup as group:
        raise _cause(group) from None


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell: what stopped the run, where that is known, as the others may follow from it."""
    told: BaseExceptionGroup[BaseException] = group.subgroup(StoppedError) or group
    error = told.exceptions[0]
    return _cause(error) if isinstance(error, BaseExceptionGroup) else error


async def _execute(
    plan: Plan, tools: Tools, writer: RunWriter, calls: Calls, listener: Listener, jobs: Jobs
) -> Outcome:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="measure") as threads:
        loop.set_default_executor(threads)
        questions = QuestionsWriter(writer.folder)
        bench = Bench(
            plan,
            tools,
            calls,
            writer,
            hashes(plan.folder),
            secrets_around(plan),
            questions,
            template_folders=template_folders(plan.suite, plan.folder, builtin("prompts")),
            debug=listener.debug,
        )
        progress = Progress(calls)
        quiet = contextlib.suppress(asyncio.CancelledError)
        with _interrupts(loop, progress, listener), quiet, contextlib.closing(questions):
            lanes = [(lane, jobs(part)) for lane, part in by_lane(plan).items()]
            telling = asyncio.create_task(_tell_waiting(calls, listener))
            try:
                async with asyncio.TaskGroup() as group:
                    for lane, own in lanes:
                        for _ in range(min(calls.throttle.most(lane) * LOOKING_AHEAD, plan.cells)):
                            group.create_task(_pull(own, progress, bench, listener))
            finally:
                telling.cancel()
            left = progress.left or any(next(own, None) is not None for _, own in lanes)
            out_of_budget = progress.out_of_budget or calls.budget.refused > 0  # a judge that was not asked, too
            return Outcome(complete=not left and not out_of_budget, out_of_budget=out_of_budget)
        return Outcome(complete=False)


def by_lane(plan: Plan) -> dict[Lane, Plan]:
    """The plan in parts that share their limits, so that a slow model does not hold a fast one."""
    lanes: dict[Lane, tuple[ModelRun, ...]] = {}
    for run in plan.runs:
        lane = draw_lane(run.provider, run.params)
        lanes[lane] = (*lanes.get(lane, ()), run)
    return {lane: replace(plan, runs=runs) for lane, runs in lanes.items()}


async def _pull(jobs: Iterator[Job], progress: Progress, bench: Bench, listener: Listener) -> None:
    """One worker. All of a lane share the iterator, so that no job exists before somebody is free for it.

    A record is written on the loop's own thread: it is small, and must not queue behind pictures to be measured.
    """
    for job in jobs:
        try:
            async for record in work(job, bench):
                bench.writer.append(record)
                listener.record(record)
        except (BudgetError, ClosingError) as error:
            progress.left += 1
            if isinstance(error, BudgetError):
                progress.out_of_budget = True
                progress.stop()
        if progress.stopping.is_set():
            return


async def _tell_waiting(calls: Calls, listener: Listener) -> None:
    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        listener.waiting(calls.throttle.waiting())


@contextlib.contextmanager
def _interrupts(loop: asyncio.AbstractEventLoop, progress: Progress, listener: Listener) -> Iterator[None]:
    running = asyncio.current_task()
    assert running is not None

    def interrupt() -> None:
        if progress.stopping.is_set():
            running.cancel()
        else:
            listener.say("stopping once the running calls are done; interrupt again to stop now")
        progress.stop()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, interrupt)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or a system without signals
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        loop.remove_signal_handler(signal.SIGTERM)


def hashes(folder: Path) -> Callable[[Path], str]:
    """The SHA-256 of files, by their path from the suite's folder; each is read once."""

    @lru_cache(maxsize=4096)
    def hash_of(path: Path) -> str:
        try:
            if not (folder / path).is_file():
                return "missing"
            if (folder / path).stat().st_size > MAX_BYTES:
                return "too large"  # and so never read
            with (folder / path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return "missing"

    return hash_of
