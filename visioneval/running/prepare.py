"""From a plan to a run that can be executed: a new run, a resumed run, or a run that grades existing outputs."""

from __future__ import annotations

import platform
import re
import secrets
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from visioneval.analysis.redaction import check_redact
from visioneval.errors import SuiteError, UsageError
from visioneval.installation import has_extra, needs
from visioneval.media.video import can_read_videos
from visioneval.records.model import RunInfo, read_info
from visioneval.records.outputs import writing_ended
from visioneval.records.reader import read_records
from visioneval.records.runs import resume_command
from visioneval.records.stores.lookup import display_name, fetch_outputs
from visioneval.records.stores.writing import claim_run, create_run, release_run, resume_run
from visioneval.records.until import UntilDecided
from visioneval.records.writer import RunWriter
from visioneval.running.calls.settings import CallSettings, check_budget, check_session
from visioneval.running.cells.services import Components, build_components
from visioneval.running.jobs import Jobs, copy_questions, every_cell, forget_changed_pairs, plan_regrade, plan_resume
from visioneval.running.loading import (
    SuiteOptions,
    check_same_suite,
    check_secrets,
    load_plan,
    load_plans,
    load_stored_plan,
    missing_outputs,
    secrets_to_give,
)
from visioneval.running.plan import Plan
from visioneval.running.sanitize import sanitizer_for
from visioneval.running.until import UntilOptions, check_until, first_record
from visioneval.suite.entries.graders import PAIR, of_kind
from visioneval.suite.load import HIDDEN
from visioneval.suite.runs import merged, narrowed_further
from visioneval.types import TaskType
from visioneval.version import __version__

MAX_CHANGED = 3


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The Ray cluster on which the cells of a run are done."""

    address: str | None = None
    """Of a running cluster; ``None`` starts Ray here."""
    workers: int | None = None
    """``None`` for one per core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """All settings of a run except its suite."""

    suite: SuiteOptions = field(default_factory=SuiteOptions)
    calls: CallSettings = field(default_factory=CallSettings)
    run_id: str | None = None
    note: str | None = None
    resume: Path | None = None
    """The folder of the run to resume."""
    keep_errors: bool = False
    """Whether a resumed run does not repeat cells that ended in an error."""
    command_line: tuple[str, ...] = ()
    """As typed, for ``run.json``; empty for a run of the Python API."""
    words: tuple[str, ...] = ()
    """The settings as flags, for the command that resumes a run of the Python API."""
    cluster: ClusterOptions | None = None
    """Where the cells are done; ``None`` for this process."""
    redact: tuple[str, ...] = ()
    """The tags of cases of which no image, and no text about one, leaves this machine."""
    until: UntilOptions | None = None
    """How long further samples are generated; ``None`` for the number of the suite."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to be executed: its writer is open, and ``jobs`` produces ``cells`` cells."""

    plan: Plan
    components: Components
    writer: RunWriter
    jobs: Jobs
    cells: int
    resume_hint: str
    """How to get the remaining cells if the run stops early."""
    notes: tuple[str, ...] = ()
    """Messages for the user before the run starts."""


@dataclass(frozen=True, slots=True)
class RunToGrade:
    """The run, or model run, whose outputs are graded again."""

    folder: Path
    info: RunInfo
    label: str | None

    @property
    def name(self) -> str:
        """``RUN_ID`` or ``RUN_ID@label``."""
        return self.info.run_id if self.label is None else f"{self.info.run_id}@{self.label}"


