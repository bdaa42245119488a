"""The command ``agree``: how far graders agree with people."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from visioneval.cli import options
from visioneval.cli.run_lookup import labels_of, read_run
from visioneval.errors import UsageError

if TYPE_CHECKING:
    from visioneval.analysis.agreement.agreement import Minimum
    from visioneval.analysis.agreement.answers import LabeledRun


def agree(
    runs: Annotated[list[str], options.word("RUN", "Runs as for 'show'; several are pooled.")],
    least: Annotated[
        list[str] | None,
        options.value("--min", "METRIC:VALUE", "Exit 1 where a grader agrees less with people. Repeatable."),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "The findings as a line of JSON on standard output.")] = False,
    out: options.RunsFolder = options.RUNS,
) -> None:
    """Hold the labels of runs against their graders: agreement, confusion, and the cells most disputed.

    --min looks at kappa for a yes or no, at kappa with quadratic weights for a rubric's scale, and at Spearman's
    correlation for any other number; it exits 3 where nothing was labeled.
    """
    from visioneval.analysis.agreement.agreement import agree as find
    from visioneval.report.terminal.agreement import print_agreement

    wanted = [_least(text) for text in least or []]
    found = find([_labeled(name, out) for name in runs], wanted)
    if as_json:
        print(found.model_dump_json())
    else:
        print_agreement(found, options.console())
    raise typer.Exit(found.exit_code)


def _least(text: str) -> Minimum:
    from visioneval.analysis.agreement.agreement import Minimum

    metric, _, number = text.rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = float("nan")
    if not metric or not isfinite(value) or not -1 <= value <= 1:
        raise UsageError(f"--min {text!r}: write METRIC:VALUE with a value from -1 to 1")
    return Minimum(metric, value)


def _labeled(name: str, out: Path) -> LabeledRun:
    from visioneval.analysis.agreement.answers import LabeledRun
    from visioneval.records.labels import LABELS, read_anchors, read_labels

    folder, info, records = read_run(name, out)
    labels = labels_of(name, records, read_labels(folder / LABELS))
    return LabeledRun(info, records, labels, read_anchors(folder, info))
