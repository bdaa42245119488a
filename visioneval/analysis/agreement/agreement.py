"""People and judges: how far graders agree with people, people among themselves, and each rater with himself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.analysis.agreement.among_raters import RaterAgreement, agreement_among_raters
from visioneval.analysis.agreement.answers import Answers, LabeledRun, drop_outdated_labels, pool
from visioneval.analysis.agreement.graders import GraderAgreement, against_graders, metrics_of
from visioneval.analysis.agreement.raters import RaterFinding, rater_findings
from visioneval.errors import UsageError
from visioneval.records.model import SCHEMA_VERSION
from visioneval.suite.loading.messages import did_you_mean
from visioneval.types import Frozen

EXIT_OK, EXIT_FAILED, EXIT_UNMEASURED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Minimum:
    """How far a metric must agree with people: the headline's point estimate, -1..1."""

    metric: str
    value: float


class MinimumResult(Frozen):
    """What became of a demand: ``value`` is the headline's, over the question that agrees least."""

    metric: str
    wanted: float
    value: float | None
    measure: str | None
    question: str | None
    state: Literal["passed", "failed", "unmeasured"]


class Agreement(Frozen):
    """Everything that ``agree`` finds. ``notes`` are plain sentences about what could not be told."""

    schema_version: int = SCHEMA_VERSION
    runs: tuple[str, ...]
    labels: int
    graders: tuple[GraderAgreement, ...]
    people: tuple[RaterAgreement, ...]
    raters: tuple[RaterFinding, ...]
    notes: tuple[str, ...]
    minimums: tuple[MinimumResult, ...] = ()
    exit_code: int = EXIT_OK


def agree(runs: Sequence[LabeledRun], minimums: Sequence[Minimum] = ()) -> Agreement:
    """Pools runs and holds their labels against their graders.

    Raises ``UsageError`` where two runs ask differently, and for a demand on a metric that no run has.
    """
    runs, outdated = drop_outdated_labels(runs)
    answers = replace(pool(runs), outdated=outdated)
    metrics = metrics_of([run.info for run in runs])
    for minimum in minimums:
        if minimum.metric not in metrics:
            raise UsageError(f"--min {minimum.metric}: no run has this metric{did_you_mean(minimum.metric, metrics)}")
    graders = against_graders(answers, metrics)
    checked = tuple(_minimum(minimum, graders) for minimum in minimums)
    return Agreement(
        runs=tuple(run.info.run_id for run in runs),
        labels=sum(answers.raters.values()),
        graders=graders,
        people=agreement_among_raters(answers),
        raters=rater_findings(runs, answers),
        notes=tuple(_notes(answers, graders)),
        minimums=checked,
        exit_code=_exit_code(checked),
    )


def _minimum(minimum: Minimum, graders: Sequence[GraderAgreement]) -> MinimumResult:
    findings = [finding for finding in graders if finding.metric == minimum.metric and finding.cells]
    measured = [(finding.value, finding) for finding in findings if finding.value is not None]
    if not measured or len(measured) < len(findings):
        return MinimumResult(
            metric=minimum.metric, wanted=minimum.value, value=None, measure=None, question=None, state="unmeasured"
        )
    value, finding = min(measured, key=lambda pair: pair[0])
    return MinimumResult(
        metric=minimum.metric,
        wanted=minimum.value,
        value=value,
        measure=finding.headline,
        question=finding.question,
        state="passed" if value >= minimum.value else "failed",
    )


def _exit_code(minimums: Sequence[MinimumResult]) -> int:
    states = {minimum.state for minimum in minimums}
    return EXIT_UNMEASURED if "unmeasured" in states else EXIT_FAILED if "failed" in states else EXIT_OK


def _notes(answers: Answers, graders: Sequence[GraderAgreement]) -> Iterator[str]:
    if not answers.raters:
        yield "nobody has labeled a cell of these runs yet: 'visioneval label' and 'visioneval label import' do"
    elif not graders:
        yield "no question of the suite names a metric: people and graders cannot be held together"
    elif not any(found.cells for found in graders):
        yield "no labeled cell has a score of the metric that its question names"
    if len(answers.raters) == 1:
        yield "one rater only: how far people agree among themselves is not known"
    if answers.unknown_cells:
        yield f"left out: {_labels(answers.unknown_cells)} about cells that are not in the run"
    if answers.outdated:
        yield f"left out: {_labels(answers.outdated)} about images that were generated again since"
    if answers.unmatched:
        yield f"left out: {_labels(answers.unmatched)} that fit no question of the suite"


def _labels(number: int) -> str:
    return f"{number:,} label{'s' * (number != 1)}"
