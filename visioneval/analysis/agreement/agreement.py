"""People and judges: how far graders agree with people, people among themselves, and each rater with himself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.analysis.agreement.among_raters import PeopleAgreement, among_people
from visioneval.analysis.agreement.answers import Answers, Labelled, held_to_today, pool
from visioneval.analysis.agreement.graders import GraderAgreement, against_graders, metrics_of
from visioneval.analysis.agreement.raters import RaterFinding, rater_findings
from visioneval.errors import UsageError
from visioneval.records.model import SCHEMA_VERSION
from visioneval.suite.loading.messages import did_you_mean
from visioneval.types import Frozen

EXIT_OK, EXIT_UNDER, EXIT_NOTHING = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Least:
    """How far a metric must agree with people: the headline's point estimate, -1..1."""

    metric: str
    value: float


class Minimum(Frozen):
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
    people: tuple[PeopleAgreement, ...]
    raters: tuple[RaterFinding, ...]
    notes: tuple[str, ...]
    minimums: tuple[Minimum, ...] = ()
    exit_code: int = EXIT_OK


def agree(runs: Sequence[Labelled], least: Sequence[Least] = ()) -> Agreement:
    """Pools runs and holds their labels against their graders.

    Raises ``UsageError`` where two runs ask differently, and for a demand on a metric that no run has.
    """
    runs, outdated = held_to_today(runs)
    answers = replace(pool(runs), outdated=outdated)
    metrics = metrics_of([run.info for run in runs])
    for one in least:
        if one.metric not in metrics:
            raise UsageError(f"--min {one.metric}: no run has this metric{did_you_mean(one.metric, metrics)}")
    graders = against_graders(answers, metrics)
    minimums = tuple(_minimum(one, graders) for one in least)
    return Agreement(
        runs=tuple(run.info.run_id for run in runs),
        labels=sum(answers.raters.values()),
        graders=graders,
        people=among_people(answers),
        raters=rater_findings(runs, answers),
        notes=tuple(_notes(answers, graders)),
        minimums=minimums,
        exit_code=_exit_code(minimums),
    )


def _minimum(least: Least, graders: Sequence[GraderAgreement]) -> Minimum:
    own = [found for found in graders if found.metric == least.metric and found.cells]
    measured = [(found.value, found) for found in own if found.value is not None]
    if not measured or len(measured) < len(own):
        return Minimum(
            metric=least.metric, wanted=least.value, value=None, measure=None, question=None, state="unmeasured"
        )
    value, found = min(measured, key=lambda pair: pair[0])
    return Minimum(
        metric=least.metric,
        wanted=least.value,
        value=value,
        measure=found.headline,
        question=found.question,
        state="passed" if value >= least.value else "failed",
    )


def _exit_code(minimums: Sequence[Minimum]) -> int:
    states = {minimum.state for minimum in minimums}
    return EXIT_NOTHING if "unmeasured" in states else EXIT_UNDER if "failed" in states else EXIT_OK


def _notes(answers: Answers, graders: Sequence[GraderAgreement]) -> Iterator[str]:
    if not answers.raters:
        yield "nobody has labeled a cell of these runs yet: 'visioneval label' and 'visioneval label import' do"
    elif not graders:
        yield "no question of the suite names a metric: people and graders cannot be held together"
    elif not any(found.cells for found in graders):
        yield "no labeled cell has a score of the metric that its question names"
    if len(answers.raters) == 1:
        yield "one rater only: how far people agree among themselves is not known"
    if answers.strangers:
        yield f"left out: {_labels(answers.strangers)} about cells that are not in the run"
    if answers.outdated:
        yield f"left out: {_labels(answers.outdated)} about images that were generated again since"
    if answers.misfits:
        yield f"left out: {_labels(answers.misfits)} that fit no question of the suite"


def _labels(number: int) -> str:
    return f"{number:,} label{'s' * (number != 1)}"
