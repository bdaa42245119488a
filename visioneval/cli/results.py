"""The result of a run: what is printed, and the report files that are written."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.cli import options
from visioneval.settings import RUNS

if TYPE_CHECKING:
    from visioneval.analysis.summary.summary import Summary
    from visioneval.api.runs import Run

_NOT_CACHED_HINT = (
    "offline: the cache lacks answers; run the suite once with a key and --cache FOLDER, without --offline, and commit"
    " FOLDER"
)


def show_result(result: Run, output: options.ResultOptions, *, offline: bool = False) -> None:
    """Prints a finished run. A reader that has closed the output does not change the exit code.

    ``offline``: the run took all answers from the cache.
    """
    from visioneval.records.runs import asking_hint, stopped_text
    from visioneval.report.outcome import never_asked_text, not_compared
    from visioneval.report.run import run_report
    from visioneval.report.terminal import print_end, print_report

    summary = result.summary
    report = run_report(summary, with_judges=output.full)
    with options.ignore_closed_output():
        if output.as_json:
            print(summary.model_dump_json())
        if result.error is not None:
            options.say(result.error)
            options.say(stopped_text(result.folder, result.resume_hint))
            return
        if not output.as_json and not output.quiet:
            print_report(report, options.console(), is_full=output.full)
        text = never_asked_text(summary.never_asked)
        if text and summary.state == "complete":
            options.say(f"{text}; {asking_hint(result.folder, result.info, lacks_outputs=summary.lacks_outputs)}")
        for text in not_compared(summary):
            options.say(f"{text}; {result.resume_hint}")
        if summary.state == "interrupted":
            reason = "the budget is used up" if summary.stopped_by == "budget" else "interrupted"
            options.say(f"{reason}: {summary.counts.cells} of {summary.planned_cells} cells are recorded")
            options.say(str(result.resume_hint))
        lines = last_lines(result.folder, summary, RUNS, offline=offline)
        if output.as_json:
            options.say("\n".join(lines))
        elif output.quiet:
            print(lines[0])
        else:
            print_pairs(result)
            print_end(report, options.console())
            print("\n".join(lines))


def last_lines(folder: Path, summary: Summary, default: Path, *, offline: bool = False) -> list[str]:
    """The run folder, what an offline run lacks, the next commands. Uses the run id if the run is in ``default``."""
    from visioneval.records.stores.lookup import display_name
    from visioneval.report.text import clean

    location = display_name(folder)
    name = folder.name if folder.parent == default else location
    has_cells = summary.counts.cells or summary.state != "interrupted"
    commands = [["visioneval", "report", name, "--open"]] if has_cells else []
    first = next((cell for cell in summary.failing if cell.failed_gates), next(iter(summary.failing), None))
    if first is not None:
        commands.insert(0, ["visioneval", "show", f"{name}@{first.model_label}", first.test_id])
    hints = [_NOT_CACHED_HINT] if offline and summary.never_asked else []
    return [f"run: {clean(location)}", *hints, *(f"next: {clean(shlex.join(command))}" for command in commands)]


def print_pairs(result: Run) -> None:
    """Prints what judges preferred among the model runs of a run, if its suite compares them."""
    from visioneval.analysis.preferences import preferences_within

    if preferences := preferences_within(result.folder, result.info):
        from visioneval.report.ranking import preferences_section
        from visioneval.report.terminal import print_section

        print_section(preferences_section(preferences), options.console())
        print()


def check_reports(*paths: Path | None) -> None:
    """Raises ``UsageError`` if a report cannot be written, before any paid call."""
    from visioneval.atomic import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def write_reports(runs: Sequence[Run], junit: Path | None, markdown: Path | None) -> None:
    """Writes all runs into one file of each kind. Raises ``UsageError`` if a file cannot be written."""
    from visioneval.atomic import write_report

    if junit is not None:
        from visioneval.report.junit import junit_xml

        write_report(junit, junit_xml([(run.folder, run.info, run.records, run.summary) for run in runs]))
    if markdown is not None:
        from visioneval.report.markdown import MAX_ROWS, report_markdown
        from visioneval.report.run import run_report

        reports = (run_report(run.summary, examples=MAX_ROWS) for run in runs)
        write_report(markdown, "\n".join(map(report_markdown, reports)))
