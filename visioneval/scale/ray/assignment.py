"""What the driver gives every worker of a run, and files by which a worker knows that it sees the same folders."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from visioneval import bounds
from visioneval.errors import UsageError
from visioneval.installation import PACKAGES, install_command
from visioneval.records.model import RunInfo
from visioneval.records.stores.lookup import cache_url, copies_of
from visioneval.records.untrusted import OUTPUTS
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.services import Services
from visioneval.running.plan import Plan
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
                    raise UsageError(f"lacks the extra {extra!r} ({package}): {install_command(extra)} there")
        for probe in self.probes:
            probe.check()


def assign(context: Services, settings: CallSettings, probes: Sequence[Probe]) -> Assignment:
    """The assignment of every worker."""
    calls, plan, writer = context.calls, context.plan, context.writer
    cache = settings.cache if calls.cache is None else calls.cache.folder
    log = settings.log_file
    needs = {
        "ocr": any(grader.type_name == "text" for grader in plan.suite.graders),
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
