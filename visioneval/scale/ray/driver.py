"""The cells of one run on the workers of a cluster: the driver's loop."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from visioneval.errors import StoppedError, UsageError
from visioneval.records.stores.lookup import fetch_outputs
from visioneval.running.calls.prices import paid_configs
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.services import Services
from visioneval.running.execution import Progress
from visioneval.running.jobs import Jobs
from visioneval.running.runner import CELLS_PER_CALL, STATUS_INTERVAL_S
from visioneval.scale.ray.jobs import JobQueue, JobResult, QueuedJob, assign, moved, shards, written_probes
from visioneval.scale.ray.limits import LimitsStatus, SharedLimits
from visioneval.scale.ray.worker import CORES, Worker

START_S = 180.0
"""How long a run waits for a first worker to start; a busy node needs a minute to import all that a worker uses."""
LATE_S = 10.0
"""How long it then waits for the others before it begins without them."""
NEW_WORKER_S = 60.0
"""How long a run waits for a new worker after it has lost all."""
CLOSE_S = 5.0
"""How long a run waits for its workers to close their files."""
MAX_LOST = 3
"""A job that has lost so many workers is given up, as it may be what ends them."""
WINDOW = 2
"""Jobs that a worker has at once if no calls are paid: one waits until the other is done."""


@dataclass(slots=True)
class WorkerHandle:
    """The driver's view of a worker."""

    number: int
    actor: Any
    room: asyncio.Semaphore
    """For the jobs that it does at once."""
    node: str = "a node that did not answer"
    is_ready: bool = False
    is_lost: bool = False

    async def start(self) -> str | None:
        """Waits until the worker has started. Returns why it cannot work, if so. Raises ``RayActorError``."""
        try:
            self.node, problem = await self.actor.start.remote()
        except RayActorError as error:
            text = str(error)
            if "creation task" in text or "failed to import" in text:  # its class cannot be loaded or built
                return f"a worker cannot start: {_last_line(error)}"
            raise
        self.is_ready = problem is None
        return None if problem is None else f"{self.node}: {problem}"


