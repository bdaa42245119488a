"""What the driver and the workers of a run exchange: the assignment of a worker, jobs, and what became of them.

Files by which a worker knows that it sees the same folders as the driver are a part of its assignment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

from visioneval import bounds
from visioneval.errors import UsageError, VisionEvalError
from visioneval.installation import PACKAGES, install_command
from visioneval.records.model import Record, RunInfo
from visioneval.records.questions import PromptQuestions
from visioneval.records.stores.lookup import cache_url, copies_of
from visioneval.records.untrusted import OUTPUTS
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.cell import Job
from visioneval.running.cells.services import Services
from visioneval.running.jobs import Jobs
from visioneval.running.plan import Plan
from visioneval.suite.runs import case_groups
from visioneval.types import TaskType
from visioneval.version import __version__


@dataclass(frozen=True, slots=True)
class Probe:
    """A file that the driver has written, or that belongs to the suite, and that every worker must see."""

    subject: str
    """What messages call its folder."""
    path: Path
    sha256: str
    is_written: bool
    """Whether workers write into its folder as well."""

    @classmethod
    def of(cls, subject: str, path: Path, *, is_written: bool = False) -> Probe:
        """The probe of a file that exists here."""
        return cls(subject, path, sha256(path.read_bytes()).hexdigest(), is_written)

    def check(self) -> None:
        """Raises ``UsageError`` if this node does not see the file, or cannot write into its folder."""
        folder = self.path.parent
        try:
            data = self.path.read_bytes()
        except OSError:
            raise UsageError(
                f"cannot reach {self.subject} {folder}: workers need the same folder, such as on a shared file system"
            ) from None
        if sha256(data).hexdigest() != self.sha256:
            raise UsageError(f"{self.path}: is another file than the driver's: share {self.subject}, or copy it again")
        trial = folder / f"{self.path.name}-{socket.gethostname()}-{os.getpid()}"
        try:
            if self.is_written:
                trial.write_bytes(b"")
                trial.unlink()
        except OSError as error:
            raise UsageError(f"cannot write to {self.subject} {folder}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker needs to run jobs of a run, besides the jobs. Paths are absolute."""

    plan: Plan
    info: RunInfo
    folder: Path
    """The folder in which the driver writes the run."""
    runs_url: str | None
    """The URL of the store that gets the run; without one, workers share the folder."""
    has_outputs: bool
    """Whether the run had any before it was resumed."""
    settings: CallSettings
    cache_url: str | None
    """The URL of a shared cache, which each node opens by itself."""
    has_budget: bool
    working_directory: Path
    bounds: Mapping[str, int | None]
    """The flags that change a bound, by their environment variable."""
    probes: tuple[Probe, ...]
    extras: Mapping[str, tuple[str, ...]]
    """The packages of each extra that the plan uses."""
    version: str
    """Of visioneval, on the driver."""

    def check_node(self) -> None:
        """Raises ``UsageError`` if this node is not like the driver's where that matters."""
        with contextlib.suppress(OSError):  # matters only to relative paths, and those are checked
            os.chdir(self.working_directory)
        if __version__ != self.version:
            raise UsageError(f"has visioneval {__version__}, the driver has {self.version}: install the same version")
        for extra, packages in self.extras.items():
            for package in packages:
                if find_spec(package) is None:
                    raise UsageError(f"lacks the extra {extra!r} ({package}): on this node, {install_command(extra)}")
        for probe in self.probes:
            probe.check()


def assign(context: Services, settings: CallSettings, probes: Sequence[Probe]) -> Assignment:
    """The assignment of every worker."""
    calls, plan, writer = context.calls, context.plan, context.writer
    cache = settings.cache if calls.cache is None else calls.cache.folder
    log = settings.log_file
    needs = {
        "ocr": any(grader.type_name in ("text", "layout", "contrast") for grader in plan.suite.graders),
        "codes": any(grader.type_name == "codes" for grader in plan.suite.graders),
        "video": any(case.task_type is TaskType.VIDEO_GENERATION for case in plan.suite.cases),
    }
    return Assignment(
        replace(plan),  # drops what it has computed
        writer.info,
        writer.folder.absolute(),
        None if (copies := copies_of(writer.folder)) is None else copies.url,
        any((writer.folder / OUTPUTS).iterdir()),
        replace(settings, cache=cache and cache.absolute(), log_file=log and log.absolute()),
        None if settings.cache is None else cache_url(settings.cache),
        calls.budget.limit_usd is not None,
        Path.cwd(),
        {bound.setting.name: bound.override for bound in bounds.ALL},
        tuple(probes),
        {extra: PACKAGES[extra] for extra, is_needed in needs.items() if is_needed},
        __version__,
    )


@contextlib.contextmanager
def written_probes(context: Services, settings: CallSettings) -> Iterator[tuple[Probe, ...]]:
    """Writes a file into the run and into the cache while workers may start, and names one of the suite's folder."""
    folder, cache, info = context.writer.folder.absolute(), context.calls.cache, context.writer.info
    folders = [("the run folder", folder)] if copies_of(folder) is None else []
    if cache is not None and (settings.cache is None or cache_url(settings.cache) is None):
        folders.append(("the cache", cache.folder.absolute()))
    token = secrets.token_bytes(16)
    probes: list[Probe] = []
    with contextlib.ExitStack() as stack:
        for subject, shared_folder in folders:
            path = shared_folder / f".workers-of-{info.run_id}"
            with contextlib.suppress(OSError):  # a cache that is only read
                path.write_bytes(token)
                stack.callback(path.unlink, missing_ok=True)
                probes.append(Probe.of(subject, path, is_written=True))
        suite = Path(info.suite_path).absolute()
        if suite.is_file():
            probes.append(Probe.of("the suite's folder", suite))
        yield (*probes, *_probes_of_sources(context.plan))


def _probes_of_sources(plan: Plan) -> Iterator[Probe]:
    """An output of each other run whose outputs this one grades."""
    sources = {run.label: run.config.source_run for run in plan.runs if run.config.source_run is not None}
    for call in (call for calls in plan.chains() for call in calls) if sources else ():
        path = call.params.get("path")
        if isinstance(path, str) and Path(path).is_file() and (source := sources.pop(call.run.label, None)):
            yield Probe.of(f"the outputs of {source}", Path(path))
        if not sources:
            return


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
