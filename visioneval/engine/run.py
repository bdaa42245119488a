"""The loop: workers pull jobs from the plan, finish their cells, and append their records."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from visioneval.engine.calls.calls import Calls, draw_lane
from visioneval.engine.calls.throttle import Lane
from visioneval.engine.cell import Job, work
from visioneval.engine.components import Tools
from visioneval.engine.context import Bench, secrets_around
from visioneval.engine.memory import TRIMMED_EVERY_S, give_back, unmap_large_blocks
from visioneval.engine.pairwise.panel import Panel, matchups_within, put_to_judge
from visioneval.engine.shutdown import Outcome, Progress, cause, interrupts
from visioneval.media.images import MAX_BYTES
from visioneval.plan import Plan
from visioneval.records.model import Record, read_records
from visioneval.records.questions import QuestionsWriter
from visioneval.records.writer import RunWriter
from visioneval.resources import builtin
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
    note: Callable[[str], None] = lambda _: None


def execute(
    plan: Plan, tools: Tools, writer: RunWriter, calls: Calls, listener: Listener, jobs: Jobs = every_cell
) -> Outcome:
    """Does every job of the plan.

    The first interrupt (Ctrl-C) lets running calls finish, the second cancels them. A run that cannot be written any
    more raises ``StorageError``, a key that a provider refuses ``AuthError``, once the calls in flight have come to
    their end; nothing else gets out.
    """
    unmap_large_blocks()
    try:
        return asyncio.run(_execute(plan, tools, writer, calls, listener, jobs))
    except BaseExceptionGroup as group:
        raise cause(group) from None
    finally:
        give_back()


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
        with interrupts(loop, progress, listener.say), quiet, contextlib.closing(questions):
            lanes = [(lane, jobs(part)) for lane, part in by_lane(plan).items()]
            beside = [asyncio.create_task(each) for each in (_tell_waiting(calls, listener), _trim())]
            try:
                async with asyncio.TaskGroup() as group:
                    for lane, own in lanes:
                        for _ in range(min(calls.throttle.most(lane) * LOOKING_AHEAD, plan.cells)):
                            group.create_task(_pull(own, progress, bench, listener))
            finally:
                for task in beside:
                    task.cancel()
            progress.check()
            left = progress.left or any(next(own, None) is not None for _, own in lanes)
            if not left:
                await _compare(bench, progress, listener)
                progress.check()
                left = progress.left
            out_of_budget = progress.out_of_budget or calls.budget.refused > 0  # a judge that was not asked, too
            if calls.budget.refusal is not None:
                listener.say(calls.budget.refusal)
            return Outcome(complete=not left and not out_of_budget, out_of_budget=out_of_budget)
        if progress.failure is not None:  # which an interrupt did not let come to its end
            listener.say(str(progress.failure))
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

    A record is written on the loop's own thread: it is small, and must not queue behind pictures to be measured. One
    that cannot be written does not end the job: its calls in flight are paid for.
    """
    for job in jobs:
        try:
            async for record in work(job, bench):
                try:
                    bench.writer.append(record)
                    listener.record(record)
                except Exception as error:
                    progress.leave(error)
        except Exception as error:
            progress.leave(error)
        if progress.is_over:
            return


async def _compare(bench: Bench, progress: Progress, listener: Listener) -> None:
    """The step after the cells: the model runs of the run are compared with each other, picture by picture."""
    for config in bench.plan.suite.graders:
        if not config.after_run:
            continue
        panel = Panel(
            bench.plan,
            config,
            bench.tools,
            bench.calls,
            bench.writer.folder,
            bench.template_folders,
            bench.plain,
            bench.shelf,
            debug=bench.debug,
        )
        records = read_records(bench.writer.folder)
        found = await asyncio.to_thread(matchups_within, bench.plan, config, records, bench.writer.folder)
        await put_to_judge(panel, found.pairs, progress)
        listener.note(f"{config.key}: {found}; {panel.meter}")


async def _tell_waiting(calls: Calls, listener: Listener) -> None:
    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        listener.waiting(calls.throttle.waiting())


async def _trim() -> None:
    while True:
        await asyncio.sleep(TRIMMED_EVERY_S)
        await asyncio.to_thread(give_back)


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
