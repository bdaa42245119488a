"""The result of a run: what is printed, and the report files that are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from visioneval.cli import options
from visioneval.settings import RUNS

if TYPE_CHECKING:
    from visioneval.api.runs import Run


def show_result(result: Run, output: options.ResultOptions, *, offline: bool = False) -> None:
    """Prints a finished run. A reader that has closed the output does not change the exit code.

    ``offline``: the run took all answers from the cache.
    """
    from visioneval.records.resume_command import asking_hint, stopped_text
    from visioneval.report.outcome import diversity_text, never_asked_text, unjudged_pairs_text
    from visioneval.report.terminal.run.summary import last_lines, outcome_line, print_summary

    summary = result.summary
    with options.ignore_closed_output():
        if output.as_json:
            print(summary.model_dump_json())
        if result.error is not None:
            options.say(result.error)
            options.say(stopped_text(result.folder, result.resume_hint))
            return
        if not output.as_json and not output.quiet:
            print_summary(summary, options.console(), all_metrics=False)
        text = never_asked_text(summary.never_asked)
        if text and summary.state == "complete":
            options.say(f"{text}; {asking_hint(result.folder, result.info, lacks_outputs=summary.lacks_outputs)}")
        if summary.unjudged_pairs:
            options.say(f"{unjudged_pairs_text(summary.unjudged_pairs)}; {result.resume_hint}")
        if text := diversity_text(summary):
            options.say(f"{text}; {result.resume_hint}")
        if summary.state == "interrupted":
            reason = "the budget is used up" if summary.stopped_by == "budget" else "interrupted"
            options.say(f"{reason}: {summary.counts.cells} of {summary.planned_cells} cells are recorded")
            options.say(str(result.resume_hint))
        if not output.as_json and not output.quiet:
            print_pairs(result)
            options.console().print(outcome_line(summary))  # again: the first lines have scrolled away
        lines = last_lines(result.folder, summary, RUNS, offline=offline)
        if output.as_json:
            options.say(lines)
        else:
            print(lines.splitlines()[0] if output.quiet else lines)


def print_pairs(result: Run) -> None:
    """Prints what judges preferred among the model runs of a run, if its suite compares them."""
    from visioneval.analysis.compare.preferences import preferences_within

    if preferences := preferences_within(result.folder, result.info):
        from visioneval.report.console import print_section
        from visioneval.report.preferences import preferences_section

        print_section(preferences_section(preferences), options.console())
        print()


def check_reports(*paths: Path | None) -> None:
    """Raises ``UsageError`` if a report cannot be written, before any paid call."""
    from visioneval.report.files import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def write_reports(runs: Sequence[Run], junit: Path | None, markdown: Path | None) -> None:
    """Writes all runs into one file of each kind. Raises ``UsageError`` if a file cannot be written."""
    from visioneval.report.files import write_report

    if junit is not None:
        from visioneval.report.junit import junit_xml

        write_report(junit, junit_xml([(run.folder, run.info, run.records, run.summary) for run in runs]))
    if markdown is not None:
        from visioneval.report.markdown import summary_markdown

        write_report(markdown, "\n".join(summary_markdown(run.summary) for run in runs))
