"""Rates and means of a judge, corrected by the labels of a random draw, and the difference of two runs. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from visioneval.analysis.agreement.answers import Answers, Facet, LabeledRun
from visioneval.analysis.agreement.graders import Kind, RunMetric, score_of
from visioneval.analysis.left_out import NOTHING, DueMetrics, LeftOut
from visioneval.analysis.stats import prediction_powered as ppi
from visioneval.analysis.stats.basic import Statistic
from visioneval.errors import UsageError
from visioneval.records.labels import DrawnCell, FrameRun, RecordedDraw, frame_of
from visioneval.records.model import CellKey
from visioneval.suite.filters import chain_of
from visioneval.suite.labels import LabelQuestion
from visioneval.types import Frozen, Status

MAX_MISSING = 0.1
"""The largest share of drawn cells that may lack an answer. With more, what is missing could decide the result."""
_ONE_CASE = "all cells are of one case: no interval"
_ALL_EQUAL = "all labels are the same: the interval allows for what this number of labels can miss"


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
    where = run.title
    if not run.draws:
        return Unusable(
            f"{where}: no random draw of cells to label is recorded; labels of cells that people chose cannot correct"
            f" a judge: run 'visioneval label {where} --which random:100'"
        )
    tasks = facet.question.tasks if facet.question is not None else ()
    scores: dict[CellKey, float] = {}
    due, unmeasured = DueMetrics(run.info), list[CellKey]()
    for record in run.records:  # cells with an output that people were asked about
        applies, score = score_of(record, metric, due, facet)
        if not applies or record.status is not Status.COMPLETED or (tasks and record.task_type not in tasks):
            continue
        if score is None:
            unmeasured.append(record.cell)
        else:
            scores[record.cell] = score
    if not scores:
        left_out = LeftOut(len(unmeasured), len(unmeasured))
        return Unusable(f"{where}: no cell with an output has a value of {metric}", left_out)
    frame = frame_of(run.records)
    results = [_labels_of(draw, run, facet, scores, unmeasured, frame) for draw in run.draws]
    usable = [result for result in results if isinstance(result, DrawnLabels)]
    if not usable:
        return results[-1]
    return max(usable, key=lambda result: (len(result.judge), len(result.labels)))


def _labels_of(
    draw: RecordedDraw,
    run: LabeledRun,
    facet: Facet,
    scores: Mapping[CellKey, float],
    unmeasured: Sequence[CellKey],
    frame: Sequence[FrameRun],
) -> DrawnLabels | Unusable:
    where, which = run.title, draw.about.which
    command = f"'visioneval label {where} --which {which}'"
    covered = {part.model_label for part in draw.about.frame if part in frame}
    judge = {cell: score for cell, score in scores.items() if cell[1] in covered}
    if not judge:
        return Unusable(f"{where}: its cells are not those that {which} was drawn from: draw again, with {command}")
    people = {}  # the majority of yes or no, half for a tie; the mean on a scale
    for (run_id, test_id, label, sample, other), by_rater in facet.answers.items():
        if run_id == run.info.run_id and other is None:
            mean = sum(by_rater.values()) / len(by_rater)
            people[test_id, label, sample] = mean if facet.is_ordered or mean == 0.5 else float(mean > 0.5)
    asked = _asked(draw, run, facet, people, judge)
    in_turn = [cell for cell in asked if cell.cell in judge]
    answered = [cell for cell in in_turn if cell.cell in people]
    if not answered:
        return Unusable(f"{where}: {which} has no answer to {facet.key!r} yet: answer with {command}")
    missing = len(in_turn) - len(answered)
    if missing > MAX_MISSING * len(in_turn):
        return Unusable(
            f"{where}: {missing:,} of the {len(in_turn):,} cells of {which} up to the last labeled one have no current"
            f" answer to {facet.key!r}, more than {MAX_MISSING:.0%}: answer them with {command}"
        )
    drawn, reached, due, labeled = (
        Counter(cell.stratum for cell in cells) for cells in (draw.cells, asked, in_turn, answered)
    )
    if unseen := sorted((drawn.keys() - reached.keys()) | (due.keys() - labeled.keys())):
        return Unusable(f"{where}: no {unseen[0]} cell of {which} has an answer yet: answer with {command}")
    labels = []
    for cell in answered:
        # 1 / probability that its turn has come; labels stand also for the unanswered cells of their stratum
        share = reached[cell.stratum] * labeled[cell.stratum] * cell.probability
        weight = drawn[cell.stratum] * due[cell.stratum] / share
        labels.append(LabeledCell(cell.cell, people[cell.cell], weight, cell.stratum))
    return DrawnLabels(
        draw=draw,
        judge=judge,
        labels=tuple(labels),
        uncovered=len(scores) - len(judge),
        missing=missing,
        waiting=sum(cell.cell in judge for cell in draw.cells) - len(in_turn),
        left_out=LeftOut(lost := sum(cell[1] in covered for cell in unmeasured), len(judge) + lost),
    )


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


class CorrectedMetric(Frozen):
    """Three figures for a metric and a question: of the judge over all ``cells``, of the labels alone, and corrected.

    ``judge`` has the unit of the metric, the other two that of the question. ``tuning`` is the judge's factor, 0 if it
    is no help. ``uncovered`` cells are not in the draw's frame, ``missing`` ones were drawn and not answered, and
    ``waiting`` ones have not come up. ``unmeasured`` outputs have no score of the judge, and ``note`` names them;
    ``is_unreliable`` if these are too many for any of the figures. ``reason`` is why there is no correction.
    """

    run: str
    metric: str
    question: str
    kind: Kind
    draw: str | None = None
    cells: int = 0
    uncovered: int = 0
    missing: int = 0
    waiting: int = 0
    unmeasured: int = 0
    is_unreliable: bool = False
    note: str = ""
    judge: Statistic = Statistic()
    labels: Statistic = Statistic()
    corrected: Statistic = Statistic()
    tuning: float | None = None
    reason: str | None = None


class CorrectedDifference(Frozen):
    """The corrected figure of ``b`` minus that of ``a``, over the cells that both runs have.

    ``labels_a`` and ``labels_b`` are the labels of these cells. ``difference.n`` is the number of cells.
    """

    a: str
    b: str
    metric: str
    question: str
    labels_a: int
    labels_b: int
    difference: Statistic


class Correction(Frozen):
    """The result of ``correct``: one entry per run and question, and one difference per question for two runs."""

    metrics: tuple[CorrectedMetric, ...]
    differences: tuple[CorrectedDifference, ...]


def correct(
    runs: Sequence[LabeledRun], answers: Answers, metrics: Mapping[str, RunMetric], allowed: float = 0.0
) -> Correction:
    """Corrects every metric that a label question names, in one run or two.

    ``allowed`` is the share of the outputs that the judge need not have measured. Raises ``UsageError`` for more runs,
    without such a question, and if the labels of a run can correct none of them.
    """
    if len(runs) > 2:
        raise UsageError(f"--correct takes one run, or two to compare, not {len(runs)}")
    questions = [
        _CorrectedQuestion(facet, facet.question, metrics[name])
        for facet in answers.all_facets
        if facet.question is not None
        for name in facet.question.metrics
        if name in metrics and metrics[name].kind != "one_of"
    ]
    if not questions:
        raise UsageError("--correct: no question in the suite names a metric with a mean, so labels cannot correct one")
    results, usable = [], []
    for run in runs:
        by_question = [drawn_labels(run, question.facet, question.metric.name) for question in questions]
        if all(isinstance(labels, Unusable) for labels in by_question):
            raise UsageError(f"--correct: {next(entry.reason for entry in by_question if isinstance(entry, Unusable))}")
        results += [
            question.corrected(run, labels, allowed) for question, labels in zip(questions, by_question, strict=True)
        ]
        usable.append(by_question)
    differences = [
        question.difference(runs, first, second)
        for question, first, second in zip(questions, usable[0], usable[-1], strict=True)
        if len(runs) == 2 and isinstance(first, DrawnLabels) and isinstance(second, DrawnLabels)
    ]
    return Correction(metrics=tuple(results), differences=tuple(differences))


@dataclass(frozen=True, slots=True)
class _CorrectedQuestion:
    """A question of type yes or no or scale, and the metric that it names."""

    facet: Facet
    definition: LabelQuestion
    metric: RunMetric

    def corrected(self, run: LabeledRun, labels: DrawnLabels | Unusable, allowed: float) -> CorrectedMetric:
        about = {
            "run": run.title,
            "metric": self.metric.name,
            "question": self.facet.key,
            "kind": self.metric.kind,
            "unmeasured": labels.left_out.unmeasured,
            "is_unreliable": labels.left_out.is_too_much(allowed),
            "note": labels.left_out.sentence("output", allowed),
        }
        if isinstance(labels, Unusable):
            return CorrectedMetric(**about, reason=labels.reason)
        judge, cases, sample = _arrays(labels, _codes(labels.judge))
        corrected = ppi.corrected_mean(judge, cases, sample, self._step)
        kind = self.metric.kind
        steps = 0.0 if kind == "continuous" else self._step  # of a number that is no rubric score: none
        limits = (0.0, 1.0) if kind == "bool" else self.metric.meaning.range or (-math.inf, None)
        note = _ALL_EQUAL if np.ptp(sample.people) == 0 else None
        return CorrectedMetric(
            **about,
            draw=labels.draw.about.which,
            cells=len(judge),
            uncovered=labels.uncovered,
            missing=labels.missing,
            waiting=labels.waiting,
            judge=_measure(ppi.judge_mean(judge, cases, steps), len(judge), limits),
            labels=_measure(ppi.labeled_mean(cases, sample, self._step), len(sample.rows), self._range, note),
            corrected=_measure(corrected, len(sample.rows), self._range),
            tuning=corrected.tuning,
        )

    def difference(self, runs: Sequence[LabeledRun], first: DrawnLabels, second: DrawnLabels) -> CorrectedDifference:
        """Pairs the cells of two runs by case, model run and sample; the model run may differ if each has only one."""
        a, b = _matched(first, second)
        about = {"a": runs[0].title, "b": runs[1].title, "metric": self.metric.name, "question": self.facet.key}
        counts = {"labels_a": len(a.labels), "labels_b": len(b.labels)}
        if not a.labels or not b.labels:
            empty = Statistic(n=len(a.judge), note="no cell that both runs have is labeled in each of them")
            return CorrectedDifference(**about, **counts, difference=empty)
        codes = _codes([*a.judge, *b.judge])
        estimates = [ppi.corrected_mean(*_arrays(labels, codes), self._step) for labels in (a, b)]
        span = self._range[1] - self._range[0]
        value = _measure(ppi.difference(*estimates), len(a.judge), (-span, span))
        return CorrectedDifference(**about, **counts, difference=value)

    @property
    def _step(self) -> float | None:
        return self.definition.step if self.facet.is_ordered else None

    @property
    def _range(self) -> tuple[float, float]:
        return self.definition.scale or (0.0, 1.0)


def _codes(cells: Iterable[CellKey]) -> dict[str, int]:
    """A number for each case, whose turns are not independent."""
    return {case: code for code, case in enumerate(dict.fromkeys(chain_of(cell[0]) for cell in cells))}


def _arrays(labels: DrawnLabels, codes: Mapping[str, int]) -> tuple[ppi.Floats, ppi.Codes, ppi.LabeledSample]:
    """The judge's values, the cases of the cells, and the labels."""
    row_of = {cell: row for row, cell in enumerate(labels.judge)}
    strata = {name: code for code, name in enumerate(dict.fromkeys(entry.stratum for entry in labels.labels))}
    sample = ppi.LabeledSample(
        rows=np.asarray([row_of[entry.cell] for entry in labels.labels], dtype=np.intp),
        people=np.asarray([entry.people for entry in labels.labels], dtype=float),
        weights=np.asarray([entry.weight for entry in labels.labels], dtype=float),
        strata=np.asarray([strata[entry.stratum] for entry in labels.labels], dtype=np.intp),
    )
    cases = np.asarray([codes[chain_of(cell[0])] for cell in labels.judge], dtype=np.intp)
    return np.asarray(list(labels.judge.values()), dtype=float), cases, sample


def _matched(first: DrawnLabels, second: DrawnLabels) -> tuple[DrawnLabels, DrawnLabels]:
    """The cells that both have, with their labels."""
    is_single = all(len({cell[1] for cell in labels.judge}) == 1 for labels in (first, second))

    def key(cell: CellKey) -> tuple[str, str, int]:
        return (cell[0], "" if is_single else cell[1], cell[2])

    common = {key(cell) for cell in first.judge} & {key(cell) for cell in second.judge}
    a, b = (
        replace(
            labels,
            judge={cell: value for cell, value in labels.judge.items() if key(cell) in common},
            labels=tuple(entry for entry in labels.labels if key(entry.cell) in common),
        )
        for labels in (first, second)
    )
    return a, b


def _measure(
    estimate: ppi.MeanEstimate, n: int, limits: tuple[float, float | None], note: str | None = None
) -> Statistic:
    """The value and its interval, within the limits."""
    if estimate.cases < 2:
        return Statistic(value=float(np.clip(estimate.value, *limits)), n=n, note=_ONE_CASE)
    bounds = estimate.interval()
    value, low, high = np.clip((estimate.value, bounds.low, bounds.high), *limits).tolist()
    return Statistic(value=value, low=low, high=high, n=n, note=note)
