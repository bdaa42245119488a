"""The command ``agreement``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from visioneval.cli import options
from visioneval.defaults import RUNS
from visioneval.errors import UsageError


def agreement(
    names: Annotated[list[str], options.argument("RUN", "Runs, named as for 'show'; several are pooled.")],
    minimum: Annotated[
        list[str] | None,
        options.value(
            "--min",
            "METRIC[:MEASURE]:VALUE",
            "Exit 1 if the lower bound of the 95 % interval of the agreement on METRIC is below VALUE. Repeatable.",
        ),
    ] = None,
    minimum_point: Annotated[
        list[str] | None,
        options.value("--min-point", "METRIC[:MEASURE]:VALUE", "The same for the estimate. Repeatable."),
    ] = None,
    correct: Annotated[
        bool,
        options.flag(
            "--correct",
            "Also correct the graders' rates and means with labels of a random draw; with two runs, compare them.",
        ),
    ] = False,
    allow: Annotated[
        list[str] | None,
        options.value(
            "--allow",
            "unmeasured[=RATE]",
            "Accept that more than 5% of the labeled cells were not measured. Repeatable.",
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print the results as JSON.")] = False,
    runs: options.RunsFolder = RUNS,
) -> None:
    """Compare graders with human labels: agreement, confusion, and the largest disagreements.

    Without MEASURE, --min applies to kappa for yes/no metrics, to quadratic_kappa for a rubric's scale, and to spearman
    for other numbers. MEASURE is one of these, or accuracy, fail_precision, fail_recall, kendall, pearson or
    pairwise_accuracy. Exits 3 if a metric has too few labels for the measure or its interval, or if more than 5% of the
    labeled cells were not measured.

    --correct needs labels of cells that were drawn at random: 'visioneval label RUN --which random:N'.
    """
    from visioneval.api.graders import agreement as compare_with_labels
    from visioneval.report.terminal.agreement.agreement import print_agreement

    result = compare_with_labels(
        *names,
        minimums=_minimums("--min", minimum),
        minimum_points=_minimums("--min-point", minimum_point),
        correct=correct,
        allow=allow or (),
        runs=runs,
        warn=options.say,
    )
    if as_json:
        print(json.dumps(result.model_dump(mode="json")))  # ASCII: a run may be a stranger's
    else:
        print_agreement(result, options.console())
    raise typer.Exit(result.exit_code)


def _minimums(flag: str, texts: list[str] | None) -> dict[str, float]:
    """The required values by ``METRIC`` or ``METRIC:MEASURE``."""
    minimums: dict[str, float] = {}
    for text in texts or []:
        target, _, number = text.rpartition(":")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not target or not -1 <= value <= 1:
            raise UsageError(f"{flag} {text!r}: write METRIC:VALUE or METRIC:MEASURE:VALUE with a value from -1 to 1")
        if target in minimums:
            raise UsageError(f"{flag} {target}: given twice")
        minimums[target] = value
    return minimums
