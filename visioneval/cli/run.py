"""The commands ``run``, ``grade`` and ``merge``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from visioneval import bounds
from visioneval.cli import options
from visioneval.errors import ExitCode, UsageError
from visioneval.settings import RUNS, SETTINGS, GradeKeywords, settings_of

if TYPE_CHECKING:
    from visioneval.api.running import FinishedRun
    from visioneval.running.plan import Plan
    from visioneval.running.prepare import RunOptions


@options.with_settings(*SETTINGS, bounds=bounds.ALL)
def run(
    settings: dict[str, Any],
    suites: options.OptionalSuites = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    full: options.Full = False,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    code_quality: options.CodeQuality = None,
    no_fail: options.NoFail = False,
    dry_run: Annotated[bool, options.flag("--dry-run", "Show the plan; make no calls and write nothing.")] = False,
) -> None:
    """Run suites: generate or read every image, grade it, check the gates.

    Checks all suites first. Each suite becomes one run. The exit code is the most severe one.

    Examples:
        visioneval run suite.yaml
        visioneval run suite.yaml --case 'bread*' --samples 3 --budget 5
        visioneval run --resume latest
    """
    from visioneval.api.options import run_options
    from visioneval.running.prepare import plan_runs

    files = junit, markdown, code_quality
    if dry_run and (as_json or any(files) or settings.keys() & {"run_id", "note"}):
        unused = "--json, --run-id, --note, --junit, --markdown and --code-quality"
        raise UsageError(f"--dry-run writes nothing: leave out {unused}")
    run_settings = run_options(**settings, command_line=tuple(sys.argv[1:]))
    with options.prints_on_stderr():
        planned = plan_runs(suites or [], run_settings)
    if dry_run:
        _print_plans(planned, run_settings)
        return
    code = _run(planned, run_settings, options.ResultOptions(as_json, quiet, full), files)
    raise options.exit_with(code, no_fail=no_fail)


def _print_plans(planned: Sequence[Plan], settings: RunOptions) -> None:
    from visioneval.api.suites import estimate_plan
    from visioneval.cli.plan_table import print_plan

    for warning in (warning for suite in planned for warning in suite.loaded.warnings):
        options.say(str(warning))
    for suite in planned:
        print_plan(estimate_plan(suite, settings), options.console())


def _run(
    planned: Sequence[Plan],
    settings: RunOptions,
    output: options.ResultOptions,
    files: tuple[Path | None, Path | None, Path | None],
) -> ExitCode:
    """Runs all suites and shows each result. Returns the most severe exit code.

    Writes the reports into ``files``, unless an error comes before the first result.
    """
    from visioneval.api.running import run_planned
    from visioneval.cli.compare import print_comparison
    from visioneval.cli.results import check_reports, progress_of, show_result, write_reports

    check_reports(*files)
    finished: list[FinishedRun] = []
    try:
        results = run_planned(planned, settings, progress_of(output, debug=settings.calls.debug), options.say)
        while True:
            with options.prints_on_stderr():
                result = next(results, None)
            if result is None:
                break
            finished.append(result)
            show_result(result, output, offline=settings.calls.reuse.offline)
            if result.comparison is not None and not output.quiet:
                print_comparison(result.comparison, as_json=output.as_json)
    finally:
        if finished:
            write_reports(finished, *files)
    return ExitCode.most_severe(result.exit_code for result in finished)


@options.with_settings(*settings_of(GradeKeywords), "debug", bounds=bounds.ALL)
def grade(
    name: options.RunName,
    settings: dict[str, Any],
    suite: Annotated[
        Path | None, options.value("--suite", "SUITE", "Grade with this suite instead of the run's own.")
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    full: options.Full = False,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    no_fail: options.NoFail = False,
) -> None:
    """Grade the images of a run again, into a new run. Generates nothing.

    Use it after you changed the suite's graders or rules, or with another judge. Then compare RUN with the new run.

    Examples:
        visioneval grade latest
        visioneval grade latest --suite stricter.yaml
        visioneval grade latest --judge default=openai:gpt-5.4
    """
    from visioneval.api.options import run_options
    from visioneval.api.runs import grade_run
    from visioneval.cli.results import check_reports, progress_of, show_result, write_reports

    run_settings = run_options(**settings, command_line=tuple(sys.argv[1:]))
    calls = run_settings.calls
    check_reports(junit, markdown)
    output = options.ResultOptions(as_json, quiet, full)
    with options.prints_on_stderr():
        result = grade_run(name, suite, run_settings, progress_of(output, debug=calls.debug), options.say)
    show_result(result, output, offline=calls.reuse.offline)
    write_reports([result], junit, markdown)
    raise options.exit_with(result.exit_code, no_fail=no_fail)


def merge(
    names: Annotated[list[str], options.argument("RUN...", "The runs of all shards, in any order.")],
    run_id: Annotated[str, options.value("--run-id", "ID", "ID of the merged run.", options.OUTPUT)],
    runs: options.RunsFolder = RUNS,
    note: options.Note = None,
    redact: options.Redact = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    full: options.Full = False,
    junit: options.Junit = None,
    markdown: options.Markdown = None,
    no_fail: options.NoFail = False,
) -> None:
    """Combine the runs of all shards into one, and evaluate its gates.

    The result equals a run of the whole suite, except for times and IDs. Makes no network calls.

    Examples:
        visioneval merge night-1 night-2 night-3 --run-id night
        visioneval merge runs/night-shard-* --run-id night --markdown night.md
        visioneval merge night-1 night-2 --run-id night --junit night.xml
    """
    from visioneval.api.runs import merge as merge_runs
    from visioneval.cli.results import check_reports, show_result, write_reports

    check_reports(junit, markdown)
    with options.prints_on_stderr():
        result = merge_runs(*names, run_id=run_id, note=note, redact=redact or (), runs=runs, warn=options.say)
    show_result(result, options.ResultOptions(as_json, quiet, full))
    write_reports([result], junit, markdown)
    raise options.exit_with(result.exit_code, no_fail=no_fail)
