"""A worker: an actor that runs jobs with the engine, on the core that Ray has given it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from visioneval import bounds
from visioneval.errors import AuthError, QuotaError, StorageError, UsageError, VisionEvalError
from visioneval.extras import install_command
from visioneval.records.model import Record
from visioneval.records.questions import PromptQuestions, QuestionsWriter
from visioneval.records.stores.locations import cache_folder
from visioneval.records.writer import OutputWriter
from visioneval.registry import describe_user_error
from visioneval.running.calls.settings import open_calls
from visioneval.running.cells.cell import Job
from visioneval.running.cells.services import Listener, Services, build_components, open_services
from visioneval.running.execution import Progress
from visioneval.running.process import prepare_process
from visioneval.running.runner import finish_job
from visioneval.scale.ray.leases import Leases, leased
from visioneval.scale.ray.messages import (
    Assignment,
    FailureKind,
    Grant,
    JobResult,
    LeaseEnd,
    LeaseRequest,
    Probe,
    UnsentFile,
    WorkerReport,
)
from visioneval.scale.ray.outputs import FolderOutputs, StoreOutputs
from visioneval.threads import SPARE_THREADS, Slots, Threads
from visioneval.version import __version__

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


@dataclass(frozen=True, slots=True)
class LimitsActor:
    """The shared limits, as an actor. ``worker`` is the number of the worker that calls."""

    actor: Any
    worker: int

    def send(self, requests: Sequence[LeaseRequest], ends: Sequence[LeaseEnd]) -> Awaitable[None]:
        """Sends new requests, and how earlier calls ended."""
        sent: Awaitable[None] = self.actor.send.remote(self.worker, requests, ends)
        return sent

    def grants(self) -> Awaitable[list[Grant]]:
        """Waits for grants."""
        grants: Awaitable[list[Grant]] = self.actor.grants.remote(self.worker)
        return grants


@dataclass(slots=True)
class _OpenRun:
    """A run that the worker has opened. ``again`` is the context of jobs that a lost worker had begun."""

    first: Services
    again: Services
    questions: NewQuestions
    outputs: FolderOutputs | StoreOutputs
    messages: list[str] = field(default_factory=list)

    def take_messages(self) -> tuple[str, ...]:
        taken = tuple(self.messages)
        self.messages.clear()
        return taken


class Worker:
    """Runs jobs of one run. Its methods are called by the driver, several at once."""

    def __init__(self, assignment: Assignment, limits_actor: Any, number: int) -> None:
        self._assignment = assignment
        self._client = LimitsActor(limits_actor, number)
        self._stack = contextlib.ExitStack()
        self._run: _OpenRun | None = None
        self._leases: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def start(self) -> WorkerReport:
        """Opens the run. Reports a node that cannot work: another version, a folder that it does not see, no key."""
        node = node_name()
        try:
            self._open()
        except VisionEvalError as error:
            return WorkerReport(node, str(error).replace("\n", "; "))
        except Exception as error:  # whatever it is, the user must learn on which node
            return WorkerReport(node, describe_user_error(error, first_line=True))
        return WorkerReport(node)

    def _open(self) -> None:
        assignment = self._assignment
        check_node(assignment)
        for bound in bounds.ALL:
            bound.override = assignment.bounds.get(bound.setting.name)
        threads = Threads(CORES + SPARE_THREADS, thread_name_prefix="work")
        asyncio.get_running_loop().set_default_executor(threads)
        prepare_process()
        plan, settings, messages = assignment.plan, assignment.settings, list[str]()
        if assignment.cache_url is not None:
            settings = replace(settings, cache=cache_folder(assignment.cache_url))
        leases = Leases(self._client)
        components = build_components(plan, offline=settings.reuse.offline)
        calls = self._stack.enter_context(open_calls(plan, settings, assignment.info.payer, messages.append))
        calls.throttle, calls.budget = leased(
            leases, plan.suite.limits, settings.max_concurrency, 1.0 if assignment.has_budget else None
        )
        outputs = self._open_outputs(messages.append)
        context = self._stack.enter_context(
            open_services(
                plan,
                components,
                OutputWriter(outputs.folder, assignment.info),
                calls,
                Listener(say=messages.append, debug=_print_error if settings.debug else lambda _: None),
                NewQuestions,
            )
        )
        context.measurements.slots = Slots(CORES)
        assert isinstance(context.questions, NewQuestions)
        calls_again = replace(calls, reuse=settings.reuse.with_own)
        again = replace(context, calls=calls_again, judges=replace(context.judges, calls=calls_again))
        self._run = _OpenRun(context, again, context.questions, outputs, messages)
        self._leases = asyncio.create_task(leases.serve())

    def _open_outputs(self, say: Callable[[str], None]) -> FolderOutputs | StoreOutputs:
        assignment = self._assignment
        if assignment.runs_url is None:
            return FolderOutputs(assignment)
        folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix="visioneval-", ignore_cleanup_errors=True)
        )
        return StoreOutputs(assignment.runs_url, assignment, Path(folder), say)

    async def run(self, job: Job, *, again: bool) -> JobResult:
        """Runs a job. ``again``: a lost worker had begun it, so what was paid for is in the cache."""
        run = self._run
        assert run is not None
        if self._is_stopped:
            return JobResult(left=1)
        context = run.again if again else run.first
        records: list[Record] = []
        files: tuple[UnsentFile, ...] = ()
        progress = Progress(context.calls)
        try:
            async with run.outputs.opened(job, again=again) as opened:
                listener = replace(context.listener, record=records.append)
                job_context = replace(context, writer=opened.writer, listener=listener)
                await finish_job(job_context, progress, opened.job)
                files = await opened.send()
        except (OSError, VisionEvalError) as error:
            records.clear()  # their files are not in the store
            progress.leave(error)
        failure = progress.failure
        return JobResult(
            tuple(records),
            files,
            run.questions.take(),
            run.take_messages(),
            context.calls.reused_since,
            progress.left,
            progress.out_of_budget,
            None if failure is None else _failure_text(failure),
            _failure_kind(failure),
        )

    async def stop(self, *, all_calls: bool) -> None:
        """Starts no more generations, or no more calls of any kind."""
        self._is_stopped = True
        if self._run is not None:
            throttle = self._run.first.calls.throttle
            if all_calls:
                throttle.shut()
            else:
                throttle.close()

    async def close(self) -> None:
        """Closes the run's files and the cache."""
        if self._leases is not None:
            self._leases.cancel()
        self._stack.close()


