"""The command ``run``: load, expand, run every cell, summarise, gate, exit."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.cli.reports import write_reports
from visioneval.errors import AuthError, UsageError

if TYPE_CHECKING:
    from visioneval.analysis.summary import Summary
    from visioneval.engine.tools import Tools
    from visioneval.plan import Plan
    from visioneval.records import RunInfo, RunWriter, Selection
    from visioneval.suite.load import LoadedSuite

SEVEREST = (130, 2, 3, 1, 0)


@dataclass(frozen=True, slots=True)
class Flags:
    """What ``run`` was asked, apart from the suites."""

    chosen: Selection
    out: Path
    run_id: str | None
    note: str | None
    max_concurrency: int
    as_json: bool
    quiet: bool


def run(
    suites: options.Suites,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    samples: options.Samples = None,
    var: options.Variables = None,
    judge: options.Judges = None,
    out: options.Out = options.RUNS,
    run_id: Annotated[str | None, options.value("--run-id", "ID", "Instead of a generated id.", options.RESULT)] = None,
    note: Annotated[
        str | None, options.value("--note", "TEXT", "Kept with the run and listed by 'runs'.", options.RESULT)
    ] = None,
    as_json: Annotated[
        bool, options.flag("--json", "The summary as a line of JSON per suite on standard output.", options.RESULT)
    ] = False,
    quiet: Annotated[bool, options.flag("--quiet", "Only the last line.", options.RESULT)] = False,
    junit: Annotated[Path | None, options.value("--junit", "FILE", "Also as JUnit XML.", options.RESULT)] = None,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also as Markdown, for a job summary.", options.RESULT)
    ] = None,
    no_fail: Annotated[
        bool, options.flag("--no-fail", "Exit 0 where a gate does not hold (and only then).", options.RESULT)
    ] = False,
    dry_run: Annotated[bool, options.flag("--dry-run", "Show the plan; call and write nothing.")] = False,
    max_concurrency: Annotated[
        int, options.value("--max-concurrency", "N", "Drawing calls in the works at once.", min=1, max=4096)
    ] = 64,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Run suites: draw or read every picture, grade it, and gate on the verdicts.

    Each suite becomes one run; the exit code is the worst of them. All suites are checked before the first runs.
    """
    if run_id is not None and len(suites) > 1:
        raise UsageError("--run-id names one run: give one suite")
    if dry_run and (as_json or any(each is not None for each in (run_id, note, junit, markdown))):
        raise UsageError("--dry-run runs nothing: it goes without --json, --run-id, --note, --junit and --markdown")
    chosen = options.selection(case, tag, model, grader, limit)
    changes = options.SuiteFlags.of(out, trust=trust_suite, var=var, judge=judge, samples=samples)
    planned = options.load_all(suites, chosen, changes)
    if dry_run:
        _print_plans(planned)
        return
    flags = Flags(chosen, out, run_id, note, max_concurrency, as_json, quiet)
    folders: list[Path] = []
    worst = min(_run_all(planned, flags, folders), key=SEVEREST.index)
    write_reports(folders, junit, markdown)
    raise typer.Exit(0 if no_fail and worst == 1 else worst)


def _print_plans(planned: Sequence[tuple[LoadedSuite, Plan]]) -> None:
    from visioneval.cli.plan_table import print_plan

    for _, plan in planned:
        print_plan(plan, options.console())


def _run_all(planned: Sequence[tuple[LoadedSuite, Plan]], flags: Flags, folders: list[Path]) -> list[int]:
    """The exit code of each suite, its run's folder being added; an interrupt is for all that are still to come."""
    from visioneval.engine.tools import build_tools

    tools = [build_tools(plan) for _, plan in planned]
    codes: list[int] = []
    for (loaded, plan), own in zip(planned, tools, strict=True):
        codes.append(_run_one(loaded, plan, own, flags, folders))
        if codes[-1] == 130:
            break
    return codes


def _run_one(loaded: LoadedSuite, plan: Plan, tools: Tools, flags: Flags, folders: list[Path]) -> int:
    from visioneval.analysis.summary import summarise
    from visioneval.engine.provenance import describe_run
    from visioneval.records import RunWriter, read_records

    info = describe_run(
        plan, loaded, flags.chosen, run_id=flags.run_id, note=flags.note, command_line=tuple(sys.argv[1:])
    )
    writer = RunWriter.create(flags.out, info)
    folders.append(writer.folder)
    try:
        info = _execute(plan, tools, writer, flags)
    except AuthError as error:
        writer.write_summary(summarise(writer.info, read_records(writer.folder)))
        options.say(str(error))
        return error.exit_code
    summary = summarise(info, read_records(writer.folder))
    writer.write_summary(summary)
    _show(summary, writer.folder, flags)
    return summary.exit_code


def _execute(plan: Plan, tools: Tools, writer: RunWriter, flags: Flags) -> RunInfo:
    """Runs the cells, and says in ``run.json`` how that ended, whatever happens."""
    from visioneval.cli.progress import watched
    from visioneval.engine.provenance import now
    from visioneval.engine.run import execute
    from visioneval.errors import StorageError

    if not flags.quiet:
        options.say(f"{plan.suite.name}: {plan.cells} cells into {writer.folder}")
    try:
        with watched(plan.cells, quiet=flags.quiet) as watch:
            complete = execute(
                plan, tools, writer, max_concurrency=flags.max_concurrency, watch=watch, tell=options.say
            )
    except BaseException:
        with contextlib.suppress(StorageError):
            writer.finish("interrupted", now())
        options.say(f"stopped: what is recorded in {writer.folder} is kept")
        raise
    return writer.finish("complete" if complete else "interrupted", now())


def _show(summary: Summary, folder: Path, flags: Flags) -> None:
    from visioneval.report.console import last_line, print_summary

    if flags.as_json:
        print(summary.model_dump_json())
    elif not flags.quiet:
        print_summary(summary, options.console())
    if summary.state == "interrupted":
        options.say(f"interrupted: {summary.counts.cells} of {summary.planned_cells} cells are recorded")
    line = last_line(folder, summary, options.RUNS)
    if flags.as_json:
        options.say(line)
    else:
        print(line)
