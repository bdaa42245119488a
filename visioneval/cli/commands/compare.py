"""The command ``compare``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import completion, options
from visioneval.defaults import MAX_CONCURRENCY, MAX_CONFIRM, RUNS
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.api.comparisons import ComparisonResult

SIDE = "Path, ID, unique prefix, 'latest', a JSONL file or baseline:NAME; RUN@LABEL for model runs (globs)."


def compare(
    a: Annotated[str, options.argument("A", f"The baseline run. {SIDE}", autocompletion=completion.run_names)],
    b: Annotated[str, options.argument("B", "The candidate run, named the same way.")],
    model_map: options.ModelMap = None,
    metric: Annotated[
        list[str] | None,
        options.value(
            "--metric",
            "GLOB",
            "Only these metrics. Repeatable.",
            options.SELECTION,
            autocompletion=completion.metric_names,
        ),
    ] = None,
    tag: options.Tags = None,
    case: options.Cases = None,
    fail_on: Annotated[
        list[str] | None,
        options.value(
            "--fail-on",
            "WHAT",
            "broken, broken_same_output, regressed, must_pass or METRIC:NUMBER; default: broken_same_output,"
            " regressed and must_pass. Repeatable.",
            options.OUTPUT,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        options.value(
            "--allow",
            "WHAT",
            "Accept what B lost: missing-metrics, missing-cells, errors or errors=RATE; excuses that A has not; that a"
            " gate leaves out over 5% of the pairs: unmeasured=RATE; that too few cases decide: cannot-tell."
            " Repeatable.",
            options.OUTPUT,
        ),
    ] = None,
    must_detect: Annotated[
        float | None,
        options.value(
            "--must-detect",
            "POINTS",
            "Exit 3 if a drop of the pass rate by POINTS would be missed more than one time in five; default: that of"
            " the suite (compare: must_detect).",
            options.OUTPUT,
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", options.OUTPUT)] = False,
    junit: Annotated[
        Path | None, options.value("--junit", "FILE", "Also write JUnit XML, a test case per gate.", options.OUTPUT)
    ] = None,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also write Markdown, for a pull request.", options.OUTPUT)
    ] = None,
    html: Annotated[
        Path | None,
        options.value("--html", "FILE", "Also write one HTML file with both images of every pair.", options.OUTPUT),
    ] = None,
    runs: options.Runs = RUNS,
    confirm: Annotated[
        int | None,
        options.value(
            "--confirm",
            "N",
            "Where regressed, must_pass or METRIC:NUMBER is in doubt, generate up to N new samples of the cases in"
            " doubt, or of all cases, in B, and decide with these. broken and broken_same_output are about cells: no"
            " new samples decide them.",
            options.CALLS,
            min=1,
            max=MAX_CONFIRM,
        ),
    ] = None,
    var: Annotated[
        list[str] | None,
        options.value(
            "--var", "NAME=VALUE", "With --confirm: a secret variable of B's run. Repeatable.", options.CALLS
        ),
    ] = None,
    reuse: options.ReuseAnswers = options.ReuseFlag.judges,
    offline: options.Offline = False,
    cache: options.CacheFolder = None,
    budget: options.BudgetUsd = None,
    max_concurrency: options.MaxConcurrency = MAX_CONCURRENCY,
    log_file: options.LogFile = None,
    debug: options.Debug = False,
    trust_suite: options.TrustSuite = False,
) -> None:
    """Compare run B with run A: what broke, what was fixed, and whether the numbers differ.

    Exits 1 if a gate (--fail-on) failed. Exits 3 if one could not be measured or cannot tell, or if B lost metrics,
    measured cells or cells of A, or excuses cells that A does not (see --allow). Makes calls only with --confirm, which
    needs a complete run B that generated its images.
    """
    from visioneval.analysis.compare.filters import ComparisonFilters
    from visioneval.analysis.summary.accumulators import Costs
    from visioneval.api.comparisons import ComparisonRequest, compare_named
    from visioneval.cli.progress import ProgressCounts, print_traceback
    from visioneval.cli.reports import check_reports
    from visioneval.records.model import Record
    from visioneval.running.cells.services import Listener
    from visioneval.settings import run_options

    flags = {
        "--var": var,
        "--reuse": reuse is not options.ReuseFlag.judges,
        "--offline": offline,
        "--cache": cache,
        "--budget": budget,
        "--max-concurrency": max_concurrency != MAX_CONCURRENCY,
        "--log-file": log_file,
        "--debug": debug,
        "--trust-suite": trust_suite,
    }
    if confirm is None and (unused := [flag for flag, value in flags.items() if value]):
        raise UsageError(f"{', '.join(unused)}: only for new samples, so only with --confirm")
    filters = ComparisonFilters(tuple(metric or ()), tuple(tag or ()), tuple(case or ()))
    request = ComparisonRequest(
        a, b, tuple(fail_on or ()), tuple(allow or ()), filters, tuple(model_map or ()), confirm, must_detect
    )
    settings = run_options(
        variables=options.pairs("--var", "NAME=VALUE", var),
        runs=runs,
        reuse=reuse.value,
        offline=offline,
        cache=cache,
        budget_usd=budget,
        max_concurrency=max_concurrency,
        log_file=log_file,
        debug=debug,
        trust_suite=trust_suite,
    )
    check_reports(junit, markdown, html)
    with options.prints_on_stderr():
        new, on_error = list[Record](), print_traceback if debug else lambda _: None
        listener = Listener(new.append, say=options.say, note=options.say, debug=on_error)
        result = compare_named(request, settings, listener)
    if new and (info := result.comparison.b.info) is not None:
        counts = ProgressCounts(Costs(info))
        for record in new:
            counts.add(record)
        generated = f"new samples: {counts}"
        options.say(generated)
        result = replace(result, confirmation_notes=(*result.confirmation_notes, generated))
    _write(result, junit, markdown, html)
    _print(result, as_json=as_json)
    raise typer.Exit(result.exit_code)


def _write(result: ComparisonResult, junit: Path | None, markdown: Path | None, html: Path | None) -> None:
    from visioneval.report.files import write_report

    if junit is not None:
        from visioneval.report.junit import comparison_junit

        write_report(junit, comparison_junit(result.comparison, result.gates, result.confirmation_notes))
    if markdown is not None:
        from visioneval.report.markdown import comparison_markdown

        write_report(markdown, comparison_markdown(result.comparison, result.gates))
    if html is not None:
        from visioneval.records.stores.lookup import fetch_outputs
        from visioneval.report.compare.page import comparison_page

        for side in (result.comparison.a, result.comparison.b):
            if side.folder is not None:
                fetch_outputs(side.folder)
        write_report(html, comparison_page(result.comparison, result.gates))


def _print(result: ComparisonResult, *, as_json: bool) -> None:
    from visioneval.report.compare.json import comparison_json
    from visioneval.report.terminal.compare import print_comparison

    if as_json:
        notes = result.confirmation_notes
        for part in comparison_json(result.comparison, result.gates, result.exit_code, notes):
            print(part, end="")
        print()
    else:
        print_comparison(result.comparison, result.gates, options.console(), interrupted=result.interrupted)
