"""The labels of a recorded random draw with their weights, or why they cannot stand for the other cells. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from visioneval.analysis.agreement.answers import Facet, LabeledRun
from visioneval.analysis.agreement.graders import score_of
from visioneval.analysis.left_out import NOTHING, DueMetrics, LeftOut
from visioneval.records.labels import DrawnCell, RecordedDraw, frame_of
from visioneval.records.model import CellKey
from visioneval.types import Status

MAX_MISSING = 0.1
"""The largest share of drawn cells that may lack an answer. With more, what is missing could decide the result."""


@dataclass(frozen=True, slots=True)
class LabeledCell:
    """A drawn cell with a human value. ``weight`` is the number of cells that it stands for."""

    cell: CellKey
    people: float
    weight: float
    stratum: str


@dataclass(frozen=True, slots=True)
class DrawnLabels:
    """The labels of a draw for one question.

    ``judge`` has the metric's value of all cells that the draw covers. ``uncovered`` counts the other cells with a
    value, ``missing`` the drawn cells without an answer, and ``waiting`` those whose turn has not come. ``left_out``
    are the outputs that the draw covers and of which the metric was not measured: no figure counts them.
    """

    draw: RecordedDraw
    judge: Mapping[CellKey, float]
    labels: tuple[LabeledCell, ...]
    uncovered: int
    missing: int
    waiting: int
    left_out: LeftOut


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why labels cannot correct a judge, as a sentence with what to do."""

    reason: str
    left_out: LeftOut = NOTHING


def drawn_labels(run: LabeledRun, facet: Facet, metric: str) -> DrawnLabels | Unusable:
    """The labels of the draw that covers the most cells and, of those, has the most labels."""
    where = run.name or run.info.run_id
    if not run.draws:
        return Unusable(
            f"{where}: no random draw of cells to label is recorded; labels of cells that people chose cannot correct"
            f" a judge: run 'visioneval label {where} --which random:100'"
        )
    scores, unmeasured = _scores(run, facet, metric)
    if not scores:
        left_out = LeftOut(len(unmeasured), len(unmeasured))
        return Unusable(f"{where}: no cell with an output has a value of {metric}", left_out)
    frame = {part.model_label: part for part in frame_of(run.records)}
    results = [_labels_of(draw, run, facet, scores, unmeasured, frame) for draw in run.draws]
    usable = [result for result in results if isinstance(result, DrawnLabels)]
    if not usable:
        return results[-1]
    return max(usable, key=lambda result: (len(result.judge), len(result.labels)))


def _scores(run: LabeledRun, facet: Facet, metric: str) -> tuple[dict[CellKey, float], list[CellKey]]:
    """The metric's value of each cell with an output that people were asked about, and the cells that lack theirs."""
    tasks = facet.question.tasks if facet.question is not None else ()
    scores: dict[CellKey, float] = {}
    due, unmeasured = DueMetrics(run.info), list[CellKey]()
    for record in run.records:
        applies, score = score_of(record, metric, due)
        if not applies or record.status is not Status.COMPLETED or (tasks and record.task_type not in tasks):
            continue
        if score is None:
            unmeasured.append(record.cell)
        else:
            scores[record.cell] = score
    return scores, unmeasured


