"""Executes a plan: workers take jobs, finish their cells, and append the records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from visioneval.records.model import read_records
from visioneval.records.questions import QuestionsWriter
from visioneval.records.writer import OutputWriter, RunWriter
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.limiters import RateLimitKey, generation_limit_key
from visioneval.running.cells.cell import Job, run_job
from visioneval.running.cells.measurements import Measurements
from visioneval.running.cells.services import Components, Services
from visioneval.running.interrupts import Listener, Outcome, Progress, run_to_end
from visioneval.running.keys import FileHashes
from visioneval.running.memory import TRIM_INTERVAL_S, release_memory
from visioneval.running.pairs import PairwiseSession, judge_matchups, matchups_within
from visioneval.running.plan import Plan
from visioneval.running.samples import measure_diversity
from visioneval.running.sanitize import sanitizer_for
from visioneval.suite.entries.graders import BaseGrader
from visioneval.types import ModelRun

Jobs = Callable[[Plan], Iterator[Job]]
CELLS_PER_CALL = 2
"""Jobs in progress per concurrent generation: one is judged while the next is generated."""
STATUS_INTERVAL_S = 1.0


def every_cell(plan: Plan) -> Iterator[Job]:
    """The jobs of a new run, which generates every cell."""
    return (Job.of_turns([Job(call, call.samples) for call in turns]) for turns in plan.chains())


async def run_cells_here(services: Services, jobs: Jobs, progress: Progress, listener: Listener) -> bool:
    """Runs the jobs in this process. Returns whether any are left."""
    calls, plan = services.calls, services.plan
    jobs_by_key = [(limit_key, jobs(part)) for limit_key, part in by_limit_key(plan).items()]
    async with _reporting(calls, listener), asyncio.TaskGroup() as group:
        for limit_key, key_jobs in jobs_by_key:
            for _ in range(min(calls.throttle.max_calls(limit_key) * CELLS_PER_CALL, plan.cells)):
                group.create_task(_run_worker(key_jobs, progress, services, listener))
    return any(next(key_jobs, None) is not None for _, key_jobs in jobs_by_key)


RunCells = Callable[[Services, Jobs, Progress, Listener], Awaitable[bool]]
"""Runs the jobs of a run and appends their records, here or elsewhere. Returns whether any are left."""


def execute(
    plan: Plan,
    components: Components,
    writer: RunWriter,
    calls: Calls,
    listener: Listener,
    jobs: Jobs = every_cell,
    run_cells: RunCells = run_cells_here,
) -> Outcome:
    """Runs every job of the plan, by ``run_cells``, then what compares cells with each other.

    The first interrupt (Ctrl-C) lets running calls finish, the second cancels them. Raises ``StorageError`` if the
    run cannot be written, and ``AuthError`` if a provider refuses an API key, after the calls in flight have ended.
    """
    progress = Progress(calls)

    async def run_all() -> Outcome:
        with open_services(plan, components, writer, calls, listener) as services:
            progress.measurements = services.measurements
            is_left = await run_cells(services, jobs, progress, listener)
            progress.check()
            if not is_left and not progress.left:
                async with _reporting(calls, listener):
                    await _compare_pairs(services, progress, listener)
                progress.check()
            out_of_budget = progress.out_of_budget or calls.budget.refused > 0  # includes refused judge calls
            if calls.budget.refusal is not None:
                listener.say(calls.budget.refusal)
            return Outcome(complete=not (is_left or progress.left or out_of_budget), out_of_budget=out_of_budget)

    return run_to_end(run_all, progress, listener.say, listener.started)


@contextlib.contextmanager
def open_services(
    plan: Plan,
    components: Components,
    writer: OutputWriter,
    calls: Calls,
    listener: Listener,
    open_questions: Callable[[Path], QuestionsWriter] = QuestionsWriter,
) -> Iterator[Services]:
    """What the jobs of a plan share. Writes the run's new questions at the end."""
    with contextlib.closing(open_questions(writer.folder)) as questions:
        yield Services(
            plan,
            components,
            calls,
            writer,
            FileHashes(plan.folder),
            sanitizer_for(plan),
            questions,
            measurements=Measurements(calls.cache, reuses=calls.reuse.measurements, warn=listener.say),
            debug=listener.debug,
        )


def by_limit_key(plan: Plan) -> dict[RateLimitKey, Plan]:
    """Splits the plan by rate-limit key, so that a slow model does not delay a fast one."""
    runs_by_key: dict[RateLimitKey, tuple[ModelRun, ...]] = {}
    for run in plan.runs:
        limit_key = generation_limit_key(run.provider, run.params)
        runs_by_key[limit_key] = (*runs_by_key.get(limit_key, ()), run)
    return {limit_key: replace(plan, runs=runs) for limit_key, runs in runs_by_key.items()}


async def _run_worker(jobs: Iterator[Job], progress: Progress, services: Services, listener: Listener) -> None:
    """One worker. All workers of a rate-limit key share the iterator, so that jobs are created on demand."""
    for job in jobs:
        await finish_job(job, progress, services, listener)
        if progress.is_over:
            return


async def finish_job(job: Job, progress: Progress, services: Services, listener: Listener) -> None:
    """Runs a job and writes its records. Errors stop the run.

    Records are written in the event loop's thread: they are small and must not queue behind image processing. A
    failed write does not end the job, because its calls in flight are paid for.
    """
    try:
        async for record in run_job(job, services):
            try:
                services.writer.append(record)
                listener.record(record)
            except Exception as error:
                progress.leave(error)
    except Exception as error:
        progress.leave(error)


async def _compare_pairs(services: Services, progress: Progress, listener: Listener) -> None:
    """Runs the graders that compare pairs of images, after all cells are done."""
    for config in services.plan.suite.graders:
        if config.judges_pairs:
            listener.note(await _judge_pairs(services, config, progress))
        elif config.compares_samples and config.key in services.components.graders:
            listener.note(await measure_diversity(services, config, progress))


async def _judge_pairs(services: Services, config: BaseGrader, progress: Progress) -> str:
    session = PairwiseSession(
        services.plan,
        config,
        services.components,
        services.calls,
        services.writer.folder,
        services.sanitizer,
        services.image_cache,
        debug=services.debug,
    )
    records = read_records(services.writer.folder)
    matchups = await asyncio.to_thread(matchups_within, services.plan, config, records, services.writer.folder)
    await judge_matchups(session, matchups.pairs, progress)
    return f"{config.key}: {matchups}; {session.meters}"


@contextlib.asynccontextmanager
async def _reporting(calls: Calls, listener: Listener) -> AsyncIterator[None]:
    """Reports running and waiting calls, and returns free memory to the operating system, at intervals."""
    background = [asyncio.create_task(coroutine) for coroutine in (_report_status(calls, listener), trim_memory())]
    try:
        yield
    finally:
        for task in background:
            task.cancel()


async def _report_status(calls: Calls, listener: Listener) -> None:
    while True:
        await asyncio.sleep(STATUS_INTERVAL_S)
        listener.status(calls.throttle.status())


async def trim_memory() -> None:
    """Returns free memory to the operating system at intervals, until it is cancelled."""
    while True:
        await asyncio.sleep(TRIM_INTERVAL_S)
        await asyncio.to_thread(release_memory)
