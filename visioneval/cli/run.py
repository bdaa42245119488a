"""The command ``run``: load, expand, run every cell, summarise, gate, exit."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.analysis.summary import Summary
    from visioneval.engine.tools import Tools
    from visioneval.plan import Plan
    from visioneval.records import RunInfo, RunWriter, Selection

SEVEREST = (130, 2, 3, 1, 0)


@dataclass(frozen=True, slots=True)
class Flags:
    """What ``run`` was asked, apart from the suites."""

    chosen: Selection
    out: Path
    run_id: str | None
    note: str | None
    samples: int | None
    given: list[str] | None
    max_concurrency: int
    as_json: bool
    quiet: bool
    trust: bool


def run(
    suites: options.Suites,
    out: options.Out = options.RUNS,
    run_id: Annotated[str | None, typer.Option("--run-id", help="Instead of a generated id.")] = None,
    note: Annotated[str | None, typer.Option("--note", help="Kept with the run and listed by 'runs'.")] = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    model: options.Models = None,
    grader: options.Graders = None,
    limit: options.Limit = None,
    samples: options.Samples = None,
    var: options.Variables = None,
    max_concurrency: Annotated[
        int, typer.Option("--max-concurrency", min=1, max=4096, help="Cells in the works at once.")
    ] = 64,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; call and write nothing.")] = False,
    no_fail: Annotated[
        bool, typer.Option("--no-fail", help="Exit 0 where a gate does not hold (and only then).")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The summary as one line of JSON per suite on standard output.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the last line.")] = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Run suites: draw or read every picture, grade it, and gate on the verdicts.

    Each suite becomes one run; the exit code is the worst of them.
    """
    if run_id is not None and len(suites) > 1:
        raise UsageError("--run-id names one run: give one suite")
    flags = Flags(
        options.selection(case, tag, model, grader, limit),
        out,
        run_id,
        note,
        samples,
        var,
        max_concurrency,
        as_json,
        quiet,
        trust_suite,
    )
    if dry_run:
        _print_plans(suites, flags)
        return
    codes = [_run_one(path, flags) for path in suites]
    worst = min(codes, key=SEVEREST.index)
    raise typer.Exit(0 if no_fail and worst == 1 else worst)


def _print_plans(suites: list[Path], flags: Flags) -> None:
    from visioneval.cli.plan_table import print_plan

    for path in suites:
        _, plan = options.load_and_expand(
            path, flags.chosen, given=flags.given, trust=flags.trust, samples=flags.samples, out=flags.out
        )
        print_plan(plan, options.console())


def _run_one(path: Path, flags: Flags) -> int:
    from visioneval.analysis.summary import summarise
    from visioneval.engine.provenance import describe_run
    from visioneval.engine.tools import build_tools
    from visioneval.records import RunWriter, read_records

    loaded, plan = options.load_and_expand(
        path, flags.chosen, given=flags.given, trust=flags.trust, samples=flags.samples, out=flags.out
    )
    tools = build_tools(plan)
    info = describe_run(
        plan, loaded, flags.chosen, run_id=flags.run_id, note=flags.note, command_line=tuple(sys.argv[1:])
    )
    writer = RunWriter.create(flags.out, info)
    info = _execute(plan, tools, writer, flags)
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
            complete = execute(plan, tools, writer, max_concurrency=flags.max_concurrency, watch=watch)
    except StorageError:
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
    line = last_line(folder, summary)
    if flags.as_json:
        options.say(line)
    else:
        print(line)
