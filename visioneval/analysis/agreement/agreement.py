"""Agreement of graders with human labels, among raters, and of each rater with their earlier answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.analysis.agreement.among_raters import RaterAgreement, agreement_among_raters
from visioneval.analysis.agreement.anchors import RunJudges, judges_by_run
from visioneval.analysis.agreement.answers import Answers, LabeledRun, drop_outdated_labels, pool
from visioneval.analysis.agreement.graders import GraderAgreement, against_graders, metrics_of
from visioneval.analysis.agreement.raters import RaterFinding, rater_findings
from visioneval.errors import ExitCode, UsageError
from visioneval.records.model import SCHEMA_VERSION
from visioneval.rules import is_true
from visioneval.suite.loading.messages import did_you_mean
from visioneval.types import Frozen


@dataclass(frozen=True, slots=True)
class Minimum:
    """The minimum agreement of a metric with human labels: the headline's point estimate, -1..1."""

    metric: str
    value: float


class MinimumResult(Frozen):
    """The result of a ``Minimum``: ``value`` is the lowest headline value of all questions about the metric."""

    metric: str
    required: float
    value: float | None
    measure: str | None
    question: str | None
    state: Literal["passed", "failed", "unmeasured"]


class Agreement(Frozen):
    """The result of ``agree``. ``notes`` are sentences about missing results and ignored labels."""

    schema_version: int = SCHEMA_VERSION
    runs: tuple[str, ...]
    labels: int
    graders: tuple[GraderAgreement, ...]
    people: tuple[RaterAgreement, ...]
    raters: tuple[RaterFinding, ...]
    notes: tuple[str, ...]
    judges: tuple[RunJudges, ...] = ()
    minimums: tuple[MinimumResult, ...] = ()
    exit_code: int = ExitCode.PASSED


def agree(runs: Sequence[LabeledRun], minimums: Sequence[Minimum] = ()) -> Agreement:
    """Pools the labels of runs and compares them with the graders' scores.

    Raises ``UsageError`` if two runs define a question differently, or if no run has the metric of a minimum.
    """
    runs, outdated = drop_outdated_labels(runs)
    answers = replace(pool(runs), outdated=outdated)
    metrics = metrics_of([run.info for run in runs])
    for minimum in minimums:
        if minimum.metric not in metrics:
            raise UsageError(f"--min {minimum.metric}: no run has this metric{did_you_mean(minimum.metric, metrics)}")
    graders = against_graders(answers, metrics)
    checked = tuple(_check_minimum(minimum, graders) for minimum in minimums)
    return Agreement(
        runs=tuple(run.info.run_id for run in runs),
        labels=sum(answers.raters.values()),
        graders=graders,
        people=agreement_among_raters(answers),
        raters=rater_findings(runs, answers),
        notes=tuple(_notes(answers, graders)),
        judges=judges_by_run(runs, answers),
        minimums=checked,
        exit_code=_exit_code(checked),
    )


def _check_minimum(minimum: Minimum, graders: Sequence[GraderAgreement]) -> MinimumResult:
    findings = [finding for finding in graders if finding.metric == minimum.metric and finding.cells]
    measured = [(finding.value, finding) for finding in findings if finding.value is not None]
    if not measured or len(measured) < len(findings):
        return MinimumResult(
            metric=minimum.metric, required=minimum.value, value=None, measure=None, question=None, state="unmeasured"
        )
    value, finding = min(measured, key=lambda entry: entry[0])
    return MinimumResult(
        metric=minimum.metric,
        required=minimum.value,
        value=value,
        measure=finding.headline,
        question=finding.question,
        state="passed" if is_true(value, ">=", minimum.value) else "failed",
    )


def _exit_code(minimums: Sequence[MinimumResult]) -> ExitCode:
    states = {minimum.state for minimum in minimums}
    if "unmeasured" in states:
        return ExitCode.INCOMPLETE
    return ExitCode.GATE_FAILED if "failed" in states else ExitCode.PASSED


def _notes(answers: Answers, graders: Sequence[GraderAgreement]) -> Iterator[str]:
    if not answers.raters:
        yield "these runs have no labels yet: add some with 'visioneval label' or 'visioneval label import'"
    elif not graders:
        yield "no question in the suite names a metric: labels cannot be compared with graders"
    elif not any(grader.cells for grader in graders):
        yield "no labeled cell has a score for the metric of its question"
    if len(answers.raters) == 1:
        yield "only one rater: agreement among raters is unknown"
    if answers.unknown_cells:
        yield f"ignored: {_labels(answers.unknown_cells)} for cells that are not in the run"
    if answers.outdated:
        yield f"ignored: {_labels(answers.outdated)} for replaced images"
    if answers.unmatched:
        yield f"ignored: {_labels(answers.unmatched)} that match no question in the suite"


def _labels(number: int) -> str:
    return f"{number:,} label{'s' * (number != 1)}"
