"""Rates and means of a judge, corrected by the labels of a random draw, and the difference of two runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from visioneval.analysis.agreement.answers import Answers, Facet, LabeledRun
from visioneval.analysis.agreement.drawn_labels import DrawnLabels, Unusable, drawn_labels
from visioneval.analysis.agreement.graders import RunMetric
from visioneval.analysis.agreement.measures import Kind
from visioneval.analysis.stats.agreement import prediction_powered as ppi
from visioneval.analysis.stats.measure import Statistic
from visioneval.errors import UsageError
from visioneval.records.model import CellKey
from visioneval.suite.labels import LabelQuestion
from visioneval.suite.turns import chain_of
from visioneval.types import Frozen

_ONE_CASE = "all cells are of one case: no interval"
_ALL_EQUAL = "all labels are the same: the interval allows for what this number of labels can miss"


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

    @property
    def is_reliable(self) -> bool:
        """Whether the judge measured enough for every figure."""
        return not any(metric.is_unreliable for metric in self.metrics)


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
        if name in metrics
    ]
    if not questions:
        raise UsageError("--correct: no question in the suite names a metric, so labels cannot correct one")
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
            "run": name_of(run),
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
        note = _ALL_EQUAL if np.ptp(sample.people) == 0 else None
        return CorrectedMetric(
            **about,
            draw=labels.draw.about.which,
            cells=len(judge),
            uncovered=labels.uncovered,
            missing=labels.missing,
            waiting=labels.waiting,
            judge=_measure(ppi.judge_mean(judge, cases, self._judge_step), len(judge), self._judge_range),
            labels=_measure(ppi.labeled_mean(cases, sample, self._step), len(sample.rows), self._range, note),
            corrected=_measure(corrected, len(sample.rows), self._range),
            tuning=corrected.tuning,
        )

    def difference(self, runs: Sequence[LabeledRun], first: DrawnLabels, second: DrawnLabels) -> CorrectedDifference:
        """Pairs the cells of two runs by case, model run and sample; the model run may differ if each has only one."""
        a, b = _matched(first, second)
        about = {"a": name_of(runs[0]), "b": name_of(runs[1]), "metric": self.metric.name, "question": self.facet.key}
        counts = {"labels_a": len(a.labels), "labels_b": len(b.labels)}
        if not a.labels or not b.labels:
            empty = Statistic(n=len(a.judge), note="no cell that both runs have is labeled in each of them")
            return CorrectedDifference(**about, **counts, difference=empty)
        codes = _codes([*a.judge, *b.judge])
        estimates = [ppi.corrected_mean(*_arrays(labels, codes), self._step) for labels in (a, b)]
        low, high = self._range
        span = high - low
        value = _measure(ppi.difference(*estimates), len(a.judge), (-span, span))
        return CorrectedDifference(**about, **counts, difference=value)

    @property
    def _step(self) -> float | None:
        return self.definition.step if self.facet.is_ordered else None

    @property
    def _range(self) -> tuple[float, float]:
        return self.definition.scale or (0.0, 1.0)

    @property
    def _judge_step(self) -> float | None:
        """A number that is no rubric score has no steps: its interval has no more than the cells show."""
        return 0.0 if self.metric.kind == "continuous" else self._step

    @property
    def _judge_range(self) -> tuple[float, float | None]:
        return (0.0, 1.0) if self.metric.kind == "bool" else self.metric.meaning.range or (-math.inf, None)


def name_of(run: LabeledRun) -> str:
    """The run as the user named it."""
    return run.name or run.info.run_id


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
    low, high = limits[0], math.inf if limits[1] is None else limits[1]
    value = min(max(estimate.value, low), high)
    if estimate.cases < 2:
        return Statistic(value=value, n=n, note=_ONE_CASE)
    bounds = estimate.interval()
    return Statistic(
        value=value, low=min(max(bounds.low, low), high), high=min(max(bounds.high, low), high), n=n, note=note
    )
