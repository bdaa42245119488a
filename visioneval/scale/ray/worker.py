"""A worker: an actor that runs jobs with the engine, on the core that Ray has given it.

It puts the files of its jobs into the folder of the run, or into the store that has the run. A worker that the driver
has lost may still be at work, for instance on a node that was cut off. So workers only create files: no file that a
record names is ever replaced by another worker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import socket
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG
from typing import Any

from visioneval import bounds
from visioneval.atomic import create_whole
from visioneval.errors import AuthError, BudgetError, ClosingError, StoppedError, StorageError, VisionEvalError
from visioneval.plugins import describe_user_error
from visioneval.records.model import Record, RunInfo
from visioneval.records.outputs import PREFIX
from visioneval.records.questions import NAME as QUESTIONS
from visioneval.records.questions import PromptQuestions, QuestionsWriter
from visioneval.records.stores.copies import is_safe_key
from visioneval.records.stores.lookup import cache_folder
from visioneval.records.stores.store import MissingObjectError, ObjectStore, in_threads
from visioneval.records.writer import OutputWriter, cells_folder
from visioneval.running.calls.settings import open_calls
from visioneval.running.cells.cell import Job
from visioneval.running.cells.record import saved_files
from visioneval.running.cells.services import Listener, Services, build_components, open_services
from visioneval.running.execution import Progress, prepare_process
from visioneval.running.runner import finish_job
from visioneval.scale.ray.jobs import Assignment, JobResult, UnsentFile, moved
from visioneval.scale.ray.limits import Leases, leased, same_error
from visioneval.threads import SPARE_THREADS, Slots, Threads
from visioneval.types import TaskType

_HASH_DIGITS = 12
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)


class ExclusiveWriter(OutputWriter):
    """Saves files without replacing any. A name that is taken, or ``by_content`` every name, gets a part of the hash.

    On a file system without hard links, which cannot create a file with its content, every name does.
    """

    def __init__(self, folder: Path, info: RunInfo, *, by_content: bool = False) -> None:
        super().__init__(folder, info)
        self._by_content = by_content

    def send(self) -> tuple[UnsentFile, ...]:
        """Sends the files of a job before the driver gets its records. Returns those that the driver has to send."""
        return ()

    def _write(self, cell_folder: str, name: str, data: bytes | None, source: Path | None) -> str:
        content = data if data is not None else b"" if source is None else source.read_bytes()
        last_name = named_by_content(name, content)
        for free_name in (last_name,) if self._by_content else (name, last_name):
            path = self.folder / cell_folder / free_name
            try:
                if _create(path, content, source) or path.read_bytes() == content:
                    return free_name
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
        return super()._write(cell_folder, last_name, content, None)


def _create(path: Path, content: bytes, source: Path | None) -> bool:
    """Creates a file, unless it exists: as a link to ``source``, if possible. Returns whether this call created it."""
    if source is not None and S_ISREG(source.lstat().st_mode):
        try:
            path.hardlink_to(source)
        except FileExistsError:
            return False
        except (OSError, NotImplementedError):
            pass  # of another file system, for instance
        else:
            return True
    return create_whole(path, content)


def named_by_content(name: str, data: bytes) -> str:
    """The name of a file with a part of its hash, such as ``0-5f0c9a3e81b2.png``."""
    path = Path(name)
    return f"{path.stem}-{sha256(data).hexdigest()[:_HASH_DIGITS]}{path.suffix}"


class JobWriter(ExclusiveWriter):
    """Saves the files of one job in a folder of this node, and sends them to the store."""

    def __init__(self, outputs: StoreOutputs, folder: Path, *, by_content: bool) -> None:
        super().__init__(folder, outputs.info, by_content=by_content)
        self._outputs = outputs
        self._saved: dict[str, tuple[str, str, str]] = {}
        """By path of what the store lacks: the case, the model run and the name of the file."""

    def flush(self) -> None:
        """Sends what was saved so far; what the store does not take is sent at the end of the job."""
        for relative in list(self._saved):
            with suppress(VisionEvalError):
                if self._outputs.create(relative, (self.folder / relative).read_bytes()):
                    del self._saved[relative]

    def save(self, test_id: str, label: str, name: str, data: bytes | None, *, source: Path | None = None) -> str:
        """Also notes the file."""
        relative = super().save(test_id, label, name, data, source=source)
        self._saved[relative] = (test_id, label, relative.rpartition("/")[2])
        return relative

    def send(self) -> tuple[UnsentFile, ...]:
        """Sends the files of the job. Returns those that the driver has to send, as the store cannot be reached."""
        return tuple(filter(None, in_threads(self._unsent, list(self._saved))))

    def _unsent(self, relative: str) -> UnsentFile | None:
        data = (self.folder / relative).read_bytes()
        try:
            is_created = self._outputs.create(relative, data)
        except VisionEvalError as error:
            self._outputs.report(error)
            return UnsentFile(*self._saved[relative], data)
        self._outputs.report(None)
        if not is_created:
            raise StorageError(
                f"{self._outputs.url}/{relative}: another process has written this output: resume the run"
            )
        return None


class FolderOutputs:
    """The outputs of a run in a folder that the driver and all workers share."""

    def __init__(self, assignment: Assignment) -> None:
        self.folder = assignment.folder
        self._writer = ExclusiveWriter(assignment.folder, assignment.info)

    @asynccontextmanager
    async def opened(self, job: Job, *, again: bool) -> AsyncIterator[tuple[Job, ExclusiveWriter]]:  # noqa: ARG002 - as of StoreOutputs
        """Opens a job, which ``again`` says that a lost worker had begun."""
        yield job, self._writer


class StoreOutputs:
    """The outputs of a run in a store. Each job has a folder on this node, which is deleted when all is sent.

    Names are the usual ones only for the first attempt in a run without outputs: any other has names by content, since
    another attempt may have taken the usual ones.
    """

    def __init__(self, assignment: Assignment, folder: Path, say: Callable[[str], None]) -> None:
        """Checks that this node can read and write the run. Raises ``UsageError`` and ``StorageError``."""
        self.folder, self.info = folder, assignment.info
        self._run_folder, self._has_outputs, self._say = assignment.folder, assignment.has_outputs, say
        self._is_failing = False
        self._store = ObjectStore(f"{assignment.runs_url}/{self.info.run_id}")
        self.url, self.create = self._store.url, self._store.create
        self._store.read("run.json")
        trial = f"claims/worker-{secrets.token_hex(4)}"
        self._store.put(trial, b"")
        self._store.delete(trial)
        self._fetch(folder, [QUESTIONS])

    @asynccontextmanager
    async def opened(self, job: Job, *, again: bool) -> AsyncIterator[tuple[Job, ExclusiveWriter]]:
        """Opens a job with the existing outputs that it needs, with paths that exist on this node.

        Raises ``StorageError``.
        """
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            await asyncio.to_thread(self._fetch, folder, self._files_read(job))
            writer = JobWriter(self, folder, by_content=again or self._has_outputs)
            yield moved(job, lambda stored: folder if stored == self._run_folder else stored), writer

    def report(self, error: VisionEvalError | None) -> None:
        """Reports why a file was not sent, once until another one was."""
        if error is not None and not self._is_failing:
            self._say(f"{error}; the driver sends the outputs that a worker cannot")
        self._is_failing = error is not None

    def _fetch(self, folder: Path, relatives: Iterable[str | None]) -> None:
        """Downloads files of the run. A file that the store lacks is missing, as in a local run."""
        for relative in {name for name in relatives if name is not None and is_safe_key(name)}:
            with suppress(MissingObjectError):
                data = self._store.read(relative)
                path = folder / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def _files_read(self, job: Job) -> Iterator[str | None]:
        """The files of the run that a job reads: outputs to grade or to edit, and what graders saved.

        Also what is written down of the operations that an earlier attempt has begun.
        """
        call = job.call
        if call.task_type is TaskType.VIDEO_GENERATION and job.generate:
            cells = cells_folder(call.case.id, call.run.label)
            names = [item.name for item in self._store.entries(cells)]
            yield from (f"{cells}/{name}" for name in names if name.startswith(PREFIX))
        turn: Job | None = job
        while turn is not None:
            for stored in turn.regrade:
                if stored.folder == self._run_folder:
                    yield stored.record.artifact_path
                if stored.graded is not None:
                    yield from saved_files(stored.graded)
            if turn.unchanged is not None:
                yield turn.unchanged.artifact_path
            turn = turn.next_turn


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