def plan_runs(suites: list[Path], options: RunOptions) -> list[Plan]:
    """Plans all suites; without a suite, the run to resume. Raises ``SuiteError`` and ``UsageError``."""
    if not suites and options.resume is None:
        raise UsageError("name a suite, or a run to resume: --resume RUN")
    if options.resume is not None and (len(suites) > 1 or options.run_id is not None or options.note is not None):
        raise UsageError("--resume takes at most one suite, and neither --run-id nor --note")
    if options.keep_errors and options.resume is None:
        raise UsageError("--keep-errors needs --resume")
    if options.run_id is not None and len(suites) > 1:
        raise UsageError("--run-id names one run: give one suite")
    if options.resume is None:
        return load_plans(suites, options.suite)
    info = read_info(options.resume)
    samples = options.suite.selection.samples or info.selection.samples
    selection = info.selection.model_copy(update={"samples": samples})
    repeated = options.suite.selection.model_copy(update={"samples": samples})
    if repeated.narrows and repeated != selection:
        raise UsageError(
            "--resume applies to the whole run: leave out --case, --tag, --model, --grader, --limit and --shard"
        )
    suite_options = replace(options.suite, selection=selection)
    if suites:
        planned = load_plans(suites, suite_options)
    elif suite_options.judges or not suite_options.variables.keys() <= set(info.hidden_vars):
        raise UsageError("--var and --judge change the suite: name the suite as well as --resume")
    else:
        planned = [load_stored_plan(options.resume, suite_options)]
    check_same_suite(options.resume, planned[0], suite_options)
    return planned


def check_runs(planned: Sequence[Plan], options: RunOptions, warn: Callable[[str], None]) -> list[Components]:
    """Checks outputs, keys, prices, the cache, the log and extras before the first run starts. Returns components.

    Raises ``SuiteError``, ``UsageError`` and ``BudgetError``.
    """
    check_redact(options.redact, *(plan.whole_suite for plan in planned))
    for plan in planned:
        if (until := until_of(options)) is not None:
            info = describe_run(plan, run_id=None, note=None, command_line=())
            check_until(plan, until, info, is_on_cluster=options.cluster is not None)
    reading = planned if options.resume is None else ()  # a run that is resumed has copies of its outputs
    if problems := [problem for plan in reading for problem in missing_outputs(plan, options.suite).errors]:
        raise SuiteError(problems)
    for plan in planned:
        if not options.calls.reuse.offline:
            videos = [case for case in plan.suite.cases if case.task is TaskType.VIDEO_GENERATION]
            generating = [run for run in plan.runs if not run.config.reads_outputs]
            is_any = any(any(plan.count(case, run)) for case in videos for run in generating)
            if is_any and not can_read_videos():  # each would be paid for and lost
                raise UsageError(needs("video"))
            if options.cluster is None:  # whose nodes are checked
                check_extras(plan)
        check_budget(plan, options.calls)
    for plan in planned:
        check_session(plan, options.calls, warn)
    return [build_components(plan, offline=options.calls.reuse.offline) for plan in planned]


def until_of(options: RunOptions) -> UntilOptions | None:
    """Until when samples are generated: as the options say, or else as the run to resume says."""
    if options.until is not None or options.resume is None:
        return options.until
    stored = read_info(options.resume).until_decided
    return None if stored is None else UntilOptions(stored.max_samples, stored.baseline)


def check_extras(plan: Plan) -> None:
    """Raises ``UsageError`` if a grader that a cell needs cannot measure here: no output would pass."""
    needed = {extra for grader in plan.suite.graders for case in plan.suite.cases if (extra := grader.extra_for(case))}
    missing = {extra for extra in needed if not has_extra(extra)}
    if not missing:
        return
    for turn in (turn for turns in plan.chains() for turn in turns):
        for call in turn.with_dependents:
            for grader in call.grading.graders:
                extra = grader.extra_for(call.case)
                if extra in missing and grader.key not in call.grading.optional_graders:
                    raise UsageError(f"grader {grader.key!r}: {needs(extra)}")


def prepare_run(plan: Plan, components: Components, options: RunOptions) -> PreparedRun:
    """Creates a run, or opens the run to resume with its remaining work. Raises ``UsageError``."""
    until = until_of(options)
    stored = None if options.resume is None else read_info(options.resume)
    if until is not None and stored is not None:
        plan = replace(plan, case_samples=stored.case_samples)
    info = describe_run(plan, run_id=options.run_id, note=options.note, command_line=options.command_line)
    if until is not None:
        record = first_record(plan, until, None if stored is None else stored.until_decided)
        info = info.model_copy(update={"until_decided": record})
    if options.resume is None:
        writer = create_run(options.suite.runs, info)
        hint = _resume_hint(writer.folder, plan, info, options)
        return PreparedRun(plan, components, writer, every_cell, plan.cells, hint, _warnings(plan))
    if stored is not None and (source := stored.graded_from) is not None:
        raise UsageError(
            f"{options.resume} grades the outputs of {source}: repeat that 'visioneval grade' command instead"
        )
    folder = claim_run(options.resume)
    try:
        return _resume(plan, components, info, options, folder)
    except BaseException:
        release_run(folder)
        raise


