"""What the workers of a run share: its providers, graders, judges, calls, files and shown images."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from visioneval.errors import BudgetError, GraderError, ImageError, ProviderError, UsageError
from visioneval.graders.base import Grader
from visioneval.judging.attachments import PASSTHROUGH_FORMATS, shown
from visioneval.media.images import image_at
from visioneval.plugins import GRADERS, JUDGES, PROVIDERS
from visioneval.providers.base import (
    CellRef,
    FilePart,
    Generation,
    GenerationRequest,
    ImagePart,
    Judge,
    Question,
    Reply,
)
from visioneval.records.model import Record
from visioneval.records.questions import QuestionsWriter
from visioneval.records.writer import OutputWriter
from visioneval.running.calls.attempts import describe_error
from visioneval.running.calls.calls import Calls
from visioneval.running.calls.judges import Judges
from visioneval.running.cells.measurements import CachedImage, Measurements
from visioneval.running.keys import FileHashes
from visioneval.running.plan import Call, Plan, asks, unset_keys
from visioneval.running.sanitize import Sanitizer
from visioneval.suite.plugins import build, task_problems
from visioneval.threads import waiting
from visioneval.types import Output

MAX_BYTES = 64_000_000


class ImageCache:
    """The most recently used input images and masks. Thread-safe."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[Path, bool], ImagePart] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def show(self, path: Path, *, mask: bool = False) -> ImagePart:
        """An input image encoded for a judge, or a mask in black and white. Raises ``GraderError``."""
        key = (path, mask)
        with self._lock:
            if key in self._parts:
                self._parts.move_to_end(key)
                return self._parts[key]
        part = shown(path, mask=mask)
        with self._lock:
            if key not in self._parts:
                self._parts[key] = part
                self._bytes += len(part.data)
            while self._bytes > MAX_BYTES and len(self._parts) > 1:
                _, dropped = self._parts.popitem(last=False)
                self._bytes -= len(dropped.data)
        return part


class CellImages:
    """The images of one cell: its output, which is already validated, and cached input images."""

    def __init__(self, image: Output | None, image_cache: ImageCache) -> None:
        self._image = image
        self._image_cache = image_cache

    def show(self, path: Path, *, mask: bool = False) -> ImagePart:
        """The cell's output, an input image or a mask. Raises ``GraderError``."""
        output = self._image
        if output is None or path != output.path:
            return self._image_cache.show(path, mask=mask)
        return FilePart(path, output.mime, output.sha256) if output.mime in PASSTHROUGH_FORMATS else shown(path)


T = TypeVar("T")


