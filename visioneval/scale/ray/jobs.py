"""The jobs of a run, from which the workers take, and what they report of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from visioneval.errors import VisionEvalError
from visioneval.records.model import Record
from visioneval.records.questions import PromptQuestions
from visioneval.running.cells.cell import Job
from visioneval.running.jobs import Jobs
from visioneval.running.plan import Plan
from visioneval.suite.runs import case_groups


@dataclass(frozen=True, slots=True)
class UnsentFile:
    """A file of a cell that a worker could not send to the store."""

    test_id: str
    label: str
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a worker did of a job. The driver writes it."""

    records: tuple[Record, ...] = ()
    files: tuple[UnsentFile, ...] = ()
    """Files of the records that the store has not."""
    questions: tuple[PromptQuestions, ...] = ()
    messages: tuple[str, ...] = ()
    reused_since: str | None = None
    failure: Callable[[], VisionEvalError] | None = None
    """Why cells have no record: the fault that ends the run, the budget, or that the run is being stopped."""


@dataclass(slots=True)
class QueuedJob:
    """A job on its way to its records."""

    job: Job
    lost: int = 0
    """How many workers were lost while they did it."""


def shards(plan: Plan, jobs: Jobs) -> Iterator[list[QueuedJob]]:
    """The jobs of a plan in shards, created on demand: a worker takes one at a time.

    A shard is one job, so that no worker is idle at the end. If judges are paid, it is all jobs of a group of cases,
    because their cells may ask the same, and one process asks once.
    """
    if all(judge.is_free for judge in plan.judges.values()):
        return ([QueuedJob(job)] for job in jobs(plan))
    groups = case_groups(plan.suite.cases)
    first = {group: index for index, group in reversed(list(enumerate(map(groups.get, groups))))}
    cases = sorted(plan.suite.cases, key=lambda case: first[groups[case.id]])
    ordered = replace(plan, suite=plan.suite.model_copy(update={"cases": tuple(cases)}))
    grouped = groupby(jobs(ordered), key=lambda job: groups[job.call.case.id])
    return (list(map(QueuedJob, shard)) for _, shard in grouped)


def moved(job: Job, to: Callable[[Path], Path]) -> Job:
    """The job with other folders of existing outputs, as a worker may have another working directory, or disk."""
    regrade = tuple(replace(stored, folder=to(stored.folder)) for stored in job.regrade)
    next_turn = None if job.next_turn is None else moved(job.next_turn, to)
    return replace(job, regrade=regrade, next_turn=next_turn)


class JobQueue:
    """Hands out shards, and the jobs of lost workers again. For one event loop."""

    def __init__(self, waiting: Iterator[list[QueuedJob]]) -> None:
        self._waiting = waiting
        self._returned: deque[list[QueuedJob]] = deque()
        self._running = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    async def take(self) -> list[QueuedJob] | None:
        """The next shard; ``None`` once nothing is left or the run is being stopped.

        Waits while another worker does the last jobs, as it may be lost.
        """
        while not self._is_closed and (self.is_left() or self._running):
            if self.is_left():
                self._running += 1
                return self._returned.popleft()
            await self._changed.wait()
        return None

    def end(self, left: list[QueuedJob]) -> None:
        """A shard that was taken is done, but for the jobs that are ``left`` for one other worker."""
        self._running -= 1
        if left:
            self._returned.append(left)
        self._notify()

    def close(self) -> None:
        """Hands out nothing more."""
        self._is_closed = True
        self._notify()

    async def join(self) -> None:
        """Waits until every job is done, or, once the queue is closed, until the shards that were taken are."""
        while self._running or not (self._is_closed or not self.is_left()):
            await self._changed.wait()

    def is_left(self) -> bool:
        """Whether any job is not taken."""
        if not self._returned and (shard := next(self._waiting, None)) is not None:
            self._returned.append(shard)
        return bool(self._returned)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