def _resume(plan: Plan, components: Components, info: RunInfo, options: RunOptions, folder: Path) -> PreparedRun:
    """Opens a run that is claimed, with its remaining work."""
    stored = read_info(folder)
    rest = plan_resume(
        plan,
        read_records(folder),
        folder,
        keep_errors=options.keep_errors,
        retry_unusable=options.calls.reuse.retry_unusable,
        since=writing_ended(stored),
    )
    # these records must not count if this run stops before it generates their outputs again
    stale = rest.stale | rest.changed.keys() | rest.outdated
    writer = resume_run(folder, resumed_info(stored, info, uses_stored_suite=plan.loaded.is_from_run), stale)
    forget_changed_pairs(rest, stored, plan, folder)
    notes = [*_warnings(plan), f"resuming {display_name(folder)}: {rest}"]
    if rest.stale:
        notes.append(f"{len(rest.stale)} cells are no longer in the suite: moved to stale.jsonl")
    if rest.changed:
        paths = sorted(rest.changed.values())
        more = f" and {len(paths) - MAX_CHANGED:,} more" if len(paths) > MAX_CHANGED else ""
        notes.append(f"changed after they were generated, so generated again: {', '.join(paths[:MAX_CHANGED])}{more}")
    hint = _resume_hint(writer.folder, plan, info, options)
    return PreparedRun(plan, components, writer, rest.jobs, rest.cells, hint, tuple(notes))


def _resume_hint(folder: Path, plan: Plan, info: RunInfo, options: RunOptions) -> str:
    """How to resume a run: by its command line, or by the settings as flags for one of the Python API."""
    words = without_secrets(options.command_line or options.words, plan, info.hidden_vars)
    suite = None if plan.loaded.is_from_run else plan.loaded.path
    return f"to resume: {resume_command(folder, words, suite, info.hidden_vars)}"


def _warnings(plan: Plan) -> tuple[str, ...]:
    warnings = tuple(map(str, plan.loaded.warnings))
    shard = plan.selection.shard
    return warnings if plan.cells or shard is None else (*warnings, f"shard {shard} has no cases: nothing to run")


def prepare_grading(
    source: RunToGrade, suite: Path | None, options: RunOptions, warn: Callable[[str], None]
) -> PreparedRun:
    """Creates a run that grades the outputs of ``source`` by its own suite, or by ``suite``. Generates nothing.

    Raises ``SuiteError``, ``UsageError`` and ``BudgetError``.
    """
    fetch_outputs(source.folder)
    plan = replace(plan_grading(source, suite, options.suite), generates=False)
    check_redact(options.redact, plan.whole_suite)
    info = describe_run(plan, run_id=options.run_id, note=options.note, command_line=options.command_line)
    info = info.model_copy(update={"graded_from": source.name, "until_decided": graded_samples(source.info, plan)})
    records, reuse_scores = read_records(source.folder), options.calls.reuse.judgements
    grading = plan_regrade(plan, records, source.folder, source.info.run_id, reuse_scores=reuse_scores)
    is_free = not grading.graded and not of_kind(plan.suite.graders, PAIR)
    if not is_free:
        check_budget(plan, options.calls)
    check_session(plan, options.calls, warn)
    components = build_components(plan, offline=options.calls.reuse.offline or is_free)
    writer = create_run(options.suite.runs, info)
    try:
        copy_questions(source.folder, writer.folder)
    except BaseException:
        release_run(writer.folder)
        raise
    notes = (*_warnings(plan), *filter(None, [str(grading)]))
    # in a new run, because the id of this one exists
    again = f"to grade the rest, repeat the command{' with another --run-id' * (options.run_id is not None)}"
    asks = "which asks all judges again; without --reuse none, it reuses cached answers"
    hint = f"{again}, {'which reuses cached judge answers' if reuse_scores else asks}"
    return PreparedRun(plan, components, writer, grading.jobs, plan.cells, hint, notes)


