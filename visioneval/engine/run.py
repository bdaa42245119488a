"""Executes a plan: workers take jobs, finish their cells, and append the records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from visioneval.engine.calls.calls import Calls
from visioneval.engine.calls.limit_keys import RateLimitKey, generation_limit_key
from visioneval.engine.cells.cell import Job, run_job
from visioneval.engine.cells.context import RunContext, sanitizer_for
from visioneval.engine.cells.measurements import Measurements
from visioneval.engine.components import Components
from visioneval.engine.diversity import measure_diversity
from visioneval.engine.listener import Listener
from visioneval.engine.loop import run_to_end
from visioneval.engine.pairwise.session import PairwiseSession, judge_matchups, matchups_within
from visioneval.engine.shutdown import Outcome, Progress
from visioneval.expansion.file_hashes import FileHashes
from visioneval.expansion.plan import Plan
from visioneval.records.model import read_records
from visioneval.records.questions import QuestionsWriter
from visioneval.records.writer import OutputWriter, RunWriter
from visioneval.suite.entries.graders import BaseGrader
from visioneval.types import ModelRun

Jobs = Callable[[Plan], Iterator[Job]]
CELLS_PER_CALL = 2
"""Jobs in progress per concurrent generation: one is judged while the next is generated."""
STATUS_INTERVAL_S = 1.0


def every_cell(plan: Plan) -> Iterator[Job]:
    """The jobs of a new run, which generates every cell."""
    return (Job.of_turns([Job(call, call.samples) for call in turns]) for turns in plan.chains())


async def run_cells_here(context: RunContext, jobs: Jobs, progress: Progress, listener: Listener) -> bool:
    """Runs the jobs in this process. Returns whether any are left."""
    calls, plan = context.calls, context.plan
    jobs_by_key = [(limit_key, jobs(part)) for limit_key, part in by_limit_key(plan).items()]
    async with _reporting(calls, listener), asyncio.TaskGroup() as group:
        for limit_key, key_jobs in jobs_by_key:
            for _ in range(min(calls.throttle.max_calls(limit_key) * CELLS_PER_CALL, plan.cells)):
                group.create_task(_run_worker(key_jobs, progress, context, listener))
    return any(next(key_jobs, None) is not None for _, key_jobs in jobs_by_key)


RunCells = Callable[[RunContext, Jobs, Progress, Listener], Awaitable[bool]]
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
        with open_context(plan, components, writer, calls, listener) as context:
            progress.measurements = context.measurements
            is_left = await run_cells(context, jobs, progress, listener)
            progress.check()
            if not is_left and not progress.left:
                async with _reporting(calls, listener):
                    await _compare_pairs(context, progress, listener)
                progress.check()
            out_of_budget = progress.out_of_budget or calls.budget.refused > 0  # includes refused judge calls
            if calls.budget.refusal is not None:
                listener.say(calls.budget.refusal)
            return Outcome(complete=not (is_left or progress.left or out_of_budget), out_of_budget=out_of_budget)

    return run_to_end(run_all, progress, listener.say, listener.started)


@contextlib.contextmanager
def open_context(
    plan: Plan,
    components: Components,
    writer: OutputWriter,
    calls: Calls,
    listener: Listener,
    open_questions: Callable[[Path], QuestionsWriter] = QuestionsWriter,
) -> Iterator[RunContext]:
    """What the jobs of a plan share. Writes the run's new questions at the end."""
    with contextlib.closing(open_questions(writer.folder)) as questions:
        yield RunContext(
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


async def _run_worker(jobs: Iterator[Job], progress: Progress, context: RunContext, listener: Listener) -> None:
    """One worker. All workers of a rate-limit key share the iterator, so that jobs are created on demand."""
    for job in jobs:
        await finish_job(job, progress, context, listener)
        if progress.is_over:
            return


async def finish_job(job: Job, progress: Progress, context: RunContext, listener: Listener) -> None:
    """Runs a job and writes its records. Errors stop the run.

    Records are written in the event loop's thread: they are small and must not queue behind image processing. A
    failed write does not end the job, because its calls in flight are paid for.
    """
    try:
        async for record in run_job(job, context):
            try:
                context.writer.append(record)
                listener.record(record)
            except Exception as error:
                progress.leave(error)
    except Exception as error:
        progress.leave(error)


async def _compare_pairs(context: RunContext, progress: Progress, listener: Listener) -> None:
    """Runs the graders that compare pairs of images, after all cells are done."""
    for config in context.plan.suite.graders:
        if config.judges_pairs:
            listener.note(await _judge_pairs(context, config, progress))
        elif config.compares_samples and config.key in context.components.graders:
            listener.note(await measure_diversity(context, config, progress))


async def _judge_pairs(context: RunContext, config: BaseGrader, progress: Progress) -> str:
    session = PairwiseSession(
        context.plan,
        config,
        context.components,
        context.calls,
        context.writer.folder,
        context.sanitizer,
        context.image_cache,
        debug=context.debug,
    )
    records = read_records(context.writer.folder)
    matchups = await asyncio.to_thread(matchups_within, context.plan, config, records, context.writer.folder)
    await judge_matchups(session, matchups.pairs, progress)
    return f"{config.key}: {matchups}; {session.meters}"


@contextlib.asynccontextmanager
async def _reporting(calls: Calls, listener: Listener) -> AsyncIterator[None]:
    """Reports running and waiting calls at intervals."""
    background = asyncio.create_task(_report_status(calls, listener))
    try:
        yield
    finally:
        background.cancel()


async def _report_status(calls: Calls, listener: Listener) -> None:
    while True:
        await asyncio.sleep(STATUS_INTERVAL_S)
        listener.status(calls.throttle.status())
