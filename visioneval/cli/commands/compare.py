"""The command ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from visioneval.cli import options
from visioneval.defaults import RUNS

SIDE = "Path, ID, unique prefix, 'latest', a JSONL file or baseline:NAME; RUN@LABEL for one model run."


def compare(
    a: Annotated[str, options.argument("A", f"The baseline run. {SIDE}")],
    b: Annotated[str, options.argument("B", "The candidate run, named the same way.")],
    model_map: options.ModelMap = None,
    metric: Annotated[
        list[str] | None, options.value("--metric", "GLOB", "Only these metrics. Repeatable.", options.SELECTION)
    ] = None,
    tag: options.Tags = None,
    case: options.Cases = None,
    fail_on: Annotated[
        list[str] | None,
        options.value(
            "--fail-on",
            "WHAT",
            "broken, broken_same_output, significant, must_pass or METRIC:NUMBER; default: broken_same_output,"
            " significant and must_pass. Repeatable.",
            options.OUTPUT,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        options.value(
            "--allow",
            "WHAT",
            "Accept what B lost: missing-metrics, missing-cells, errors or errors=RATE. Repeatable.",
            options.OUTPUT,
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", options.OUTPUT)] = False,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also write Markdown, for a pull request.", options.OUTPUT)
    ] = None,
    html: Annotated[
        Path | None,
        options.value("--html", "FILE", "Also write one HTML file with both images of every pair.", options.OUTPUT),
    ] = None,
    runs: options.Runs = RUNS,
) -> None:
    """Compare run B with run A: what broke, what was fixed, and whether the numbers differ.

    Exits 1 if a gate (--fail-on) failed. Exits 3 if one could not be measured, or if B lost metrics, measured cells or
    cells of A (see --allow).
    """
    from visioneval.api import compare as compare_runs
    from visioneval.report.compare.json import comparison_json
    from visioneval.report.terminal.compare import print_comparison

    result = compare_runs(
        a,
        b,
        fail_on=fail_on or (),
        metrics=metric or (),
        tags=tag or (),
        cases=case or (),
        model_map=model_map or (),
        allow=allow or (),
        runs=runs,
        warn=options.say,
    )
    comparison, gates = result.comparison, result.gates
    if markdown is not None:
        from visioneval.report.files import write_report
        from visioneval.report.markdown import comparison_markdown

        write_report(markdown, comparison_markdown(comparison, gates))
    if html is not None:
        from visioneval.report.compare.page import comparison_page
        from visioneval.report.files import write_report

        write_report(html, comparison_page(comparison, gates))
    if as_json:
        print(comparison_json(comparison, gates, result.exit_code))
    else:
        print_comparison(comparison, gates, options.console())
    raise typer.Exit(result.exit_code)