def plan_grading(source: RunToGrade, suite: Path | None, options: SuiteOptions) -> Plan:
    """The plan. Without flags, it selects what the source selected; of another suite, all graders."""
    flags = options.selection
    if source.label is not None:
        if flags.models:
            raise UsageError(f"{source.name!r} already names the model run: leave out --model")
        flags = flags.model_copy(update={"models": (source.label,)})
    samples, case_samples = source.info.suite.samples, source.info.case_samples
    if suite is None:
        selection = narrowed_further(source.info.suite, source.info.selection, flags)
        return replace(
            load_stored_plan(source.folder, replace(options, selection=selection), samples=samples),
            case_samples=case_samples,
        )
    options = replace(options, selection=merged(source.info.selection, flags))
    planned = load_plan(suite, options, samples=samples)
    check_secrets(source.folder, secrets_to_give(source.info, planned), options)
    return replace(planned, case_samples=case_samples)


def graded_samples(source: RunInfo, plan: Plan) -> UntilDecided | None:
    """The samples of a run of ``grade``: those that its source has. What they decide is known at its end."""
    if source.until_decided is None:
        return None
    return source.until_decided.model_copy(update={"gates": (), "baseline": None, "most_cells": plan.cells})


def now() -> str:
    """The time as ISO 8601 in UTC, to the millisecond: two runs of a second have an order."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def new_run_id(suite: str) -> str:
    """``YYYYMMDD-HHMMSS-<suite>-<4 hex>``, in local time."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{re.sub(r'[^A-Za-z0-9_.-]', '-', suite)}-{secrets.token_hex(2)}"


def describe_run(plan: Plan, *, run_id: str | None, note: str | None, command_line: tuple[str, ...]) -> RunInfo:
    """The ``run.json`` of a new run. Secrets in variables, the command line and the note are removed."""
    sanitizer = sanitizer_for(plan)
    text = sanitizer.text
    suite = plan.whole_suite
    hidden = tuple(name for name, value in suite.vars.items() if name in plan.secrets or sanitizer.hides(value))
    if hidden:
        suite = suite.model_copy(update={"vars": {**suite.vars, **dict.fromkeys(hidden, HIDDEN)}})
    return RunInfo(
        run_id=new_run_id(plan.suite.name) if run_id is None else run_id,
        state="running",
        started_at=now(),
        planned_cells=plan.cells,
        visioneval_version=__version__,
        python_version=platform.python_version(),
        experiment=plan.suite.experiment,
        note=None if note is None else text(note),
        command_line=without_secrets(command_line, plan, hidden),
        git_commit=_git_commit(plan.folder),
        suite_path=text(plan.loaded.path),
        source_sha256=plan.loaded.source_sha256,
        selection=plan.selection,
        metrics=plan.metrics,
        hidden_vars=hidden,
        suite=suite,
    )


def without_secrets(words: tuple[str, ...], plan: Plan, hidden: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without keys and the values of ``hidden`` variables."""
    text = sanitizer_for(plan).text
    starts = [start for name in hidden for start in (f"{name}=", f"--var={name}=")]
    return tuple(text(next((f"{start}{HIDDEN}" for start in starts if word.startswith(start)), word)) for word in words)


def resumed_info(stored: RunInfo, current: RunInfo, *, uses_stored_suite: bool) -> RunInfo:
    """The ``run.json`` of a resumed run: the stored one with the current suite and versions.

    With ``uses_stored_suite`` the resume named no suite, so the original command line stays.
    """
    names = _CURRENT_FIELDS if uses_stored_suite else (*_CURRENT_FIELDS, "command_line")
    changed = {name: getattr(current, name) for name in names}
    again = {"state": "running", "ended_at": None, "stopped_by": None, "resumed_at": (*stored.resumed_at, now())}
    return stored.model_copy(update=changed | again)


_CURRENT_FIELDS = (
    "planned_cells", "visioneval_version", "python_version", "experiment", "git_commit", "suite_path", "source_sha256",
    "suite", "hidden_vars", "metrics", "selection", "until_decided",
)  # fmt: skip


def _git_commit(folder: Path) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed words and the suite's folder
            ["git", "-C", str(folder), "rev-parse", "HEAD"],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout.strip()
