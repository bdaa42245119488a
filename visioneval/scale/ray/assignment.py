"""What the driver gives every worker of a run, and files by which a worker knows that it sees the same folders."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from visioneval import __version__, bounds
from visioneval.engine.call_settings import CallSettings
from visioneval.engine.cells.context import RunContext
from visioneval.expansion.plan import Plan
from visioneval.extras import PACKAGES
from visioneval.records.stores.copies import OUTPUTS
from visioneval.records.stores.locations import cache_url, copies_of
from visioneval.scale.ray.messages import Assignment, Probe
from visioneval.types import TaskType


def assign(context: RunContext, settings: CallSettings, probes: Sequence[Probe]) -> Assignment:
    """The assignment of every worker. Its paths are absolute."""
    calls, plan, writer = context.calls, context.plan, context.writer
    cache = settings.cache if calls.cache is None else calls.cache.folder
    log = settings.log_file
    return Assignment(
        replace(plan, folder=plan.folder.absolute()),  # also drops what it has computed
        writer.info,
        writer.folder.absolute(),
        None if (copies := copies_of(writer.folder)) is None else copies.url,
        any((writer.folder / OUTPUTS).iterdir()),
        replace(
            settings,
            cache=None if cache is None else cache.absolute(),
            log_file=None if log is None else log.absolute(),
        ),
        None if settings.cache is None else cache_url(settings.cache),
        calls.budget.limit_usd is not None,
        Path.cwd(),
        {bound.variable: bound.override for bound in bounds.ALL},
        tuple(probes),
        _extras_of(plan),
        __version__,
    )


def _extras_of(plan: Plan) -> dict[str, tuple[str, ...]]:
    """The extras that a plan needs where its cells are done, each with its packages."""
    extras: dict[str, tuple[str, ...]] = {}
    if any(grader.type_name == "text" for grader in plan.suite.graders):
        extras["ocr"] = PACKAGES["ocr"]
    if any(case.task_type is TaskType.VIDEO_GENERATION for case in plan.suite.cases):
        extras["video"] = PACKAGES["video"]
    return extras


@contextlib.contextmanager
def written_probes(context: RunContext, settings: CallSettings) -> Iterator[tuple[Probe, ...]]:
    """Writes a file into the run and into the cache while workers may start, and names one of the suite's folder."""
    folder, cache, info = context.writer.folder.absolute(), context.calls.cache, context.writer.info
    folders = [("the run folder", folder)] if copies_of(folder) is None else []
    if cache is not None and (settings.cache is None or cache_url(settings.cache) is None):
        folders.append(("the cache", cache.folder.absolute()))
    token = secrets.token_bytes(16)
    written: list[Probe] = []
    with contextlib.ExitStack() as stack:
        for subject, shared_folder in folders:
            path = shared_folder / f".workers-of-{info.run_id}"
            with contextlib.suppress(OSError):  # a cache that is only read
                path.write_bytes(token)
                stack.callback(path.unlink, missing_ok=True)
                written.append(Probe(subject, path, sha256(token).hexdigest(), is_written=True))
        suite = Path(info.suite_path).absolute()
        if suite.is_file():
            digest = sha256(suite.read_bytes()).hexdigest()
            written.append(Probe("the suite's folder", suite, digest, is_written=False))
        yield (*written, *_probes_of_sources(context.plan))


def _probes_of_sources(plan: Plan) -> Iterator[Probe]:
    """An output of each other run whose outputs this one grades."""
    sources = {run.label: run.config.source_run for run in plan.runs if run.config.source_run is not None}
    for call in (call for calls in plan.chains() for call in calls) if sources else ():
        path = call.params.get("path")
        if isinstance(path, str) and Path(path).is_file() and (source := sources.pop(call.run.label, None)):
            yield Probe(f"the outputs of {source}", Path(path), sha256(Path(path).read_bytes()).hexdigest(), False)
        if not sources:
            return