def _failure_kind(failure: Exception | None) -> FailureKind:
    kinds: tuple[tuple[FailureKind, type[Exception]], ...] = (
        ("quota", QuotaError), ("auth", AuthError), ("storage", StorageError)
    )  # fmt: skip
    return next((kind for kind, error in kinds if isinstance(failure, error)), "other")


def _failure_text(failure: Exception) -> str:
    if isinstance(failure, VisionEvalError):
        return str(failure)
    return f"{node_name()}: {describe_user_error(failure, first_line=True)}"


def _print_error(error: BaseException) -> None:
    """Prints an unexpected error; Ray shows what workers print where the driver asked for it."""
    import traceback

    traceback.print_exception(error)


def node_name() -> str:
    """What messages call this node."""
    name = socket.gethostname()
    with contextlib.suppress(ImportError):
        import ray

        if ray.is_initialized():
            return f"node {ray.util.get_node_ip_address()} ({name})"
    return f"node {name}"


def check_node(assignment: Assignment) -> None:
    """Raises ``UsageError`` if this node is not like the driver's where that matters."""
    with contextlib.suppress(OSError):  # matters only to relative paths, and those are checked
        os.chdir(assignment.working_directory)
    if __version__ != assignment.version:
        raise UsageError(f"has visioneval {__version__}, the driver has {assignment.version}: install the same version")
    for extra, packages in assignment.extras.items():
        for package in packages:
            if find_spec(package) is None:
                raise UsageError(f"lacks the extra {extra!r} ({package}): {install_command(extra)} there")
    for probe in assignment.probes:
        _check_probe(probe)


def _check_probe(probe: Probe) -> None:
    folder = probe.path.parent
    try:
        data = probe.path.read_bytes()
    except OSError:
        raise UsageError(
            f"cannot reach {probe.subject} {folder}: workers need the same folder, such as on a shared file system"
        ) from None
    if sha256(data).hexdigest() != probe.sha256:
        raise UsageError(f"{probe.path}: is another file than the driver's: share {probe.subject}, or copy it again")
    if not probe.is_written:
        return
    trial = folder / f"{probe.path.name}-{socket.gethostname()}-{os.getpid()}"
    try:
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {probe.subject} {folder}: {error.strerror or error}") from None