class SingleFlight:
    """Results by key, for one run. A failure is raised for all waiting callers and not cached."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Future[Any]] = {}

    async def __call__(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        """The result of ``make`` of the first caller for ``key``. A cancelled caller does not cancel the others."""
        task: asyncio.Future[T] | None = self._tasks.get(key)
        if task is None:
            task = asyncio.ensure_future(make())
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._settle(key, done))
            return await asyncio.shield(task)
        with waiting():
            return await asyncio.shield(task)

    def _settle(self, key: str, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._tasks.pop(key, None)


_IMAGE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.(png|jpg|jpeg|webp)")


@dataclass(frozen=True, slots=True)
class SavedImages:
    """The images that the graders of one cell store. Their paths in the run are returned."""

    writer: OutputWriter
    call: Call
    sample: int
    _names: set[str] = field(default_factory=set)

    def save(self, name: str, data: bytes) -> str:
        """Stores an image of a built-in grader."""
        self._names.add(name)
        source = data.file if isinstance(data, CachedImage) else None
        return self.writer.save(self.call.case.id, self.call.run.label, f"{self.sample}.{name}", data, source=source)

    def save_checked(self, name: str, data: bytes) -> str:
        """Stores an image of a custom grader. Raises ``GraderError`` for a bad name, a used name or a broken image."""
        if not isinstance(name, str) or not _IMAGE_NAME.fullmatch(name):
            raise GraderError(
                f"save({name!r:.130}): the name must have only letters, digits, _ - and . (not first), "
                "and end in .png, .jpg, .jpeg or .webp"
            )
        if name in self._names:
            raise GraderError(f"save({name!r}): a grader of this cell has already saved this name")
        if not isinstance(data, bytes):
            raise GraderError(f"save({name!r}): the data must be the bytes of an image, not {type(data).__name__}")
        try:
            image_at(Path(), data)
        except ImageError as error:
            raise GraderError(f"save({name!r}): the data is not a valid image: {error}") from None
        return self.save(name, data)


@dataclass(frozen=True, slots=True)
class Components:
    """Providers by model label; graders and judges by key."""

    providers: Mapping[str, Any]
    graders: Mapping[str, Grader]
    judges: Mapping[str, Judge] = field(default_factory=dict)
    watching: frozenset[str] = frozenset()
    """The judges that accept videos and remote addresses directly."""


class OfflineStub:
    """Replaces a provider or judge in an offline run, where all answers come from the cache."""

    async def generate(self, request: GenerationRequest) -> Generation:  # noqa: ARG002
        raise ProviderError("no calls are made offline", kind="offline")

    edit = generate

    async def ask(self, question: Question, about: CellRef) -> Reply:  # noqa: ARG002
        raise ProviderError("no calls are made offline", kind="offline")


def build_components(plan: Plan, *, offline: bool = False) -> Components:
    """Builds everything that the plan needs; offline, only free providers, without API keys.

    Raises ``UsageError`` if a key is missing or a provider lacks a method.
    """
    if not offline and (lines := missing_keys(plan)):
        raise UsageError("\n".join(lines))
    providers: dict[str, Any] = {}
    for run in plan.runs if plan.generates else ():
        if offline and not run.config.is_free:
            providers[run.label] = OfflineStub()
            continue
        providers[run.label] = build(run.provider, PROVIDERS, run.config, plan.folder)
        tasks = (case.task_type for case in plan.suite.cases)
        if lines := task_problems(run.provider, providers[run.label], run.config, tasks):
            raise UsageError("\n".join(lines))
    used = [g for g in plan.suite.graders if any(asks(g, case) for case in plan.suite.cases)]
    graders = {g.key: build(g.type_name, GRADERS, g, plan.folder) for g in used}
    judges: dict[str, Judge] = {
        name: OfflineStub()
        if offline and not config.is_free
        else build(config.provider_name, JUDGES, config.located(plan.folder), plan.folder)
        for name, config in plan.judges.items()
    }
    watching = frozenset(name for name, config in plan.judges.items() if config.watches)
    return Components(providers, graders, judges, watching)


def missing_keys(plan: Plan) -> list[str]:
    """A message for each API key that the plan needs and the environment lacks."""
    return [
        f"set the environment variable {name}, or put it into a file and run 'visioneval --env-file FILE ...':"
        f" required by {', '.join(users)}"
        for name, users in unset_keys(plan).items()
    ]


Interrupt = Callable[[], None]
"""Stops a run as Ctrl-C does: the first call lets running calls finish, the second cancels them."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Callbacks of a run: finished records, running and waiting calls, messages, notes and unexpected exceptions."""

    record: Callable[[Record], None] = lambda _: None
    status: Callable[[list[str]], None] = lambda _: None
    say: Callable[[str], None] = print
    debug: Callable[[BaseException], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    planned: Callable[[int], None] = lambda _: None
    """Receives the number of further cells."""
    started: Callable[[Interrupt], None] = lambda _: None
    """Receives a function that interrupts the run from any thread, as Ctrl-C does."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the work of a run goes through: its providers, graders and judges, its calls, its folder, what it shares."""

    plan: Plan
    components: Components
    calls: Calls
    writer: OutputWriter
    hash_of: FileHashes
    judges: Judges
    questions: QuestionsWriter
    image_cache: ImageCache = field(default_factory=ImageCache)
    once: SingleFlight = field(default_factory=SingleFlight)
    measurements: Measurements = field(default_factory=Measurements)
    turns: Iterator[int] = field(default_factory=lambda: count(1))
    """The turns of cells: the work of the one whose grading began first goes first."""
    listener: Listener = field(default_factory=Listener)

    @property
    def sanitizer(self) -> Sanitizer:
        """Removes secrets from what is written."""
        return self.calls.sanitizer

    def failure_of(self, error: Exception, limit: asyncio.Timeout | None = None) -> tuple[str, str]:
        """The kind of error of what graders do, and its message without secrets. Reports an unexpected error.

        ``limit`` is the time limit of the cell.
        """
        if isinstance(error, (BudgetError, GraderError, ProviderError, ImageError)):
            kind = "budget" if isinstance(error, BudgetError) else "unmeasured"
            message = self.sanitizer.text(str(error) or type(error).__name__)
            return error.kind if isinstance(error, ProviderError) else kind, message
        if isinstance(error, TimeoutError) and limit is not None and limit.expired():  # else the grader raised it
            return "timeout", f"exceeded the cell timeout of {self.plan.suite.cell_timeout_s:g} s (cell_timeout_s)"
        self.listener.debug(error)
        return "internal", self.sanitizer.text(describe_error(error))


@contextlib.contextmanager
def open_services(
    plan: Plan,
    components: Components,
    writer: OutputWriter,
    calls: Calls,
    listener: Listener,
    open_questions: Callable[[Path], QuestionsWriter] = QuestionsWriter,
) -> Iterator[Services]:
    """Opens what the work of a run shares. Writes the run's new questions at the end."""
    with contextlib.closing(open_questions(writer.folder)) as questions:
        yield Services(
            plan,
            components,
            calls,
            writer,
            FileHashes(plan.folder),
            Judges(plan.suite.judges, components.judges, calls),
            questions,
            measurements=Measurements(calls.cache, reuses=calls.reuse.measurements, warn=listener.say),
            listener=listener,
        )
