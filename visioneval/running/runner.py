"""A run, step by step: all of its cells, then what compares cells with each other, then how it ended.

New and resumed runs, and runs that grade another, differ only in their jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from math import comb, fsum
from pathlib import Path
from typing import Literal, TypeVar, cast

from visioneval.analysis.summary.summary import Compared, Summary, summarize
from visioneval.errors import AuthError, QuotaError, StoppedError, StorageError
from visioneval.graders.base import SampleDistance, SampleGrader
from visioneval.records.between_cells import CaseDiversity, update_diversity
from visioneval.records.model import Record, RunInfo, StoppedBy
from visioneval.records.reader import read_records
from visioneval.records.runs import stopped_text
from visioneval.records.writer import RunWriter
from visioneval.running.calls.judges import Meter
from visioneval.running.calls.settings import CallSettings, open_calls
from visioneval.running.cells.cell import Job, run_job
from visioneval.running.cells.services import Listener, Services
from visioneval.running.duplicates import find_duplicates
from visioneval.running.execution import Progress, execute
from visioneval.running.jobs import Jobs, every_cell
from visioneval.running.keys import RateLimitKey, generation_limit_key
from visioneval.running.pairs import contender, judge_pairs_within
from visioneval.running.plan import Plan
from visioneval.running.prepare import PreparedRun, now
from visioneval.running.until import decide_graded, generate_until_decided
from visioneval.suite.entries.graders import CASES, PAIR, SAMPLES, BaseGrader, GraderKind
from visioneval.threads import processors
from visioneval.types import ModelRun, Output

DIGITS = 4


@dataclass(slots=True)
class SampleGroup:
    """The images of one case on one model run, in the order of the samples, and the distances of their pairs."""

    case: str
    label: str
    outputs: list[Output] = field(default_factory=list)
    distances: list[SampleDistance] = field(default_factory=list)
    error: str | None = None

    @property
    def pairs(self) -> int:
        """The number of pairs of its images."""
        return comb(len(self.outputs), 2)

    @property
    def is_done(self) -> bool:
        """Whether it has pairs and all of them are measured, or one of them could not be."""
        return self.pairs > 0 and (self.error is not None or len(self.distances) == self.pairs)

    def line(self, grader: str) -> CaseDiversity:
        """The mean over the pairs, once all are measured."""

        def mean(values: Iterable[float]) -> float | None:
            return None if self.error else round(fsum(values) / len(self.distances), DIGITS)

        return CaseDiversity(
            grader=grader,
            test_id=self.case,
            model_label=self.label,
            outputs=tuple(output.sha256 for output in self.outputs),
            distance=mean(pair.distance for pair in self.distances),
            delta_e=mean(pair.delta_e for pair in self.distances),
            error=self.error,
        )


async def measure_diversity(services: Services, config: BaseGrader, progress: Progress) -> str | None:
    """Measures all pairs of samples of the plan, and stores the cases whose pairs are all measured.

    Returns a note for the user, or ``None`` if it is for no case. An early end is reported in ``progress``.
    """
    if config.key not in services.components.graders:
        return None
    folder, meter = services.writer.folder, Meter()
    grader = cast("SampleGrader", services.components.graders[config.key])
    groups = await asyncio.to_thread(sample_groups, services.plan, config, read_records(folder), folder)
    pairs = ((group, pair) for group in groups for pair in combinations(group.outputs, 2))

    async def measure(item: tuple[SampleGroup, tuple[Output, Output]]) -> None:
        group, (first, second) = item
        digests = {image.path: image.sha256 for image in (first, second)}
        distance = SampleDistance(distance=0.0, delta_e=0.0)
        try:
            if first.sha256 != second.sha256:
                work = grader.measure(first, second)
                distance = await services.measurements(work, hash_of=digests.__getitem__, meter=meter)
            group.distances.append(distance)
        except StoppedError:  # not measured, which is no fault of the images
            raise
        except Exception as error:
            _, message = services.failure_of(error)
            group.error = group.error or message

    await progress.work_through(pairs, processors(), measure)
    progress.left += sum(1 for _ in pairs)
    done = [group for group in groups if group.is_done]
    await asyncio.to_thread(update_diversity, folder, [group.line(config.key) for group in done])
    measured, too_few = sum(group.error is None for group in done), sum(not group.pairs for group in groups)
    few = f", {too_few} with fewer than two images" if too_few else ""
    cached = f", {meter.cached_measurements} of them read from the cache" if meter.cached_measurements else ""
    compared = f"{measured} of {len(groups)} sets of samples compared{few}"
    return f"{config.key}: {compared}; {meter.measurements} pairs measured{cached}"


def sample_groups(plan: Plan, config: BaseGrader, records: Iterable[Record], folder: Path) -> list[SampleGroup]:
    """The samples of each case and model run of the plan that the grader is for, also where there are none."""
    contenders = {record.cell: contender(record, folder, trusted=False) for record in records}
    samples: dict[tuple[str, str], set[int]] = {}
    for call in plan.calls():
        if config.is_for(call.case):
            samples.setdefault((call.case.id, call.run.label), set()).update(call.samples)
    return [
        SampleGroup(
            case, label, [image.output for at in sorted(numbers) if (image := contenders.get((case, label, at)))]
        )
        for (case, label), numbers in samples.items()
    ]


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
            work = partial(run_all, jobs=prepared.jobs, run_cells=run_cells, writer=writer)
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
    services: Services,
    progress: Progress,
    *,
    jobs: Jobs = every_cell,
    run_cells: RunCells = run_cells_here,
    writer: RunWriter | None = None,
) -> bool:
    """Does the jobs of a run, and if they are all done, what compares cells. Returns whether any jobs are left.

    The run of a ``writer`` with ``--until-decided`` gets further samples in between. Its gates, and those of a run that
    grades it, are then decided.
    """
    is_left = await run_cells(services, jobs, progress)
    progress.check()
    if writer is not None and writer.info.samples_itself and not is_left:
        services, is_left = await generate_until_decided(services, progress, writer, run_cells)
    elif writer is not None and not is_left:
        await decide_graded(writer)
    if not is_left and not progress.left:
        async with _reporting(services):
            await compare_outputs(services, progress)
    if services.calls.budget.refusal is not None:
        services.listener.say(services.calls.budget.refusal)
    return is_left


WORK: Mapping[GraderKind, Callable[[Services, BaseGrader, Progress], Awaitable[str | None]]] = {
    PAIR: judge_pairs_within,
    SAMPLES: measure_diversity,
    CASES: find_duplicates,
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
