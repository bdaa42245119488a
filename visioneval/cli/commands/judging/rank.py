"""The command ``rank``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from visioneval.cli import options
from visioneval.defaults import RUNS


class RankBy(StrEnum):
    """The values of ``--by``."""

    judges = "judges"
    people = "people"


def rank(
    names: Annotated[list[str], options.argument("RUN", "Runs, named as for 'show'; several are pooled.")],
    by: Annotated[
        RankBy,
        options.value("--by", "WHO", "Whose answers rank: judges ('pairwise') or people ('label --pairs')."),
    ] = RankBy.judges,
    judge: Annotated[
        str | None,
        options.value(
            "--judge",
            "NAME",
            "Only this judge: PROVIDER:MODEL, or its name in the suite; default: one ranking per judge.",
            options.SELECTION,
        ),
    ] = None,
    model: options.Models = None,
    case: options.Cases = None,
    tag: options.Tags = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.", options.OUTPUT)] = False,
    markdown: Annotated[
        Path | None, options.value("--markdown", "FILE", "Also write Markdown, for a job summary.", options.OUTPUT)
    ] = None,
    html: Annotated[
        Path | None, options.value("--html", "FILE", "Also write one HTML file with a plot.", options.OUTPUT)
    ] = None,
    runs: options.Runs = RUNS,
) -> None:
    """Rank model runs by pairwise answers of judges or people: Bradley-Terry strengths, and ranks with 95% intervals.

    The answers are those that 'pairwise', graders of type pairwise and 'label --pairs' stored in the runs.

    Exits 3 if a pair could not be judged, or if the answers do not connect all model runs.
    """
    from visioneval.api.comparisons import rank as rank_runs
    from visioneval.report.terminal.ranking import print_rankings

    result = rank_runs(
        *names,
        by=by.value,
        judge=judge,
        cases=case or (),
        tags=tag or (),
        models=model or (),
        runs=runs,
        warn=options.say,
    )
    if markdown is not None:
        from visioneval.report.files import write_report
        from visioneval.report.markdown import rankings_markdown

        write_report(markdown, rankings_markdown(result))
    if html is not None:
        from visioneval.report.files import write_report
        from visioneval.report.html.ranking import rankings_page

        write_report(html, rankings_page(result))
    if as_json:
        print(result.model_dump_json())
    else:
        print_rankings(result, options.console())
    raise typer.Exit(result.exit_code)
