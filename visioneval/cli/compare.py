"""The commands ``compare`` and ``baseline``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from visioneval.cli import completion, options
from visioneval.cli.help import Command, HelpWithoutTypes
from visioneval.errors import ExitCode, RunFormatError, UsageError, count_of
from visioneval.settings import (
    BASELINE_RUNS,
    CALLS,
    MAX_BASELINE_RUNS,
    MAX_CONFIRM,
    MAX_LAST,
    OUTPUT,
    RUNS,
    SELECTION,
    SETTINGS,
    CallKeywords,
    settings_of,
)

if TYPE_CHECKING:
    from visioneval.analysis.compare.compare import Comparison
    from visioneval.analysis.compare.pairing import CellPair
    from visioneval.api.comparisons import ComparisonResult
    from visioneval.records.baselines import Baseline
    from visioneval.records.model import Record
    from visioneval.report.sections import Report, Value


NEW_SAMPLES = (*(name for name in settings_of(CallKeywords) if name not in ("variables", "runs")), "debug")
"""The settings of new samples."""
SIDE = "Path, ID, unique prefix, 'latest', a JSONL file or baseline:NAME; RUN@LABEL for model runs (globs)."


@options.with_settings(*NEW_SAMPLES, "runs")
def compare(
    a: Annotated[str, options.argument("A", f"The baseline run. {SIDE}", autocompletion=completion.run_names)],
    settings: dict[str, Any],
    b: Annotated[
        str | None, options.argument("B", "The candidate run, named the same way; left out with --experiment.")
    ] = None,
    experiment: Annotated[
        str | None,
        options.value(
            "--experiment",
            "NAME",
            "Test the last runs of this experiment together for drift. B is the newest.",
            SELECTION,
        ),
    ] = None,
    last: Annotated[
        int | None,
        options.value(
            "--last",
            "N",
            "With --experiment: the number of runs that are tested together; default: that of the suite (compare:"
            " drift).",
            SELECTION,
            min=1,
            max=MAX_LAST,
        ),
    ] = None,
    model_map: options.ModelMap = None,
    metric: Annotated[
        list[str] | None,
        options.value(
            "--metric", "GLOB", "Only these metrics. Repeatable.", SELECTION, autocompletion=completion.metric_names
        ),
    ] = None,
    tag: options.Tags = None,
    case: options.Cases = None,
    redact: options.Redact = None,
    fail_on: Annotated[
        list[str] | None,
        options.value(
            "--fail-on",
            "WHAT",
            "broken, broken_same_output, regressed, must_pass or METRIC:NUMBER; default: broken_same_output,"
            " regressed and must_pass, with --experiment drift in the place of regressed. Repeatable.",
            OUTPUT,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        options.value(
            "--allow",
            "WHAT",
            "Accept a loss in B: missing-metrics, missing-cells, errors or errors=RATE, excuses (new in B),"
            " unmeasured=RATE (the share of pairs that a gate may leave out), or cannot-tell (too few cases)."
            " Repeatable.",
            OUTPUT,
        ),
    ] = None,
    must_detect: Annotated[
        float | None,
        options.value(
            "--must-detect",
            "POINTS",
            "Exit 3 if a drop of the pass rate by POINTS is detected with less than 80 % power; default: that of the"
            " suite (compare: must_detect).",
            OUTPUT,
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", OUTPUT)] = False,
    junit: Annotated[
        Path | None, options.value("--junit", "FILE", "Also write JUnit XML, a test case per gate.", OUTPUT)
    ] = None,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also write Markdown, for a pull request.", OUTPUT)
    ] = None,
    thumbnails: Annotated[
        Path | None,
        options.value(
            "--thumbnails",
            "DIR",
            "With --markdown: show the outputs of the first 20 cells that broke, as small images in this folder."
            " Those of a baseline come from --cache.",
            OUTPUT,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        options.value(
            "--html",
            "FILE",
            "Also write one HTML file with both images of every pair. Those of a baseline come from --cache, or from B"
            " where B has the same output.",
            OUTPUT,
        ),
    ] = None,
    code_quality: Annotated[
        Path | None,
        options.value(
            "--code-quality",
            "FILE",
            "Also write GitLab's code-quality report, an issue per cell that broke or has a new error.",
            OUTPUT,
        ),
    ] = None,
    confirm: Annotated[
        int | None,
        options.value(
            "--confirm",
            "N",
            "If regressed, must_pass or METRIC:NUMBER is uncertain, generate up to N new samples in B, of the"
            " uncertain cases or of all cases, and decide with these. Does not apply to broken and broken_same_output,"
            " which compare single cells.",
            CALLS,
            min=1,
            max=MAX_CONFIRM,
        ),
    ] = None,
    var: Annotated[
        list[str] | None,
        options.value("--var", "NAME=VALUE", "With --confirm: a secret variable of B's run. Repeatable.", CALLS),
    ] = None,
) -> None:
    """Compare run B with run A: what broke, what was fixed, by how much.

    Exits 1 if a gate (--fail-on) failed. Exits 3 if a gate cannot tell or was not measured, or if B lacks metrics,
    measured cells or cells of A, or has new excuses (see --allow).

    Makes calls only with --confirm, which needs a complete run B that generated its images.

    Examples:
        visioneval compare baseline:flyers latest
        visioneval compare 'latest@*plain' 'latest@*styled'
        visioneval compare baseline --experiment nightly --last 7
    """
    from visioneval.analysis.compare.pairing import ComparisonFilters
    from visioneval.analysis.redaction import Redaction
    from visioneval.api.comparisons import ComparisonRequest, compare_named
    from visioneval.api.options import run_options
    from visioneval.cli.results import ProgressCounts, check_reports, plain_listener

    if confirm is None:
        shows_images = thumbnails is not None or html is not None
        others = [name for name in NEW_SAMPLES if name != "cache" or not shows_images]
        unused = [SETTINGS[name].flag for name in others if name in settings]
        unused = ["--var", *unused] if var else unused
        if unused == ["--cache"]:
            raise UsageError("--cache: only for new samples or images, so only with --confirm, --html or --thumbnails")
        if unused:
            raise UsageError(f"{', '.join(unused)}: only for new samples, so only with --confirm")
    if thumbnails is not None and markdown is None:
        raise UsageError("--thumbnails: the images are for --markdown FILE, which is missing")
    filters = ComparisonFilters(tuple(metric or ()), tuple(tag or ()), tuple(case or ()), Redaction.by(redact))
    request = ComparisonRequest(
        *(a, b, tuple(fail_on or ()), tuple(allow or ()), filters, tuple(model_map or ())),
        *(confirm, must_detect, experiment, last),
    )
    run_settings = run_options(variables=options.pairs("--var", "NAME=VALUE", var), **settings)
    check_reports(junit, markdown, html, code_quality, thumbnails and thumbnails / "thumbnail.webp")
    new: list[Record] = []
    with options.prints_on_stderr():
        result = compare_named(request, run_settings, plain_listener(new.append, debug=run_settings.calls.debug))
    if new and (info := result.comparison.b.info) is not None:
        generated = f"new samples: {ProgressCounts.of(new, info)}"
        options.say(generated)
        result = replace(result, confirmation_notes=(*result.confirmation_notes, generated))
    if code_quality is not None:
        from visioneval.atomic import write_report
        from visioneval.report.code_quality import comparison_quality

        write_report(code_quality, comparison_quality(result.comparison))
    if thumbnails is not None or html is not None:
        _fetch_outputs(result.comparison, everything=html is not None)
    outputs = None
    cached = None if run_settings.calls.cache is None else partial(_cached_image, run_settings.calls.cache)
    if thumbnails is not None and markdown is not None:
        from visioneval.report.thumbnails import thumbnails_of

        outputs = thumbnails_of(result.comparison, thumbnails, markdown, cached=cached, redact=filters.redact)
    _write(result, junit, markdown, outputs)
    if html is not None:
        from visioneval.atomic import write_report
        from visioneval.report.html.compare import comparison_page

        page = comparison_page(
            *(result.comparison, result.gates), interrupted=result.interrupted, cached=cached, redact=filters.redact
        )
        write_report(html, page)
    print_comparison(result, as_json=as_json)
    raise typer.Exit(result.exit_code)


def _fetch_outputs(comparison: Comparison, *, everything: bool) -> None:
    """Downloads all outputs, or those of the broken cells that a report lists."""
    from visioneval.records.stores.lookup import fetch_outputs
    from visioneval.report.compare import MAX_ROWS

    broken = comparison.changed("broken")[:MAX_ROWS]
    for side, cells in ((comparison.a, [pair.a for pair in broken]), (comparison.b, [pair.b for pair in broken])):
        if side.folder is not None:
            fetch_outputs(side.folder, None if everything else [cell.artifact_path for cell in cells])


def _cached_image(cache: Path, digest: str) -> Path | None:
    """The file of an image in a cache, if it has one. A baseline may be a stranger's, and its hash any text."""
    from visioneval.running.calls.cache_files import image_file, is_digest

    path = cache / image_file(digest)
    return path if is_digest(digest) and path.is_file() else None


