"""Commands that read runs: runs, show, export."""

from __future__ import annotations

import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from visioneval.cli import options
from visioneval.cli.run_lookup import read_run
from visioneval.cli.running import resume_command, resume_hint, show_preferences
from visioneval.errors import RunFormatError, UsageError

if TYPE_CHECKING:
    from visioneval.analysis.findings import Counts
    from visioneval.records.model import Record, RunInfo
    from visioneval.suite.case import TestCase


SHOWN_STOPPED = 5


class VerdictChoice(StrEnum):
    """The verdicts that can be asked for."""

    passed = "PASS"
    failed = "FAIL"
    error = "ERROR"


def list_all(
    out: options.RunsFolder = options.RUNS,
    experiment: Annotated[str | None, options.value("--experiment", "NAME", "Only runs of this experiment.")] = None,
) -> None:
    """List the runs of a folder, by experiment, oldest first."""
    from visioneval.records.model import list_runs
    from visioneval.records.run_state import current_state
    from visioneval.report.terminal.run_list import ListedRun, print_runs

    listed = list_runs(out)
    for path in sorted({each.parent for each in out.glob("*/run.json")} - {path for path, _ in listed}):
        options.say(f"{path}: left out: its run.json cannot be read")
    found = [
        (path, {**info, "state": current_state(path, info.get("state"))})
        for path, info in listed
        if experiment in (None, info.get("experiment"))
    ]
    if not found:
        print(f"{out}: no runs here" + (f" of the experiment {experiment!r}" if experiment else ""))
        return
    print_runs([ListedRun(path.name, info, _counts(path)) for path, info in found], options.console())
    stopped = [path for path, info in found if info["state"] == "stopped" and not info.get("graded_from")]
    for path in stopped[-SHOWN_STOPPED:]:
        options.say(f"stopped: the writer of {path} was killed; to go on: {resume_command(path)}")


def _counts(folder: Path) -> Counts | None:
    from visioneval.analysis.accumulators import count
    from visioneval.records.model import read_records
    from visioneval.report.text import clean

    try:
        return count(read_records(folder))
    except RunFormatError as error:
        options.say(clean(str(error)))
        return None


def show(
    run: options.RunName,
    case: Annotated[str | None, options.word("CASE", "A case id: its cells are shown in full.")] = None,
    sample: Annotated[int | None, options.value("--sample", "N", "Only this sample of a case.", min=0)] = None,
    verdict: Annotated[
        VerdictChoice | None, options.value("--verdict", "PASS|FAIL|ERROR", "Only such cells.", case_sensitive=False)
    ] = None,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Show a run's summary, or the cells of one case in full: what was asked, the scores, the reasons."""
    from visioneval.analysis.summary import in_order, summarize
    from visioneval.report.terminal.cell import print_cells
    from visioneval.report.terminal.summary import print_summary

    folder, info, records = read_run(run, out)
    if case is None:
        if sample is not None or verdict is not None:
            raise UsageError("--sample and --verdict choose among the cells of a case: name one")
        print_summary(summarize(info, records), options.console())
        show_preferences(folder, info.run_id)
        if line := resume_hint(folder, info):
            options.say(line)
        return
    cells = [
        record
        for record in in_order(info, records)
        if record.test_id == case
        and sample in (None, record.sample_index)
        and (verdict is None or record.verdict.value == verdict.value)
    ]
    if not cells:
        raise UsageError(_no_cell(case, records))
    print_cells(cells, _asked(info, case), folder, options.console())


def _asked(info: RunInfo, case: str) -> TestCase | None:
    """The case, with its criteria as judges saw them."""
    from visioneval.errors import TemplateError
    from visioneval.suite.prompts import rendered

    found = next((each for each in info.suite.cases if each.id == case), None)
    if found is None or not found.criteria:
        return found
    with suppress(TemplateError):
        return found.model_copy(update={"criteria": rendered(found, info.suite.vars)[1]})
    return found


def _no_cell(case: str, records: list[Record]) -> str:
    from visioneval.suite.loading.messages import did_you_mean

    ids = {record.test_id for record in records}
    if case in ids:
        return f"{case!r}: this run has no such cell of this case"
    return f"no case {case!r} in this run{did_you_mean(case, ids)}"


def export(
    run: options.RunName,
    output: Annotated[Path | None, options.value("--output/-o", "FILE", "Instead of standard output.")] = None,
    form: Annotated[
        str | None,
        options.value(
            "--format", "csv|jsonl", "csv: a row per cell; jsonl: whole records. Default: the file's ending."
        ),
    ] = None,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Export the cells of a run.

    In CSV, text that begins with =, +, - or @ gets an apostrophe before it: a spreadsheet would take it for a formula.
    """
    from visioneval.analysis.summary import in_order
    from visioneval.export.csv import write_csv
    from visioneval.export.labels import format_of

    chosen = format_of(form, output, ("csv", "jsonl"))
    _, info, records = read_run(run, out)
    cells = in_order(info, records)

    def write(target: TextIO) -> None:
        if chosen == "csv":
            write_csv(cells, list(info.metrics), target)
        else:
            target.writelines(cell.model_dump_json() + "\n" for cell in cells)

    if output is None:
        write(sys.stdout)
        return
    try:
        with output.open("w", encoding="utf-8", newline="") as file:
            write(file)
    except OSError as error:
        raise UsageError(f"{output}: cannot write: {error.strerror or error}") from None
    print(f"wrote {output}")
