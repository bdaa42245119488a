"""A run, step by step: all of its cells, then what compares cells with each other, then how it ended.

New and resumed runs, and runs that grade another, differ only in their jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeVar

from visioneval.analysis.summary.compared import Compared
from visioneval.analysis.summary.summary import Summary, summarize
from visioneval.errors import AuthError, QuotaError, StorageError
from visioneval.records.model import RunInfo, StoppedBy
from visioneval.records.reader import read_records
from visioneval.records.runs import stopped_text
from visioneval.running.calls.limiters import RateLimitKey, generation_limit_key
from visioneval.running.calls.settings import CallSettings, open_calls
from visioneval.running.cells.cell import Job, run_job
from visioneval.running.cells.services import Listener, Services
from visioneval.running.execution import Progress, execute
from visioneval.running.jobs import Jobs, every_cell
from visioneval.running.pairs import judge_pairs_within
from visioneval.running.plan import Plan
from visioneval.running.prepare import PreparedRun, now
from visioneval.running.samples import measure_diversity
from visioneval.suite.entries.graders import BaseGrader
from visioneval.suite.kinds import PAIR, SAMPLES, GraderKind
from visioneval.types import ModelRun

T = TypeVar("T")
RunCells = Callable[[Services, Jobs, Progress], Awaitable[bool]]
"""Does the jobs of a run and appends their records, here or elsewhere. Returns whether any are left."""
CELLS_PER_CALL = 2
"""Jobs in progress per concurrent generation: one is judged while the next is generated."""
STATUS_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class EndedRun:
    """How a run ended: its ``run.json``, the message of a refused API key or a spent quota, and what was spent."""

    info: RunInfo
    error: str | None
    spent_usd: float


async def run_cells_here(services: Services, jobs: Jobs, progress: Progress) -> bool:
    """Does the jobs in this process, those of each model by workers of its own. Returns whether any are left."""
    queues = {limit_key: jobs(part) for limit_key, part in by_limit_key(services.plan).items()}
    await work_by_model(services, progress, queues, partial(finish_job, services, progress))
    return any(next(queue, None) is not None for queue in queues.values())


async def work_by_model(
    services: Services,
    progress: Progress,
    queues: Mapping[RateLimitKey, Iterator[T]],
    do: Callable[[T], Awaitable[None]],
) -> None:
    """Works through the queue of each model by workers of its own, so that a slow model does not delay a fast one."""
    async with _reporting(services), asyncio.TaskGroup() as group:
        for limit_key, queue in queues.items():
            workers = min(services.calls.throttle.max_calls(limit_key) * CELLS_PER_CALL, services.plan.cells)
            group.create_task(progress.work_through(queue, workers, do))


async def finish_job(services: Services, progress: Progress, job: Job) -> None:
    """Does a job and writes its records. Errors stop the run.

    Records are written in the event loop's thread: they are small and must not queue behind image processing. A
    failed write does not end the job, because its calls in flight are paid for.
    """
    try:
        async for record in run_job(job, services):
            try:
                services.writer.append(record)
                services.listener.record(record)
            except Exception as error:
                progress.leave(error)
    except Exception as error:
        progress.leave(error)


def run_prepared(
    prepared: PreparedRun,
    settings: CallSettings,
    listener: Listener,
    *,
    spent_usd: float = 0.0,
    run_cells: RunCells = run_cells_here,
) -> EndedRun:
    """Does all cells of a run, then what compares cells. Whatever happens, ``run.json`` says how the run ended.

    The first interrupt (Ctrl-C) lets running calls finish, the second cancels them. ``spent_usd`` is what the command
    has spent of the budget in ``settings``. Raises ``StorageError`` if the run cannot be written.
    """
    writer, error = prepared.writer, None
    writer.watch(listener.say)
    try:
        with open_calls(prepared.plan, settings, writer.info.payer, listener.say, spent_usd=spent_usd) as calls:
            work = partial(run_all, jobs=prepared.jobs, run_cells=run_cells)
            outcome = execute(work, prepared.plan, prepared.components, writer, calls, listener)
        stopped_by: StoppedBy | None = "budget" if outcome.out_of_budget else None
    except AuthError as refusal:
        error, stopped_by = str(refusal), "quota" if isinstance(refusal, QuotaError) else "refused_key"
    except BaseException:
        with contextlib.suppress(StorageError):
            writer.finish("interrupted", now())
        listener.say(stopped_text(writer.folder, prepared.resume_hint))
        raise
    is_complete = error is None and outcome.complete
    state: Literal["complete", "interrupted"] = "complete" if is_complete else "interrupted"
    info = writer.finish(state, now(), stopped_by=stopped_by, reused_since=calls.reused_since)
    return EndedRun(info, error, calls.budget.spent)


async def run_all(
    services: Services, progress: Progress, *, jobs: Jobs = every_cell, run_cells: RunCells = run_cells_here
) -> bool:
    """Does the jobs of a run, and if they are all done, what compares cells. Returns whether any jobs are left."""
    is_left = await run_cells(services, jobs, progress)
    progress.check()
    if not is_left and not progress.left:
        async with _reporting(services):
            await compare_outputs(services, progress)
    if services.calls.budget.refusal is not None:
        services.listener.say(services.calls.budget.refusal)
    return is_left


WORK: Mapping[GraderKind, Callable[[Services, BaseGrader, Progress], Awaitable[str | None]]] = {
    PAIR: judge_pairs_within,
    SAMPLES: measure_diversity,
}
"""Makes and records the comparisons that are not recorded yet, and returns a note for the user, if any. An early end is
in the ``Progress``."""


async def compare_outputs(services: Services, progress: Progress) -> None:
    """Does the work of all graders of a run that compare outputs with each other, in suite order."""
    for grader in services.plan.suite.graders:
        if not grader.kind.grades_cells and (note := await WORK[grader.kind](services, grader, progress)):
            services.listener.note(note)


def summarize_run(prepared: PreparedRun, info: RunInfo) -> Summary:
    """The summary of a run that has ended, which decides its exit code. It is also written into the run."""
    folder = prepared.writer.folder
    summary = summarize(info, read_records(folder), Compared.read(folder, info))
    prepared.writer.write_summary(summary)
    return summary


def by_limit_key(plan: Plan) -> dict[RateLimitKey, Plan]:
    """Splits the plan by rate-limit key."""
    runs_by_key: dict[RateLimitKey, tuple[ModelRun, ...]] = {}
    for run in plan.runs:
        limit_key = generation_limit_key(run.provider, run.params)
        runs_by_key[limit_key] = (*runs_by_key.get(limit_key, ()), run)
    return {limit_key: replace(plan, runs=runs) for limit_key, runs in runs_by_key.items()}


@contextlib.asynccontextmanager
async def _reporting(services: Services) -> AsyncIterator[None]:
    """Reports running and waiting calls at intervals."""

    async def report() -> None:
        while True:
            await asyncio.sleep(STATUS_INTERVAL_S)
            services.listener.status(services.calls.throttle.status())

    background = asyncio.create_task(report())
    try:
        yield
    finally:
        background.cancel()