def _write(
    result: ComparisonResult,
    junit: Path | None,
    markdown: Path | None,
    outputs: Callable[[CellPair], Value] | None,
) -> None:
    from visioneval.atomic import write_report

    if junit is not None:
        from visioneval.report.junit import comparison_junit

        write_report(junit, comparison_junit(result.comparison, result.gates, result.confirmation_notes))
    if markdown is not None:
        from visioneval.report.markdown import report_markdown

        write_report(markdown, report_markdown(_report(result, outputs)))


def print_comparison(result: ComparisonResult, *, as_json: bool) -> None:
    """Prints a comparison and its gates, or its JSON."""
    if as_json:
        from visioneval.report.compare import comparison_json

        notes = result.confirmation_notes
        for part in comparison_json(result.comparison, result.gates, result.exit_code, notes):
            print(part, end="")
        print()
    else:
        from visioneval.report.terminal import print_end, print_report

        report, console = _report(result), options.console()
        print_report(report, console)
        print_end(report, console)


def _report(result: ComparisonResult, outputs: Callable[[CellPair], Value] | None = None) -> Report:
    from visioneval.report.compare import comparison_report

    return comparison_report(result.comparison, result.gates, interrupted=result.interrupted, outputs=outputs)


app = typer.Typer(
    cls=HelpWithoutTypes, help="Store a run's results in a small file to commit to a repository.", no_args_is_help=True
)


