"""Commands that read runs: runs, show, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval.cli import options
from visioneval.errors import RunFormatError, UsageError

if TYPE_CHECKING:
    from visioneval.analysis.summary import Counts
    from visioneval.records import Record


def list_all(
    out: options.Out = options.RUNS,
    experiment: Annotated[str | None, typer.Option("--experiment", help="Only runs of this experiment.")] = None,
) -> None:
    """List the runs of a folder, by experiment, oldest first."""
    from visioneval.records import list_runs
    from visioneval.report.cell import print_runs

    found = [run for run in list_runs(out) if experiment in (None, run[1].get("experiment"))]
    if not found:
        print(f"{out}: no runs here")
        return
    print_runs([(path, info, _counts(path)) for path, info in found], options.console())


def _counts(folder: Path) -> Counts | None:
    from visioneval.analysis.summary import count
    from visioneval.records import read_records

    try:
        return count(list(read_records(folder)))
    except RunFormatError:
        return None


def show(
    run: options.RunName,
    case: Annotated[str | None, typer.Argument(metavar="[CASE]", show_default=False, help="A case id.")] = None,
    sample: Annotated[int | None, typer.Option("--sample", min=0, help="Only this sample.")] = None,
    verdict: Annotated[str | None, typer.Option("--verdict", help="Only PASS, FAIL or ERROR cells.")] = None,
    out: options.Out = options.RUNS,
) -> None:
    """Show a run's summary, or the cells of one case in full."""
    from visioneval.analysis.summary import summarise
    from visioneval.records import read_info, read_records
    from visioneval.report.cell import print_cell
    from visioneval.report.console import print_summary

    folder, label = _named(run, out)
    info = read_info(folder)
    records = [record for record in read_records(folder) if label in (None, record.model_label)]
    if case is None:
        print_summary(summarise(info, records), options.console())
        return
    cells = [
        record
        for record in records
        if record.test_id == case
        and sample in (None, record.sample_index)
        and (verdict is None or record.verdict == verdict.upper())
    ]
    if not cells:
        raise UsageError(_no_cell(case, records))
    asked = next((each for each in info.suite.cases if each.id == case), None)
    for record in cells:
        print_cell(record, asked, folder, options.console())


def _no_cell(case: str, records: list[Record]) -> str:
    from visioneval.suite.messages import did_you_mean

    ids = {record.test_id for record in records}
    if case in ids:
        return f"{case!r}: no such cell in this run"
    return f"no case {case!r} in this run{did_you_mean(case, ids)}"


def export(
    run: options.RunName,
    as_csv: Annotated[bool, typer.Option("--csv", help="One row per cell, one column per metric.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file instead of standard output.")] = None,
    out: options.Out = options.RUNS,
) -> None:
    """Make a flat table of a run."""
    from visioneval.records import read_info, read_records
    from visioneval.report.cell import write_csv

    if not as_csv:
        raise UsageError("say which form: --csv")
    folder, label = _named(run, out)
    metrics = list(read_info(folder).metrics)
    records = (record for record in read_records(folder) if label in (None, record.model_label))
    if output is None:
        write_csv(records, metrics, sys.stdout)
        return
    try:
        with output.open("w", encoding="utf-8", newline="") as file:
            write_csv(records, metrics, file)
    except OSError as error:
        raise UsageError(f"{output}: cannot write: {error.strerror or error}") from None
    print(f"wrote {output}")


def _named(name: str, out: Path) -> tuple[Path, str | None]:
    """A run and, after ``@``, the label of one of its model runs."""
    from visioneval.records import find_run, read_info
    from visioneval.suite.messages import did_you_mean
    from visioneval.suite.runs import split_run

    if (Path(name) / "run.json").is_file():
        return Path(name), None
    run, label = split_run(name)
    folder = find_run(run, out)
    labels: list[Any] = [entry.label for entry in read_info(folder).suite.models]
    if label is not None and label not in labels:
        raise UsageError(f"no model run {label!r} in {folder.name}{did_you_mean(label, labels)}")
    return folder, label
