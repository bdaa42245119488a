"""The commands ``baseline set``, ``add``, ``show`` and ``list``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.cli.help_pages import HelpWithoutTypes
from visioneval.counted import count_of
from visioneval.defaults import BASELINE_RUNS, MAX_BASELINE_RUNS, RUNS
from visioneval.errors import ExitCode, RunFormatError, UsageError

if TYPE_CHECKING:
    from visioneval.records.baselines import Baseline

app = typer.Typer(
    cls=HelpWithoutTypes, help="Store a run's results in a small file to commit to a repository.", no_args_is_help=True
)


Name = Annotated[str, options.value("--name", "NAME", "The name of the baseline.")]
Partial = Annotated[
    bool, options.flag("--partial", "Allow a run that was narrowed by flags, or that has not finished.")
]


@app.command("set")
def set_baseline(
    run: options.RunName, name: Name = "main", partial: Partial = False, runs: options.RunsFolder = RUNS
) -> None:
    """Write a run's results to baselines/NAME.jsonl, to be committed. It replaces all runs of the baseline."""
    from visioneval.records.baselines import baseline_path, check_replaceable, write_baseline

    path, baseline = baseline_path(name), _of_run(run, runs, partial=partial)
    check_replaceable(path, baseline.header.suite)
    write_baseline([baseline], path)
    print(f"wrote {path}: {_counts(baseline)}; commit it, then: visioneval compare baseline:{name} latest")


@app.command("add")
def add_run(
    run: options.RunName,
    name: Name = "main",
    keep: Annotated[
        int, options.value("--keep", "N", "The number of runs to keep, the newest first.", min=1, max=MAX_BASELINE_RUNS)
    ] = BASELINE_RUNS,
    partial: Partial = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Add another run of the same suite to a baseline: comparisons test against all of its runs.

    Several runs show how much equal runs differ. Add only runs that you have looked at: every run counts the same.
    """
    from visioneval.analysis.compare.baseline_runs import differing_runs
    from visioneval.records.baselines import baseline_path, check_addable, read_baseline, write_baseline

    path, baseline = baseline_path(name), _of_run(run, runs, partial=partial)
    if not path.is_file():
        raise UsageError(f"{path}: no such baseline: create it with 'visioneval baseline set {run} --name {name}'")
    stored = read_baseline(path)
    check_addable(baseline, stored, path)
    stored_runs = (baseline, *stored)[:keep]
    write_baseline(stored_runs, path)
    print(f"wrote {path}: {count_of(len(stored_runs), 'run')}, the newest with {_counts(baseline)}; commit it")
    for difference in differing_runs(stored_runs):
        options.say(f"warning: {difference}")


@app.command("show")
def show_baseline(
    name: Annotated[str, options.argument("NAME", "The name of the baseline.")] = "main",
    as_json: Annotated[bool, options.flag("--json", "Print the runs and their noise as JSON.")] = False,
) -> None:
    """Show the runs of a baseline, and how much equal runs differ."""
    import json

    from visioneval.analysis.compare.baseline_runs import summarize_runs
    from visioneval.records.baselines import baseline_path, read_baseline
    from visioneval.report.terminal.baseline import print_baseline

    path = baseline_path(name)
    if not path.is_file():
        raise UsageError(f"{path}: no such baseline: create one with 'visioneval baseline set RUN'")
    summary = summarize_runs(read_baseline(path))
    if as_json:
        print(json.dumps(summary.model_dump(mode="json"), indent=2))
    else:
        print_baseline(name, summary, options.console())


def _of_run(run: str, runs: Path, *, partial: bool) -> Baseline:
    """What a baseline stores of a run. Raises ``UsageError`` for a run that is none without ``partial``."""
    from visioneval.analysis.run_lookup import open_run, why_partial
    from visioneval.analysis.sides import writers_of
    from visioneval.records.baselines import make_baseline

    folder, info, records = open_run(run, runs, options.say)
    problem = why_partial(info, len(records))
    if not records or (problem is not None and not partial):
        raise UsageError(f"{folder}: {problem}: a baseline needs a complete run, or --partial")
    if not info.suite.has_rules:
        raise UsageError(f"{folder}: its suite has no rules, so a baseline has nothing to compare")
    return make_baseline(info, records, writers_of(info), is_partial=problem is not None)


def _counts(baseline: Baseline) -> str:
    from visioneval.types import Verdict

    passed = sum(line.verdict is Verdict.PASS for line in baseline.lines)
    return f"{count_of(len(baseline.lines), 'cell')}, {passed:,} of them passed"


@app.command("list")
def list_baselines() -> None:
    """List the baselines of this folder, with cells and pass rate of the newest run."""
    from visioneval.analysis.summary.accumulators import pass_rate
    from visioneval.records.baselines import FOLDER, read_baseline
    from visioneval.report.terminal.run.summary import show_rate
    from visioneval.report.terminal.table import Column, table

    paths = sorted(FOLDER.glob("*.jsonl"))
    if not paths:
        print(f"{FOLDER}: no baselines here: create one with 'visioneval baseline set RUN'")
        return
    rows, is_damaged = [], False
    for path in paths:
        try:
            baseline, *older = read_baseline(path)
        except RunFormatError as error:
            options.say(str(error))
            is_damaged = True
            continue
        rate = pass_rate((line.test_id, line.verdict) for line in baseline.lines)
        rows.append([path.stem, baseline.header.suite, str(1 + len(older)), str(len(baseline.lines)), show_rate(rate)])
    console = options.console()
    columns = (
        Column("baseline", min_width=12),
        Column("suite", min_width=8),
        Column("runs", right=True),
        Column("cells", right=True),
        Column("pass rate [95%]"),
    )
    if rows:
        console.print(table(columns, rows, console.width))
    if is_damaged:
        raise typer.Exit(ExitCode.USAGE)