def _labels_of(
    draw: RecordedDraw,
    run: LabeledRun,
    facet: Facet,
    scores: Mapping[CellKey, float],
    unmeasured: Sequence[CellKey],
    frame: Mapping[str, object],
) -> DrawnLabels | Unusable:
    where, which = run.name or run.info.run_id, draw.about.which
    covered = {part.model_label for part in draw.about.frame if frame.get(part.model_label) == part}
    judge = {cell: score for cell, score in scores.items() if cell[1] in covered}
    if not judge:
        return Unusable(
            f"{where}: its cells are not those that {which} was drawn from: draw again, with {_command(run, which)}"
        )
    people = _people(run, facet)
    asked = _asked(draw, run, facet, people, judge)
    in_turn = [cell for cell in asked if cell.cell in judge]
    answered = [cell for cell in in_turn if cell.cell in people]
    if not answered:
        return Unusable(f"{where}: {which} has no answer to {facet.key!r} yet: answer with {_command(run, which)}")
    missing = len(in_turn) - len(answered)
    if missing > MAX_MISSING * len(in_turn):
        return Unusable(
            f"{where}: {missing:,} of the {len(in_turn):,} cells of {which} up to the last labeled one have no current"
            f" answer to {facet.key!r}, more than {MAX_MISSING:.0%}: answer them with {_command(run, which)}"
        )
    reached, labeled = ({cell.stratum for cell in cells} for cells in (asked, answered))
    due = {cell.stratum for cell in in_turn}
    if unseen := sorted({cell.stratum for cell in draw.cells} - reached | due - labeled):
        return Unusable(
            f"{where}: no {unseen[0]} cell of {which} has an answer yet: answer with {_command(run, which)}"
        )
    return DrawnLabels(
        draw=draw,
        judge=judge,
        labels=_weighted(draw, asked, in_turn, answered, people),
        uncovered=len(scores) - len(judge),
        missing=missing,
        waiting=sum(cell.cell in judge for cell in draw.cells) - len(in_turn),
        left_out=LeftOut(lost := sum(cell[1] in covered for cell in unmeasured), len(judge) + lost),
    )


def _command(run: LabeledRun, which: str) -> str:
    return f"'visioneval label {run.name or run.info.run_id} --which {which}'"


def _people(run: LabeledRun, facet: Facet) -> dict[CellKey, float]:
    """The human value of each labeled cell: the majority of yes or no, half for a tie; the mean on a scale."""
    values = {}
    for (run_id, test_id, label, sample, other), by_rater in facet.answers.items():
        if run_id == run.info.run_id and other is None:
            mean = sum(by_rater.values()) / len(by_rater)
            values[test_id, label, sample] = mean if facet.is_ordered or mean == 0.5 else float(mean > 0.5)
    return values


def _asked(
    draw: RecordedDraw, run: LabeledRun, facet: Facet, people: Mapping[CellKey, float], judge: Mapping[CellKey, float]
) -> Sequence[DrawnCell]:
    """The beginning of a draw whose turn has come.

    It ends with the last cell that was answered or skipped since the draw, anchors aside, as they come out of turn; or
    before the first cell without an answer if that comes later. The beginning of a random order is a random draw too.
    """
    drawn_at = datetime.fromisoformat(draw.at)
    reached = {
        label.cell
        for label in run.labels
        if label.question == facet.key and label.source != "anchor" and datetime.fromisoformat(label.at) >= drawn_at
    }
    last = max((at for at, cell in enumerate(draw.cells, 1) if cell.cell in reached and cell.cell in judge), default=0)
    gaps = (at for at, cell in enumerate(draw.cells) if cell.cell in judge and cell.cell not in people)
    return draw.cells[: max(last, next(gaps, len(draw.cells)))]


def _weighted(
    draw: RecordedDraw,
    asked: Sequence[DrawnCell],
    in_turn: Sequence[DrawnCell],
    answered: Sequence[DrawnCell],
    people: Mapping[CellKey, float],
) -> tuple[LabeledCell, ...]:
    """Weighs each label by 1 / probability, where the probability is that of the part whose turn has come.

    Labels stand also for the unanswered cells of their stratum.
    """
    drawn, reached, due, labeled = (
        Counter(cell.stratum for cell in cells) for cells in (draw.cells, asked, in_turn, answered)
    )
    return tuple(
        LabeledCell(
            cell=cell.cell,
            people=people[cell.cell],
            weight=drawn[cell.stratum]
            * due[cell.stratum]
            / (reached[cell.stratum] * labeled[cell.stratum] * cell.probability),
            stratum=cell.stratum,
        )
        for cell in answered
    )