Name = Annotated[str, options.value("--name", "NAME", "The name of the baseline.")]
Partial = Annotated[bool, options.flag("--partial", "Accept a run that is incomplete or that flags restricted.")]


@app.command("set", cls=Command)
def set_baseline(
    run: options.RunName, name: Name = "main", partial: Partial = False, runs: options.RunsFolder = RUNS
) -> None:
    """Write a run to baselines/NAME.jsonl, a small file to commit.

    Replaces all runs of the baseline.

    Examples:
        visioneval baseline set latest
        visioneval baseline set latest --name flyers
        visioneval baseline set latest --name quick --partial
    """
    from visioneval.api import comparisons

    path, baseline = comparisons.set_baseline(name, run, runs, partial=partial, warn=options.say)
    print(f"wrote {path}: {_counts(baseline)}; commit it, then: visioneval compare baseline:{name} latest")


@app.command("add", cls=Command)
def add_run(
    run: options.RunName,
    name: Name = "main",
    keep: Annotated[
        int, options.value("--keep", "N", "The number of runs to keep, the newest first.", min=1, max=MAX_BASELINE_RUNS)
    ] = BASELINE_RUNS,
    partial: Partial = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Add another run of the same suite to a baseline.

    Comparisons then test against all runs of the baseline, and know how much equal runs differ. Add only runs that
    you have checked: each counts the same.

    Examples:
        visioneval baseline add latest
        visioneval baseline add latest --name flyers
        visioneval baseline add latest --keep 5
    """
    from visioneval.analysis.compare.baseline_runs import differing_runs
    from visioneval.api.comparisons import add_to_baseline

    path, stored_runs = add_to_baseline(name, run, keep, runs, partial=partial, warn=options.say)
    print(f"wrote {path}: {count_of(len(stored_runs), 'run')}, the newest with {_counts(stored_runs[0])}; commit it")
    for difference in differing_runs(stored_runs):
        options.say(f"warning: {difference}")


@app.command("show", cls=Command)
def show_baseline(
    name: Annotated[str, options.argument("NAME", "The name of the baseline.")] = "main",
    as_json: Annotated[bool, options.flag("--json", "Print the runs and their noise as JSON.")] = False,
) -> None:
    """Show the runs of a baseline, and how much equal runs differ.

    Examples:
        visioneval baseline show
        visioneval baseline show flyers
        visioneval baseline show flyers --json
    """
    import json

    from visioneval.analysis.compare.baseline_runs import summarize_runs
    from visioneval.records.baselines import baseline_path, read_baseline
    from visioneval.report.runs import baseline_section
    from visioneval.report.terminal import print_section

    path = baseline_path(name)
    if not path.is_file():
        raise UsageError(f"{path}: no such baseline: create one with 'visioneval baseline set RUN'")
    summary = summarize_runs(read_baseline(path))
    if as_json:
        print(json.dumps(summary.model_dump(mode="json"), indent=2))
    else:
        print_section(baseline_section(name, summary), options.console())


def _counts(baseline: Baseline) -> str:
    from visioneval.types import Verdict

    passed = sum(line.verdict is Verdict.PASS for line in baseline.lines)
    return f"{count_of(len(baseline.lines), 'cell')}, {passed:,} of them passed"


@app.command("list", cls=Command)
def list_baselines() -> None:
    """List the baselines here, with the pass rate of their newest run.

    Examples:
        visioneval baseline list
    """
    from visioneval.records.baselines import FOLDER, read_baseline
    from visioneval.report.runs import baselines_section
    from visioneval.report.terminal import print_section

    paths = sorted(FOLDER.glob("*.jsonl"))
    if not paths:
        print(f"{FOLDER}: no baselines here: create one with 'visioneval baseline set RUN'")
        return
    baselines: dict[str, Sequence[Baseline]] = {}
    for path in paths:
        try:
            baselines[path.stem] = read_baseline(path)
        except RunFormatError as error:
            options.say(str(error))
    if baselines:
        print_section(baselines_section(baselines), options.console())
    if len(baselines) < len(paths):
        raise typer.Exit(ExitCode.USAGE)
