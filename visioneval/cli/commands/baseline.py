"""The commands ``baseline set`` and ``baseline list``."""

from __future__ import annotations

from typing import Annotated

import typer

from visioneval.cli import options
from visioneval.cli.help_pages import HelpWithoutTypes
from visioneval.counted import count_of
from visioneval.defaults import RUNS
from visioneval.errors import UsageError

app = typer.Typer(
    cls=HelpWithoutTypes, help="Store a run's results in a small file to commit to a repository.", no_args_is_help=True
)


@app.command("set")
def set_baseline(
    run: options.RunName,
    name: Annotated[str, options.value("--name", "NAME", "The name of the baseline.")] = "main",
    partial: Annotated[
        bool, options.flag("--partial", "Allow a run that was narrowed by flags, or that has not finished.")
    ] = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Write a run's results to baselines/NAME.jsonl, to be committed."""
    from visioneval.analysis.run_lookup import open_run, why_partial
    from visioneval.analysis.sides import writers_of
    from visioneval.records.baselines import baseline_path, check_replaceable, make_baseline, write_baseline
    from visioneval.types import Verdict

    path = baseline_path(name)
    folder, info, records = open_run(run, runs, options.say)
    problem = why_partial(info, len(records))
    if not records or (problem is not None and not partial):
        raise UsageError(f"{folder}: {problem}: a baseline needs a complete run, or --partial")
    if not info.suite.has_rules:
        raise UsageError(f"{folder}: its suite has no rules, so a baseline has nothing to compare")
    check_replaceable(path, info.suite.name)
    baseline = make_baseline(info, records, writers_of(info), is_partial=problem is not None)
    write_baseline(baseline, path)
    passed = sum(line.verdict is Verdict.PASS for line in baseline.lines)
    print(
        f"wrote {path}: {count_of(len(baseline.lines), 'cell')}, {passed:,} of them passed; commit it, then:"
        f" visioneval compare baseline:{name} latest"
    )


@app.command("list")
def list_baselines() -> None:
    """List the baselines of this folder."""
    from visioneval.analysis.summary.accumulators import pass_rate
    from visioneval.records.baselines import FOLDER, read_baseline
    from visioneval.report.terminal.run.summary import show_rate
    from visioneval.report.terminal.table import Column, table

    paths = sorted(FOLDER.glob("*.jsonl"))
    if not paths:
        print(f"{FOLDER}: no baselines here: create one with 'visioneval baseline set RUN'")
        return
    rows = []
    for path in paths:
        baseline = read_baseline(path)
        rate = pass_rate((line.test_id, line.verdict) for line in baseline.lines)
        rows.append([path.stem, baseline.header.suite, str(len(baseline.lines)), show_rate(rate)])
    console = options.console()
    columns = (
        Column("baseline", min_width=12),
        Column("suite", min_width=8),
        Column("cells", right=True),
        Column("pass rate [95%]"),
    )
    console.print(table(columns, rows, console.width))
