"""The command ``agreement``."""

from __future__ import annotations

import json
from math import isfinite
from typing import Annotated

import typer

from visioneval.cli import options
from visioneval.defaults import RUNS
from visioneval.errors import UsageError


def agreement(
    names: Annotated[list[str], options.argument("RUN", "Runs, named as for 'show'; several are pooled.")],
    minimum: Annotated[
        list[str] | None,
        options.value("--min", "METRIC:VALUE", "Exit 1 if the agreement on METRIC is below VALUE. Repeatable."),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.")] = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Compare graders with human labels: agreement, confusion, and the largest disagreements.

    --min applies to kappa for yes/no metrics, to kappa with quadratic weights for a rubric's scale, and to Spearman's
    correlation for other numbers. Exits 3 if a metric has no labels.
    """
    from visioneval.api import agreement as compare_with_labels
    from visioneval.report.terminal.agreement import print_agreement

    minimums: dict[str, float] = {}
    for text in minimum or []:
        metric, value = _minimum(text)
        if metric in minimums:
            raise UsageError(f"--min {metric}: given twice")
        minimums[metric] = value
    result = compare_with_labels(*names, minimums=minimums, runs=runs, warn=options.say)
    if as_json:
        print(json.dumps(result.model_dump(mode="json")))  # ASCII: a run may be a stranger's
    else:
        print_agreement(result, options.console())
    raise typer.Exit(result.exit_code)


def _minimum(text: str) -> tuple[str, float]:
    metric, _, number = text.rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not metric or not isfinite(value) or not -1 <= value <= 1:
        raise UsageError(f"--min {text!r}: write METRIC:VALUE with a value from -1 to 1")
    return metric, value
