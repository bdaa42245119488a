"""Where a worker puts the files of its jobs: into the folder of the run, or into the store that has the run.

A worker that the driver has lost may still be at work, for instance on a node that was cut off. So workers only create
files: no file that a record names is ever replaced by another worker's.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from stat import S_ISREG

from visioneval.atomic import create_whole
from visioneval.errors import StorageError, VisionEvalError
from visioneval.records.cells.operations import PREFIX
from visioneval.records.model import RunInfo
from visioneval.records.questions import NAME as QUESTIONS
from visioneval.records.stores.copies import is_safe_key
from visioneval.records.stores.store import MissingObjectError, ObjectStore
from visioneval.records.writer import OutputWriter, cells_folder
from visioneval.running.cells.cell import Job
from visioneval.running.cells.record import saved_files
from visioneval.scale.ray.assignment import Assignment
from visioneval.scale.ray.jobs import UnsentFile
from visioneval.types import TaskType

_THREADS = 16
"""Files that a worker sends at once."""
_HASH_DIGITS = 12
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
OpenJob = tuple[Job, OutputWriter, Callable[[], Awaitable[tuple[UnsentFile, ...]]]]
"""A job with paths that exist on this node, its writer, and what sends its files before the driver gets the records.

That returns the files that the driver has to send.
"""


class ExclusiveWriter(OutputWriter):
    """Saves files without replacing any. A name that is taken, or ``by_content`` every name, gets a part of the hash.

    On a file system without hard links, which cannot create a file with its content, every name does.
    """

    def __init__(self, folder: Path, info: RunInfo, *, by_content: bool = False) -> None:
        super().__init__(folder, info)
        self._by_content = by_content

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
    """Saves the files of one job in a folder of this node, and notes them: ``saved`` has their cells and names."""

    def __init__(
        self, folder: Path, info: RunInfo, *, by_content: bool, send_now: Callable[[str], bool] = lambda _: False
    ) -> None:
        super().__init__(folder, info, by_content=by_content)
        self.saved: dict[str, tuple[str, str, str]] = {}
        self._send_now = send_now

    def flush(self) -> None:
        """Sends what was saved so far; what the store does not take is sent at the end of the job."""
        for relative in [name for name in self.saved if self._send_now(name)]:
            del self.saved[relative]

    def save(self, test_id: str, label: str, name: str, data: bytes | None, *, source: Path | None = None) -> str:
        """Also notes the file."""
        relative = super().save(test_id, label, name, data, source=source)
        self.saved[relative] = (test_id, label, relative.rpartition("/")[2])
        return relative


class FolderOutputs:
    """The outputs of a run in a folder that the driver and all workers share."""

    def __init__(self, assignment: Assignment) -> None:
        self.folder = assignment.folder
        self._writer = ExclusiveWriter(assignment.folder, assignment.info)

    @asynccontextmanager
    async def opened(self, job: Job, *, again: bool) -> AsyncIterator[OpenJob]:  # noqa: ARG002 - as of StoreOutputs
        """Opens a job, which ``again`` says that a lost worker had begun."""

        async def send() -> tuple[UnsentFile, ...]:
            return ()

        yield job, self._writer, send


class StoreOutputs:
    """The outputs of a run in a store. Each job has a folder on this node, which is deleted when all is sent.

    Names are the usual ones only for the first attempt in a run without outputs: any other has names by content, since
    another attempt may have taken the usual ones.
    """

    def __init__(self, assignment: Assignment, folder: Path, say: Callable[[str], None]) -> None:
        """Checks that this node can read and write the run. Raises ``UsageError`` and ``StorageError``."""
        self.folder = folder
        self._assignment, self._say = assignment, say
        self._store, self._run_id = ObjectStore(str(assignment.runs_url)), assignment.info.run_id
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="outputs")
        self._numbers = itertools.count(1)
        self._is_failing = False
        self._store.read(f"{self._run_id}/run.json")
        trial = f"{self._run_id}/claims/worker-{secrets.token_hex(4)}"
        self._store.put(trial, b"")
        self._store.delete(trial)
        self._fetch(folder, [QUESTIONS])

    @asynccontextmanager
    async def opened(self, job: Job, *, again: bool) -> AsyncIterator[OpenJob]:
        """Opens a job with the existing outputs that it needs. Raises ``StorageError``."""
        folder = self.folder / str(next(self._numbers))
        run_folder, by_content = self._assignment.folder, again or self._assignment.has_outputs
        folder.mkdir()
        try:
            await self._in_thread(self._fetch, folder, sorted(set(existing_files(job, run_folder))))
            await self._in_thread(self._fetch_operations, folder, job)
            send_now = partial(self._is_sent, folder)
            writer = JobWriter(folder, self._assignment.info, by_content=by_content, send_now=send_now)
            yield moved(job, run_folder, folder), writer, partial(self._send, writer)
        finally:
            await self._in_thread(shutil.rmtree, folder, True)

    async def _in_thread(self, work: Callable[..., object], *arguments: object) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _fetch(self, folder: Path, relatives: Iterable[str]) -> None:
        """Downloads files of the run. A file that the store lacks is missing, as in a local run."""
        for relative in filter(is_safe_key, relatives):
            try:
                data = self._store.read(f"{self._run_id}/{relative}")
            except MissingObjectError:
                continue
            path = folder / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def _fetch_operations(self, folder: Path, job: Job) -> None:
        """Downloads what is written down of the operations that an earlier attempt has begun."""
        call = job.call
        if call.task_type is TaskType.VIDEO_GENERATION and job.generate:
            cells = cells_folder(call.case.id, call.run.label)
            items = self._store.entries(f"{self._run_id}/{cells}")
            self._fetch(folder, [f"{cells}/{item.name}" for item in items if item.name.startswith(PREFIX)])

    def _is_sent(self, folder: Path, relative: str) -> bool:
        """Sends a file at once. Returns whether the store has it."""
        try:
            return self._store.create(f"{self._run_id}/{relative}", (folder / relative).read_bytes())
        except VisionEvalError:
            return False

    async def _send(self, writer: JobWriter) -> tuple[UnsentFile, ...]:
        sent = [
            self._in_thread(self._unsent, writer.folder, relative, *cell) for relative, cell in writer.saved.items()
        ]
        return tuple(file for file in await asyncio.gather(*sent) if isinstance(file, UnsentFile))

    def _unsent(self, folder: Path, relative: str, test_id: str, label: str, name: str) -> UnsentFile | None:
        """Sends a file. If the store cannot be reached, the driver has to send it later."""
        data = (folder / relative).read_bytes()
        key = f"{self._run_id}/{relative}"
        try:
            is_created = self._store.create(key, data)
        except VisionEvalError as error:
            if not self._is_failing:
                self._say(f"{error}; the driver sends the outputs that a worker cannot")
            self._is_failing = True
            return UnsentFile(test_id, label, name, data)
        self._is_failing = False
        if not is_created:
            raise StorageError(f"{self._store}/{key}: another process has written this output: resume the run")
        return None


def existing_files(job: Job, run_folder: Path) -> Iterator[str]:
    """The files of the run that a job reads: outputs to grade or to edit, and what graders saved."""
    turn: Job | None = job
    while turn is not None:
        records = [stored.record for stored in turn.regrade if stored.folder == run_folder]
        records += [turn.unchanged] if turn.unchanged is not None else []
        yield from (record.artifact_path for record in records if record.artifact_path is not None)
        for stored in turn.regrade:
            if stored.graded is not None:
                yield from saved_files(stored.graded)
        turn = turn.next_turn


def moved(job: Job, run_folder: Path, folder: Path) -> Job:
    """The job with ``folder`` in place of that of the run."""
    regrade = tuple(
        replace(stored, folder=folder if stored.folder == run_folder else stored.folder) for stored in job.regrade
    )
    next_turn = None if job.next_turn is None else moved(job.next_turn, run_folder, folder)
    return replace(job, regrade=regrade, next_turn=next_turn)
