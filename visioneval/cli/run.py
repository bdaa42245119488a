"""The command ``run``: load, expand, run every cell, summarize, gate, exit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval import bounds
from visioneval.cli import options
from visioneval.cli.bound_flags import bounded
from visioneval.cli.reports import check_reports, write_reports
from visioneval.cli.running import OutputOptions, PreparedRun, carry_out, resume_command
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.engine.call_settings import CallSettings
    from visioneval.engine.components import Components
    from visioneval.plan import Plan
    from visioneval.records.model import Selection
    from visioneval.suite.load import LoadedSuite

SEVEREST = (130, 2, 3, 1, 0)


@dataclass(frozen=True, slots=True)
class Flags:
    """What ``run`` was asked, apart from the suites."""

    chosen: Selection
    out: Path
    run_id: str | None
    note: str | None
    session: CallSettings
    shown: OutputOptions
    resume: Path | None = None
    keep_errors: bool = False
    own_suite: bool = False
    """Whether a run is gone on with by the suite that it holds, none being named."""


@bounded(*bounds.ALL)
def run(
    suites: options.OptionalSuites = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    samples: options.Samples = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    out: options.Out = options.RUNS,
    run_id: options.RunId = None,
    note: options.Note = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    no_fail: options.NoFail = False,
    resume: Annotated[
        str | None,
        options.value("--resume", "RUN", "Go on with a run: its own suite, or the one that is given.", options.CALLS),
    ] = None,
    keep_errors: Annotated[
        bool,
        options.flag("--keep-errors", "With --resume: leave cells as they are that ended in an error.", options.CALLS),
    ] = False,
    reuse: options.ReuseAnswers = options.Reused.judges,
    offline: options.Offline = False,
    cache: options.CacheFolder = None,
    budget: options.BudgetUsd = None,
    max_concurrency: options.MaxConcurrency = 64,
    log_file: options.LogFile = None,
    debug: options.Debug = False,
    dry_run: Annotated[bool, options.flag("--dry-run", "Show the plan; call and write nothing.")] = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Run suites: generate or read every image, grade it, and gate on the verdicts.

    Each suite becomes one run; the exit code is the worst of them. All suites are checked before the first runs.
    """
    given = suites or []
    _check_usage(
        given,
        resume,
        run_id=run_id,
        note=note,
        as_json=as_json,
        dry_run=dry_run,
        keep_errors=keep_errors,
        reports=(junit, markdown),
    )
    chosen = options.selection(case, tag, model, grader, limit)
    changes = options.SuiteFlags.of(out, trust=trust_suite, var=var, judge=judge, samples=samples)
    resumed = options.run_folder(resume, out) if resume is not None else None
    if resumed is not None:
        chosen = options.held_selection(resumed, chosen)
    if resumed is not None and not given:
        if judge or not changes.variables.keys() <= set(options.hidden_vars(resumed)):
            raise UsageError("--var and --judge change a suite: name it beside --resume")
        planned = [options.load_held(resumed, chosen, changes)]
    else:
        planned = options.load_all(given, chosen, changes)
    if resumed is not None:
        options.check_same_suite(resumed, planned[0][1], changes)
    if dry_run:
        _print_plans(planned, out, budget)
        return
    session = options.session(
        options.reuse_of(reuse, offline=offline, resume_command=resumed is not None),
        cache,
        budget,
        max_concurrency,
        log_file,
        debug=debug,
    )
    flags = Flags(chosen, out, run_id, note, session, OutputOptions(as_json, quiet), resumed, keep_errors, not given)
    check_reports(junit, markdown)
    folders: list[Path] = []
    try:
        worst = min(_run_all(planned, flags, folders), key=SEVEREST.index)
    finally:
        write_reports(folders, junit, markdown)
    raise typer.Exit(0 if no_fail and worst == 1 else worst)


def _check_usage(
    suites: list[Path],
    resume: str | None,
    *,
    run_id: str | None,
    note: str | None,
    as_json: bool,
    dry_run: bool,
    keep_errors: bool,
    reports: tuple[Path | None, ...],
) -> None:
    if not suites and resume is None:
        raise UsageError("name a suite, or a run to go on with: --resume RUN")
    if resume is not None and (len(suites) > 1 or run_id is not None or note is not None):
        raise UsageError("--resume goes on with one run: it goes with one suite at most, without --run-id and --note")
    if keep_errors and resume is None:
        raise UsageError("--keep-errors is about what a run has already: it goes with --resume")
    if run_id is not None and len(suites) > 1:
        raise UsageError("--run-id names one run: give one suite")
    if dry_run and (as_json or any(each is not None for each in (run_id, note, *reports))):
        raise UsageError("--dry-run runs nothing: it goes without --json, --run-id, --note, --junit and --markdown")


def _print_plans(planned: Sequence[tuple[LoadedSuite, Plan]], out: Path, budget: float | None) -> None:
    from visioneval.cli.plan_table import print_plan

    for _, plan in planned:
        print_plan(plan, options.console(), out, budget)


def _run_all(planned: Sequence[tuple[LoadedSuite, Plan]], flags: Flags, folders: list[Path]) -> list[int]:
    """The exit code of each suite, its run's folder being added; an interrupt is for all that are still to come."""
    from visioneval.engine.call_settings import check_budget, check_session
    from visioneval.engine.components import build_components

    for _, plan in planned:
        check_budget(plan, flags.session)
    for _, plan in planned:
        check_session(plan, flags.session, options.say)
    tools = [build_components(plan, offline=flags.session.reuse.offline) for _, plan in planned]
    codes: list[int] = []
    for (loaded, plan), own in zip(planned, tools, strict=True):
        begun = _begun(loaded, plan, own, flags)
        folders.append(begun.writer.folder)
        codes.append(carry_out(begun, flags.session, flags.shown))
        if codes[-1] == 130:
            break
    return codes


def _begun(loaded: LoadedSuite, plan: Plan, tools: Components, flags: Flags) -> PreparedRun:
    """The run to write, new or gone on with, and what there is to do for it."""
    from visioneval.engine.provenance import describe_run, resumed_info
    from visioneval.engine.resume import forget_changed_pairs, plan_resume
    from visioneval.engine.run import every_cell
    from visioneval.records.model import read_info, read_records
    from visioneval.records.writer import RunWriter

    info = describe_run(
        plan, loaded, flags.chosen, run_id=flags.run_id, note=flags.note, command_line=tuple(sys.argv[1:])
    )
    if flags.resume is None:
        writer = RunWriter.create(flags.out, info)
        again = resume_command(writer.folder, info.command_line, loaded.path, info.hidden_vars)
        return PreparedRun(plan, tools, writer, every_cell, plan.cells, again)
    held = read_info(flags.resume)
    if held.graded_from is not None:
        raise UsageError(f"{flags.resume} grades the images of {held.graded_from}: run that 'visioneval grade' again")
    rest = plan_resume(plan, read_records(flags.resume), flags.resume, keep_errors=flags.keep_errors)
    writer = RunWriter.resume(flags.resume, resumed_info(held, info, uses_stored_suite=flags.own_suite), rest.stale)
    forget_changed_pairs(rest, held, plan, flags.resume)
    if not flags.shown.quiet:
        options.say(f"going on with {flags.resume}: {rest}")
        if rest.stale:
            options.say(f"{len(rest.stale)} cells are not in the suite any more: they are now in stale.jsonl")
    named = None if flags.own_suite else loaded.path
    again = resume_command(writer.folder, info.command_line, named, info.hidden_vars)
    return PreparedRun(plan, tools, writer, rest.jobs, rest.cells, again)
