"""Agreement of graders with human labels, among raters, and of each rater with their earlier answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from visioneval.analysis.agreement.among_raters import RaterAgreement, agreement_among_raters
from visioneval.analysis.agreement.anchors import RunJudges, judges_by_run
from visioneval.analysis.agreement.answers import Answers, LabeledRun, drop_outdated_labels, pool
from visioneval.analysis.agreement.correction import Correction, correct, name_of
from visioneval.analysis.agreement.graders import GraderAgreement, against_graders, metrics_of
from visioneval.analysis.agreement.minimums import Minimum, MinimumResult, check_minimums, exit_code
from visioneval.analysis.agreement.pairs import (
    HumanPreferences,
    PairwiseJudgeAgreement,
    against_pairwise_judges,
    preferences_of_people,
)
from visioneval.analysis.agreement.raters import RaterFinding, rater_findings
from visioneval.errors import ExitCode, count_of
from visioneval.records.untrusted_json import SCHEMA_VERSION
from visioneval.types import Frozen


class Agreement(Frozen):
    """The result of ``agree``. ``notes`` are sentences about missing results and ignored labels.

    ``correction`` is present if it was requested. ``allowed_unmeasured`` is the share that ``--allow`` grants.
    """

    schema_version: int = SCHEMA_VERSION
    runs: tuple[str, ...]
    labels: int
    graders: tuple[GraderAgreement, ...]
    people: tuple[RaterAgreement, ...]
    raters: tuple[RaterFinding, ...]
    preferences: tuple[HumanPreferences, ...]
    pairwise_judges: tuple[PairwiseJudgeAgreement, ...]
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
    checked = check_minimums(minimums, graders, metrics, allowed_unmeasured)
    correction = correct(runs, answers, metrics, allowed_unmeasured) if is_corrected else None
    is_reliable = correction is None or correction.is_reliable
    return Agreement(
        runs=tuple(run.info.run_id for run in runs),
        labels=sum(answers.raters.values()),
        graders=graders,
        people=agreement_among_raters(answers),
        raters=rater_findings(runs, answers),
        preferences=preferences_of_people(answers),
        pairwise_judges=against_pairwise_judges(runs, answers),
        notes=(*_notes(answers, graders), *_notes_on_draws(runs)),
        judges=judges_by_run(runs, answers),
        minimums=checked,
        correction=correction,
        allowed_unmeasured=min(allowed_unmeasured, 1.0),
        exit_code=exit_code(checked) if is_reliable else ExitCode.INCOMPLETE,
    )


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
        yield f"ignored: {count_of(answers.unknown_cells, 'label')} for cells that are not in the run"
    if answers.outdated:
        yield f"ignored: {count_of(answers.outdated, 'label')} for replaced images"
    if answers.unmatched:
        yield f"ignored: {count_of(answers.unmatched, 'label')} that match no question in the suite"


def _notes_on_draws(runs: Sequence[LabeledRun]) -> Iterator[str]:
    """Labels of a stratified draw do not represent the run without their weights."""
    for run in runs:
        drawn = {cell.cell for draw in run.draws if draw.about.which.startswith("stratified") for cell in draw.cells}
        if any(label.cell in drawn for label in run.labels):
            yield (
                f"{name_of(run)}: labels of a stratified draw count alike in the agreement with graders;"
                " --correct weights them"
            )
