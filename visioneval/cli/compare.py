"""The command ``compare``: find both runs, compare, show, gate, exit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.cli.run_lookup import read_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visioneval.analysis.compare.compare import Comparison
    from visioneval.analysis.compare.gates import GateResult

NARROW = "What to compare"
SIDE = "Path, id, unique prefix, 'latest', a JSONL file or baseline:NAME; RUN@LABEL for one model run."


def compare(
    a: Annotated[str, options.word("A", f"The run to compare with. {SIDE}")],
    b: Annotated[str, options.word("B", "The run that may be better or worse, named likewise.")],
    renamed: Annotated[
        list[str] | None,
        options.value("--map", "OLD=NEW", "The model run OLD of A is NEW in B. Repeatable.", NARROW),
    ] = None,
    metric: Annotated[
        list[str] | None, options.value("--metric", "GLOB", "Only these metrics. Repeatable.", NARROW)
    ] = None,
    tag: Annotated[
        list[str] | None, options.value("--tag", "TAG", "Only cases with one of these tags. Repeatable.", NARROW)
    ] = None,
    case: Annotated[list[str] | None, options.value("--case", "GLOB", "Only these cases. Repeatable.", NARROW)] = None,
    fail_on: Annotated[
        list[str] | None,
        options.value(
            "--fail-on",
            "WHAT",
            "broken, broken_same_output, significant, must_pass, METRIC:NUMBER; default the middle three. Repeatable.",
            options.RESULT,
        ),
    ] = None,
    as_json: Annotated[
        bool, options.flag("--json", "All findings as JSON on standard output.", options.RESULT)
    ] = False,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also as Markdown, for a pull request.", options.RESULT)
    ] = None,
    html: Annotated[
        Path | None,
        options.value("--html", "FILE", "Also as one HTML file, with both images of every pair.", options.RESULT),
    ] = None,
    out: options.Out = options.RUNS,
) -> None:
    """Compare run B with run A: what broke, what was fixed, and what the numbers say.

    Exits 1 where a gate (--fail-on) does not hold, 3 where one had nothing to measure.
    """
    from visioneval.analysis.compare.compare import ComparisonFilters
    from visioneval.analysis.compare.compare import compare as compared
    from visioneval.analysis.compare.gates import check_gates, exit_code, parse_fail_on

    gates = parse_fail_on(fail_on or ())
    chosen = ComparisonFilters(tuple(metric or ()), tuple(tag or ()), tuple(case or ()))
    found = compared(read_side(a, out), read_side(b, out), chosen, renamed or ())
    held = check_gates(found, gates)
    if markdown is not None:
        from visioneval.report.files import write_report
        from visioneval.report.markdown import comparison_markdown

        write_report(markdown, comparison_markdown(found, held))
    if html is not None:
        from visioneval.report.compare.page import comparison_page
        from visioneval.report.files import write_report

        write_report(html, comparison_page(found, held))
    _show(found, held, as_json=as_json)
    raise typer.Exit(exit_code(found, held))


def _show(found: Comparison, held: Sequence[GateResult], *, as_json: bool) -> None:
    from visioneval.analysis.compare.gates import exit_code
    from visioneval.report.compare.json import comparison_json
    from visioneval.report.terminal.compare import print_comparison

    if as_json:
        print(comparison_json(found, held, exit_code(found, held)))
        return
    print_comparison(found, held, options.console())
