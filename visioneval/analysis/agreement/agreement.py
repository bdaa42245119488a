"""Agreement of graders with human labels, among raters, and of raters over time; what is required of it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visioneval.analysis.agreement.answers import Answers, LabeledRun, drop_outdated_labels, pool
from visioneval.analysis.agreement.correction import Correction, correct
from visioneval.analysis.agreement.graders import MEASURES, GraderAgreement, against_graders, metrics_of
from visioneval.analysis.agreement.judges import (
    HumanPreferences,
    PairwiseJudgeAgreement,
    RunJudges,
    against_pairwise_judges,
    judges_by_run,
    preferences_of_people,
)
from visioneval.analysis.agreement.raters import RaterAgreement, RaterFinding, agreement_on, rater_findings
from visioneval.analysis.agreement.same_question import MeasureAgreement, against_measures
from visioneval.analysis.left_out import parse_allow, worst
from visioneval.errors import ExitCode, UsageError, count_of, did_you_mean
from visioneval.records.untrusted import SCHEMA_VERSION
from visioneval.rules import is_true
from visioneval.types import Frozen

Bound = Literal["low", "estimate"]
UNMEASURED = "unmeasured"
"""What ``--allow`` accepts."""
FLAGS: Mapping[Bound, str] = {"low": "--min", "estimate": "--min-point"}


@dataclass(frozen=True, slots=True)
class Minimum:
    """The minimum agreement of a metric with human labels, -1..1.

    ``target`` is ``METRIC`` or ``METRIC:MEASURE``; without a measure it means the headline. ``bound`` is what must
    reach ``value``: the lower bound of the 95 % interval, or the estimate.
    """

    target: str
    value: float
    bound: Bound = "low"


class MinimumResult(Frozen):
    """The result of a ``Minimum``: the estimate ``value`` and lower bound ``low`` of the question that agrees least.

    ``bound`` names the one that counts. ``unmeasured`` labeled cells are in no measure. ``note`` names them, and
    explains a minimum that did not pass.
    """

    metric: str
    measure: str | None
    bound: Bound
    required: float
    value: float | None = None
    low: float | None = None
    question: str | None = None
    unmeasured: int = 0
    state: Literal["passed", "failed", "unmeasured"]
    note: str | None = None


def parse_allowed(values: Iterable[str]) -> float:
    """The share of labeled cells that need not be measured, from the values of ``--allow``. Raises ``UsageError``."""
    return parse_allow(values, (UNMEASURED,), rated=(UNMEASURED,)).get(UNMEASURED, 0.0)


def _parse(minimum: Minimum, metrics: Collection[str]) -> tuple[str, str | None]:
    """The metric and the measure of a minimum. Raises ``UsageError`` for an unknown one, or a wrong value."""
    flag = FLAGS[minimum.bound]
    if not -1 <= minimum.value <= 1:
        raise UsageError(f"{flag} {minimum.target}:{minimum.value}: write a value from -1 to 1")
    metric, _, measure = minimum.target.rpartition(":")
    if minimum.target in metrics:
        return minimum.target, None
    if metric not in metrics:
        unknown = metric if measure in MEASURES else minimum.target
        raise UsageError(f"{flag} {minimum.target}: no run has the metric {unknown!r}{did_you_mean(unknown, metrics)}")
    if measure not in MEASURES:
        raise UsageError(f"{flag} {minimum.target}: no measure {measure!r}{did_you_mean(measure, MEASURES)}")
    return metric, measure


def _check(
    minimum: Minimum, metric: str, measure: str | None, graders: Sequence[GraderAgreement], allowed: float
) -> MinimumResult:
    findings = [finding for finding in graders if finding.metric == metric]
    if measure and findings and not any(measure in finding.measures for finding in findings):
        names = ", ".join(findings[0].measures)
        raise UsageError(f"{FLAGS[minimum.bound]} {minimum.target}: the measures of {metric} are {names}")
    bound = "low" if minimum.bound == "low" else "value"
    candidates = [
        (finding, name, finding.measures[name], getattr(finding.measures[name], bound))
        for finding in findings
        if finding.cells and (name := measure or finding.headline) in finding.measures
    ]
    left_out = worst(finding.left_out for finding in findings)
    about = {"metric": metric, "bound": minimum.bound, "required": minimum.value, "unmeasured": left_out.unmeasured}
    if not candidates:
        asked = dict.fromkeys(finding.metric for finding in graders if finding.cells)
        why = "no labeled cell has a score for this metric: label cells of the run"
        if left_out.unmeasured:
            why = f"none of the {count_of(left_out.units, 'labeled cell')} was measured"
        elif asked and not findings:
            why = f"no question has the metric {metric!r}: the answered ones have {', '.join(asked)}"
        return MinimumResult(**about, measure=measure, state="unmeasured", note=why)
    # an unmeasured one comes first
    finding, name, lowest, number = min(candidates, key=lambda item: -2.0 if item[3] is None else item[3])
    passed = number is not None and is_true(number, ">=", minimum.value)
    is_unmeasured = number is None or left_out.is_too_much(allowed)
    hint = f"; --allow {UNMEASURED}=RATE accepts more" if left_out.is_too_much(allowed) else ""
    note = lowest.note if lowest.value is None else None
    if minimum.bound == "low" and lowest.value is not None:
        reached, cure = is_true(lowest.value, ">=", minimum.value), "require the estimate with --min-point"
        note = f"{lowest.note}; label more cases{f', or {cure}' if reached else ''}"
        if lowest.low is not None:
            below = "the lower bound is below the minimum, the estimate is not: label more cases, or require it with"
            note = f"{below} --min-point" if reached and not passed else None
    notes = (note, left_out.sentence("labeled cell", allowed) + hint)
    return MinimumResult(
        **about,
        measure=name,
        value=lowest.value,
        low=lowest.low,
        question=finding.question,
        state="unmeasured" if is_unmeasured else "passed" if passed else "failed",
        note="; ".join(filter(None, notes)) or None,
    )


class Agreement(Frozen):
    """The result of ``agree``, which ``agreement --json`` prints.

    ``graders`` compares each metric with people: ``measures``, ``ceiling``, ``grader_as_rater``, ``confusion`` and
    ``disputed``. ``people`` is the agreement among raters, with ``split_items``, those with the largest disagreement;
    ``raters`` has the ``repeats`` and ``anchors`` of each. ``same_question`` compares metrics of judges with local
    measures, without labels. A measure has ``value``, ``low``, ``high`` and ``n``; what
    is missing is ``None``, and its ``note`` says why.

    Each of ``minimums`` has its ``state``, the estimate ``value``, its lower bound ``low``, the ``bound`` that counts
    (``low`` or ``estimate``), the number of ``unmeasured`` labeled cells, and a ``note``. ``allowed_unmeasured`` is the
    share that ``--allow`` grants. ``correction`` is present if it was requested. ``notes`` are sentences about missing
    results and ignored labels.
    """

    schema_version: int = SCHEMA_VERSION
    runs: tuple[str, ...]
    labels: int
    graders: tuple[GraderAgreement, ...]
    people: tuple[RaterAgreement, ...]
    raters: tuple[RaterFinding, ...]
    preferences: tuple[HumanPreferences, ...]
    pairwise_judges: tuple[PairwiseJudgeAgreement, ...]
    same_question: tuple[MeasureAgreement, ...] = ()
    notes: tuple[str, ...]
    judges: tuple[RunJudges, ...] = ()
    minimums: tuple[MinimumResult, ...] = ()
    correction: Correction | None = None
    allowed_unmeasured: float = 0.0
    exit_code: int = int(ExitCode.PASSED)

    def __repr__(self) -> str:
        counts = ((self.labels, "label"), (len(self.raters), "rater"), (len(self.graders), "metric"))
        listed = ", ".join(count_of(number, name) for number, name in counts)
        return f"Agreement({', '.join(self.runs)}: {listed}, exit code {self.exit_code})"

    __str__ = __repr__


def agree(
    runs: Sequence[LabeledRun],
    minimums: Sequence[Minimum] = (),
    *,
    is_corrected: bool = False,
    allowed_unmeasured: float = 0.0,
) -> Agreement:
    """Pools the labels of runs and compares them with the graders' scores.

    ``is_corrected``: also corrects the figures of each run with the labels of its random draws.
    ``allowed_unmeasured``: the share of cells that a minimum or a correction may leave out because they were not
    measured. Raises ``UsageError`` if two runs define a question differently, if no run has the metric or the measure
    of a minimum, or if nothing can be corrected.
    """
    runs, outdated = drop_outdated_labels(runs)
    answers = replace(pool(runs), outdated=outdated)
    metrics = metrics_of([run.info for run in runs])
    graders = against_graders(answers, metrics)
    checked = tuple(_check(minimum, *_parse(minimum, metrics), graders, allowed_unmeasured) for minimum in minimums)
    correction = correct(runs, answers, metrics, allowed_unmeasured) if is_corrected else None
    states = {minimum.state for minimum in checked}
    exit_code = ExitCode.GATE_FAILED if "failed" in states else ExitCode.PASSED
    is_reliable = correction is None or not any(metric.is_unreliable for metric in correction.metrics)
    if "unmeasured" in states or not is_reliable:
        exit_code = ExitCode.INCOMPLETE
    return Agreement(
        runs=tuple(run.info.run_id for run in runs),
        labels=sum(answers.raters.values()),
        graders=graders,
        people=tuple(agreement_on(facet) for facet in answers.all_facets if facet.answers),
        raters=rater_findings(runs, answers),
        preferences=preferences_of_people(answers),
        pairwise_judges=against_pairwise_judges(runs, answers),
        same_question=against_measures(runs),
        notes=tuple(_notes(answers, graders, runs)),
        judges=judges_by_run(runs, answers),
        minimums=checked,
        correction=correction,
        allowed_unmeasured=min(allowed_unmeasured, 1.0),
        exit_code=exit_code,
    )


def _notes(answers: Answers, graders: Sequence[GraderAgreement], runs: Sequence[LabeledRun]) -> Iterator[str]:
    if not answers.raters:
        yield "these runs have no labels yet: add some with 'visioneval label' or 'visioneval label import'"
    elif not graders:
        yield "no question in the suite names a metric: labels cannot be compared with graders"
    elif not any(grader.cells for grader in graders):
        yield "no labeled cell has a score for the metric of its question"
    if len(answers.raters) == 1:
        yield "only one rater: agreement among raters is unknown"
    if answers.unknown_cells:
        yield f"ignored: {count_of(answers.unknown_cells, 'label')} for cells that are not in the run"
    if answers.outdated:
        yield f"ignored: {count_of(answers.outdated, 'label')} for replaced images"
    if answers.unmatched:
        yield f"ignored: {count_of(answers.unmatched, 'label')} that match no question in the suite"
    for run in runs:  # labels of a stratified draw do not represent the run without their weights
        drawn = {cell.cell for draw in run.draws if draw.about.which.startswith("stratified") for cell in draw.cells}
        if any(label.cell in drawn for label in run.labels):
            yield (
                f"{run.title}: labels of a stratified draw are not weighted in the agreement with graders; --correct"
                " weights them"
            )
