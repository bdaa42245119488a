"""A worker: an actor that runs jobs with the engine, on the core that Ray has given it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from visioneval import bounds
from visioneval.errors import AuthError, BudgetError, ClosingError, StoppedError, StorageError, VisionEvalError
from visioneval.plugins import describe_user_error
from visioneval.records.model import Record
from visioneval.records.questions import PromptQuestions, QuestionsWriter
from visioneval.records.stores.lookup import cache_folder
from visioneval.records.writer import OutputWriter
from visioneval.running.calls.settings import open_calls
from visioneval.running.cells.cell import Job
from visioneval.running.cells.services import Listener, Services, build_components, open_services
from visioneval.running.execution import Progress, prepare_process
from visioneval.running.runner import finish_job
from visioneval.scale.ray.assignment import Assignment
from visioneval.scale.ray.jobs import JobResult, UnsentFile
from visioneval.scale.ray.limits import Leases, leased, same_error
from visioneval.scale.ray.outputs import FolderOutputs, StoreOutputs
from visioneval.threads import SPARE_THREADS, Slots, Threads

CORES = 1
"""The cores of a worker."""


class NewQuestions(QuestionsWriter):
    """The questions of a run, of which a worker reports the new ones to the driver instead of writing them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sent = set(self._entries)

    def take(self) -> tuple[PromptQuestions, ...]:
        """The entries since the last call."""
        with self._lock:
            new = [entry for line, entry in self._entries.items() if line not in self._sent]
            self._sent.update(self._entries)
        return tuple(new)

    def _write(self) -> None:
        """The driver writes them."""


class Worker:
    """Runs jobs of one run. Its methods are called by the driver, several at once."""

    def __init__(self, assignment: Assignment, limits: Any, number: int) -> None:
        self._assignment = assignment
        self._leases = Leases(partial(limits.send.remote, number), partial(limits.grants.remote, number))
        self._stack = contextlib.ExitStack()
        self._contexts: dict[bool, Services] = {}
        """For jobs that no worker had begun, and, by ``True``, for those that a lost worker had."""
        self._outputs: FolderOutputs | StoreOutputs | None = None
        self._messages: list[str] = []
        self._serving: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def start(self) -> tuple[str, str | None]:
        """Opens the run. Returns the node, and why it cannot work: another version, a folder that it lacks, no key."""
        node = node_name()
        try:
            self._open()
        except VisionEvalError as error:
            return node, str(error).replace("\n", "; ")
        except Exception as error:  # whatever it is, the user must learn on which node
            return node, describe_user_error(error, first_line=True)
        return node, None

    def _open(self) -> None:
        assignment, say = self._assignment, self._messages.append
        assignment.check_node()
        for bound in bounds.ALL:
            bound.override = assignment.bounds.get(bound.setting.name)
        threads = Threads(CORES + SPARE_THREADS, thread_name_prefix="work")
        asyncio.get_running_loop().set_default_executor(threads)
        prepare_process()
        plan, settings = assignment.plan, assignment.settings
        if assignment.cache_url is not None:
            settings = replace(settings, cache=cache_folder(assignment.cache_url))
        components = build_components(plan, offline=settings.reuse.offline)
        calls = self._stack.enter_context(open_calls(plan, settings, assignment.info.payer, say))
        budget_usd = 1.0 if assignment.has_budget else None
        calls.throttle, calls.budget = leased(self._leases, plan.suite.limits, settings.max_concurrency, budget_usd)
        if assignment.runs_url is None:
            self._outputs = FolderOutputs(assignment)
        else:
            folder = tempfile.TemporaryDirectory(prefix="visioneval-", ignore_cleanup_errors=True)
            self._outputs = StoreOutputs(assignment, Path(self._stack.enter_context(folder)), say)
        writer = OutputWriter(self._outputs.folder, assignment.info)
        listener = Listener(say=say, debug=traceback.print_exception if settings.debug else lambda _: None)
        context = self._stack.enter_context(open_services(plan, components, writer, calls, listener, NewQuestions))
        context.measurements.slots = Slots(CORES)
        calls_again = replace(calls, reuse=settings.reuse.with_own)
        again = replace(context, calls=calls_again, judges=replace(context.judges, calls=calls_again))
        self._contexts = {False: context, True: again}
        self._serving = asyncio.create_task(self._leases.serve())

    async def run(self, job: Job, *, again: bool) -> JobResult:
        """Runs a job. ``again``: a lost worker had begun it, so what was paid for is in the cache."""
        context, outputs = self._contexts[again], self._outputs
        assert outputs is not None
        assert isinstance(context.questions, NewQuestions)
        progress, records, files = Progress(context.calls), list[Record](), tuple[UnsentFile, ...]()
        if self._is_stopped:
            return JobResult(failure=_failure(progress))
        try:
            async with outputs.opened(job, again=again) as (located, writer):
                listener = replace(context.listener, record=records.append)
                await finish_job(replace(context, writer=writer, listener=listener), progress, located)
                files = await asyncio.to_thread(writer.send)
        except (OSError, VisionEvalError) as error:
            records.clear()  # their files are not in the store
            progress.leave(error)
        messages, self._messages[:] = tuple(self._messages), ()
        failure = _failure(progress) if progress.left or progress.failure is not None else None
        since = context.calls.reused_since
        return JobResult(tuple(records), files, context.questions.take(), messages, since, failure)

    async def stop(self, *, all_calls: bool) -> None:
        """Starts no more generations, or no more calls of any kind."""
        self._is_stopped = True
        for context in self._contexts.values():
            if all_calls:
                context.calls.throttle.shut()
            else:
                context.calls.throttle.close()

    async def close(self) -> None:
        """Closes the run's files and the cache."""
        if self._serving is not None:
            self._serving.cancel()
        self._stack.close()


def _failure(progress: Progress) -> Callable[[], VisionEvalError]:
    """Makes the error by which the driver leaves the cells that have no record."""
    failure = progress.failure
    if failure is None:
        return partial(BudgetError if progress.out_of_budget else ClosingError, "a worker has left cells")
    if isinstance(failure, (AuthError, StorageError)):
        return same_error(failure)
    if isinstance(failure, VisionEvalError):
        return partial(StoppedError, str(failure))
    return partial(StoppedError, f"{node_name()}: {describe_user_error(failure, first_line=True)}")


def node_name() -> str:
    """What messages call this node."""
    name = socket.gethostname()
    with contextlib.suppress(ImportError):
        import ray

        if ray.is_initialized():
            return f"node {ray.util.get_node_ip_address()} ({name})"
    return f"node {name}"