class DistributedCells:
    """Runs the jobs of one run on ``count`` workers, and writes what they report."""

    def __init__(self, context: Services, jobs: Jobs, progress: Progress, settings: CallSettings, count: int) -> None:
        calls, plan = context.calls, context.plan
        self._context, self._progress, self._listener = context, progress, context.listener
        self._settings = settings
        self._count = count
        self._queue = JobQueue(shards(plan, jobs))
        self._window = window(context, count)
        self._workers: list[WorkerHandle] = []
        self._room = min(count, max(1, int(ray.cluster_resources().get("CPU", 0) // CORES)))
        """How many workers the cluster has room for now; it may grow."""
        self._started, self._may_begin = asyncio.Semaphore(0), asyncio.Event()
        """A release for each worker that has started, and whether they may begin."""
        self._limits = _actor(SharedLimits, cores=0, concurrency=2 * count + 100, is_here=True).remote(
            dict(plan.suite.limits), settings.max_concurrency, calls.budget.limit_usd, calls.budget.spent
        )
        self._assignment: Any = None

    async def run(self) -> bool:
        """Runs all jobs. Returns whether any are left.

        Raises ``UsageError`` before anything is paid if no worker starts, or if one cannot work.
        """
        background = []
        try:
            with written_probes(self._context, self._settings) as probes:
                self._assignment = ray.put(assign(self._context, self._settings, probes))
                background = [asyncio.create_task(work) for work in (self._forward_stop(), self._watch())]
                async with asyncio.TaskGroup() as group:
                    slots = [group.create_task(self._fill_slot()) for _ in range(self._count)]
                    slots.append(group.create_task(self._begin()))
                    await self._queue.join()
                    for slot in slots:
                        slot.cancel()
            closing = [worker.actor.close.remote() for worker in self._workers if worker.is_ready]
            if closing:
                await asyncio.to_thread(ray.wait, closing, num_returns=len(closing), timeout=CLOSE_S)
            is_left = self._queue.is_left()
            compares_cells = any(not grader.kind.grades_cells for grader in self._context.plan.suite.graders)
            if compares_cells and not is_left and not self._progress.left:
                await asyncio.to_thread(fetch_outputs, self._context.writer.folder)
            return is_left
        finally:
            for task in background:
                task.cancel()
            await asyncio.shield(self._end())

    async def _begin(self) -> None:
        """Lets the workers begin once all that the cluster has room for have started, or without the late ones.

        Raises ``UsageError`` if none has in time.
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._started.acquire(), START_S)
            async with asyncio.timeout(LATE_S):
                for _ in range(self._room - 1):
                    await self._started.acquire()
        if not any(worker.is_ready for worker in self._workers):
            total, free = ray.cluster_resources().get("CPU", 0), ray.available_resources().get("CPU", 0)
            raise UsageError(
                f"no worker has started within {START_S:g} s: of the cluster's {total:g} cores, {free:g} are free"
            )
        self._may_begin.set()

    async def _fill_slot(self) -> None:
        """Keeps one worker at work: a lost one is replaced, as soon as the cluster has room for another."""
        while True:
            number = len(self._workers) + 1
            actor = _actor(Worker, cores=CORES, concurrency=self._window + 16)
            actor = actor.remote(self._assignment, self._limits, number)
            worker = WorkerHandle(number, actor, asyncio.Semaphore(self._window))
            self._workers.append(worker)
            try:
                problem = await worker.start()
            except RayActorError as error:
                await self._lose(worker, error)
                await asyncio.sleep(STATUS_INTERVAL_S)
                continue
            if problem is not None:
                if not self._may_begin.is_set():
                    raise UsageError(problem)
                self._listener.say(f"{problem}; the run continues without it")
                ray.kill(worker.actor)
                return
            self._started.release()
            await self._may_begin.wait()
            await self._feed(worker)

    async def _feed(self, worker: WorkerHandle) -> None:
        """Gives a worker shards while it has room, until it is lost."""
        async with asyncio.TaskGroup() as group:
            while True:
                async with worker.room:  # after the jobs of earlier shards
                    shard = await self._queue.take()
                if shard is None:
                    await asyncio.Event().wait()  # until the run ends
                elif worker.is_lost:
                    self._queue.end(shard)
                    return
                else:
                    jobs = [group.create_task(self._run_job(worker, job)) for job in shard]
                    group.create_task(self._end_shard(shard, jobs))
                    await asyncio.sleep(0)  # every worker gets its first shard before one gets its second

    async def _end_shard(self, shard: list[QueuedJob], jobs: list[asyncio.Task[bool]]) -> None:
        """The jobs that a lost worker leaves go back to the queue together, so that one other does them."""
        are_done = await asyncio.gather(*jobs)
        self._queue.end([job for job, is_done in zip(shard, are_done, strict=True) if not is_done])

    async def _run_job(self, worker: WorkerHandle, job: QueuedJob) -> bool:
        """Has a worker do a job. Returns whether it needs no other: ``False`` if the worker was lost."""
        try:
            async with worker.room:
                if worker.is_lost:
                    return False
                sent = moved(job.job, Path.absolute)  # a worker may have another working directory
                self._collect(await worker.actor.run.remote(sent, again=job.lost > 0))
        except RayActorError as error:
            await self._lose(worker, error)
            job.lost += 1
            if job.lost < MAX_LOST:
                return False
            self._progress.left += 1
            self._listener.say(f"{job.job.call.case.id}: given up: {MAX_LOST} workers died while running it")
        except RayError as error:
            self._progress.leave(StoppedError(f"{worker.node}: {_first_line(error)}"))
        return True

    def _collect(self, result: JobResult) -> None:
        """Writes what a worker did. A failed write does not end the run's other jobs, which are paid for."""
        context, calls = self._context, self._context.calls
        for message in result.messages:
            self._listener.say(message)
        calls.reused_since = min(filter(None, (calls.reused_since, result.reused_since)), default=None)
        try:
            for entry in result.questions:
                context.questions.add(entry)
            for file in result.files:
                context.writer.save(file.test_id, file.label, file.name, file.data)
            for record in result.records:
                context.writer.append(record)
                self._listener.record(record)
        except Exception as error:
            self._progress.leave(error)
        if result.failure is not None:
            self._progress.leave(result.failure())

    async def _lose(self, worker: WorkerHandle, error: RayActorError) -> None:
        """A worker is gone: its calls in flight count as paid, and its jobs go to others."""
        if worker.is_lost:
            return
        worker.is_lost = True
        if worker.is_ready:
            self._listener.say(
                f"lost the worker on {worker.node}: other workers rerun its unfinished cells ({_last_line(error)})"
            )
        worker.is_ready = False
        ray.kill(worker.actor)
        try:
            await self._limits.lose.remote(worker.number)
        except RayError as error:
            self._lose_limits(error)

    def _lose_limits(self, error: RayError) -> None:
        self._progress.leave(
            StoppedError(f"lost the process that holds the rate limits of this run: {_first_line(error)}")
        )

    async def _forward_stop(self) -> None:
        """Hands a stop of the run on to the workers, and a fault that comes after it."""
        await self._progress.stopping.wait()
        self._queue.close()
        all_calls = None
        while all_calls is not True:
            if all_calls != (is_fault := self._progress.failure is not None):
                all_calls = is_fault
                for actor in (self._limits, *(worker.actor for worker in self._workers if worker.is_ready)):
                    (actor.close if actor is self._limits else actor.stop).remote(all_calls=all_calls)
            await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        """Reports running and waiting calls, and stops a run that has no workers any more."""
        loop = asyncio.get_running_loop()
        alive_at = loop.time()
        while True:
            await asyncio.sleep(STATUS_INTERVAL_S)
            try:
                status: LimitsStatus = await self._limits.status.remote()
            except RayError as error:
                self._lose_limits(error)
                return
            self._listener.status(list(status.calls))
            if not self._may_begin.is_set() or any(worker.is_ready for worker in self._workers):
                alive_at = loop.time()
            elif loop.time() - alive_at > NEW_WORKER_S:
                message = f"no worker is left, and none has started within {NEW_WORKER_S:g} s"
                self._progress.leave(StoppedError(message))
                return

    async def _end(self) -> None:
        """Takes over what the workers spent, and ends all actors."""
        budget = self._context.calls.budget
        with contextlib.suppress(RayError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                status: LimitsStatus = await self._limits.status.remote()
                budget.spent, budget.refused, budget.refusal = status.spent, status.refused, status.refusal
        for actor in (*(worker.actor for worker in self._workers if not worker.is_lost), self._limits):
            ray.kill(actor)


def window(context: Services, workers: int) -> int:
    """How many jobs a worker has at once: with paid calls, as many as keep the limits of all models busy."""
    plan, throttle = context.plan, context.calls.throttle
    paid = sum(throttle.max_calls(limit_key) for limit_key in paid_configs(plan) if limit_key.kind == "generate")
    judged = max((throttle.max_calls(key) for key in paid_configs(plan) if key.kind == "judge"), default=0)
    return max(WINDOW, -(-max(paid, judged) * CELLS_PER_CALL // workers))


def _actor(cls: type, *, cores: int, concurrency: int, is_here: bool = False) -> Any:
    """A class as an actor that no failure restarts. ``is_here``: on the driver's node, with which the run ends."""
    options: dict[str, Any] = {"num_cpus": cores, "max_restarts": 0, "max_concurrency": concurrency}
    options["scheduling_strategy"] = (
        NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False) if is_here else "SPREAD"
    )
    return ray.remote(cls).options(**options)


def _last_line(error: RayActorError) -> str:
    """The cause that Ray gives, without the general advice that follows it."""
    text = str(error)
    last = next((line for line in reversed(text.splitlines()) if line.strip()), text)
    return last.partition(" Some common causes")[0].partition(" There are some potential root causes")[0].strip()


def _first_line(error: RayError) -> str:
    cause = getattr(error, "cause", None)
    lines = str(cause or error).strip().splitlines()
    return f"{type(cause or error).__name__}: {lines[0] if lines else ''}"
