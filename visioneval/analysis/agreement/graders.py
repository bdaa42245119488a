"""Agreement of graders with human labels, by metric, and how far raters agree among themselves. Pure.

The human answer for a cell is the majority of its raters for yes or no and for words, and their mean for a scale.
Measures that need a clear answer leave out even splits. The positive class is a failure: precision is the share of the
grader's failures that people fail too, and recall is the share of people's failures that the grader fails too.

For the ceiling, each rater in turn is left out: the other raters of a cell are the reference for the rater's answer and
for the grader's score. So a grader that is as good as one more rater has the raters' value, whatever their number. A
comparison with all raters of a cell would not show that, as the majority or mean of more raters is a better reference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import isnan, nan
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.agreement.answers import Answers, Facet, Unit
from visioneval.analysis.left_out import DueMetrics, LeftOut
from visioneval.analysis.sides import writers_of
from visioneval.analysis.stats.agreement import (
    Floats,
    coefficient_measure,
    kappa_measure,
    pairwise_accuracy_measure,
    quadratic_kappa,
    rate_measure,
)
from visioneval.analysis.stats.basic import Statistic
from visioneval.analysis.stats.correlation import kendall, mean_ranks, pearson, spearman
from visioneval.errors import UsageError
from visioneval.records.model import Record, RunInfo
from visioneval.rules import Rule, parse_rule
from visioneval.suite.entries.graders import rubric_scale
from visioneval.suite.filters import chain_of
from visioneval.suite.labels import VERDICT
from visioneval.suite.metrics import describe_meaning, meanings_of, same_meaning
from visioneval.suite.model import Suite
from visioneval.types import Frozen, Metric, Verdict

Flags = NDArray[np.bool_]
Kind = Literal["bool", "one_of", "scale", "continuous"]
HEADLINES: dict[Kind, str] = {
    "bool": "kappa",
    "one_of": "kappa",
    "scale": "quadratic_kappa",
    "continuous": "spearman",
}
MEASURES = (
    "kappa",
    "quadratic_kappa",
    "accuracy",
    "fail_precision",
    "fail_recall",
    "spearman",
    "kendall",
    "pearson",
    "pairwise_accuracy",
)
"""How well graders agree with people, without those of pairs:

- ``kappa``: Cohen's, of yes or no, `verdict` and words: 0 is chance, 1 perfect.
- ``quadratic_kappa``: Of a rubric's scale, weighted by squared disagreement.
- ``accuracy``: Of yes or no, `verdict`, words and scales: the share of cells on which people and grader agree.
- ``fail_precision``: Of yes or no, `verdict` and scales: of the cells that the grader fails, the share that people
  fail.
- ``fail_recall``: The reverse: of the cells that people fail, the share that the grader fails.
- ``spearman``: Correlation of ranks; not of words.
- ``kendall``: Correlation of the order of pairs (tau-b); not of words.
- ``pearson``: Linear correlation; not of words.
- ``pairwise_accuracy``: Share of pairs of cells in people's order, with calibrated ties (acc_eq); not of words. Chance
  has no fixed value.
"""
_ONE_ANSWER = "the raters and the grader give every cell the same answer: the measure is undefined"
_CONSTANT = "one side gives every cell the same value: the measure is undefined"
_NO_OTHERS = "no cell has answers from two raters: the ceiling is unknown"
_ALL_SPLIT = "the other raters of every cell are evenly split: the ceiling is unknown"
_RATERS_ALIKE = "the raters give every cell the same answer: the measure is undefined"


def headline_measure(
    kind: Kind, first: Floats, second: Floats, cases: Sequence[str], *, undefined: str | None = None
) -> Statistic:
    """The measure that stands for a kind of metric, of two columns of shape ``(rows,)``."""
    if kind in ("bool", "one_of"):
        return kappa_measure(first, second, cases, undefined=undefined or _ONE_ANSWER)
    if kind == "scale":
        return coefficient_measure(quadratic_kappa, first, second, cases, undefined=undefined or _ONE_ANSWER)
    return coefficient_measure(spearman, first, second, cases, undefined=undefined or _CONSTANT)


def chance_measures(kind: Kind, people: Floats, grader: Floats, cases: Sequence[str]) -> dict[str, Statistic]:
    """Kappa, or kappa with quadratic weights; empty for numbers on different scales. For words also the accuracy."""
    if kind == "one_of":
        equal = rate_measure(people == grader, cases)
        return {"kappa": headline_measure(kind, people, grader, cases), "accuracy": equal}
    return {} if kind == "continuous" else {HEADLINES[kind]: headline_measure(kind, people, grader, cases)}


def rank_measures(people: Floats, grader: Floats, cases: Sequence[str]) -> dict[str, Statistic]:
    """The correlations, and the accuracy over pairs of cells."""
    return {
        "spearman": coefficient_measure(spearman, people, grader, cases, undefined=_CONSTANT),
        "kendall": coefficient_measure(kendall, people, grader, cases, undefined=_CONSTANT),
        "pearson": coefficient_measure(pearson, people, grader, cases, undefined=_CONSTANT),
        "pairwise_accuracy": pairwise_accuracy_measure(people, grader, cases, undefined=_CONSTANT),
    }


def failures(meaning: Metric, rule: Rule | None, values: Floats) -> Flags:
    """Which values fail: those that violate ``rule`` or, without one, the worse answer of yes and no."""
    if rule is None:
        return np.asarray(values == (1.0 if meaning.better == "lower" else 0.0))
    return np.asarray([rule.outcome({rule.metric: float(value)}) == "failed" for value in values], dtype=bool)


def failure_measures(people: Flags, grader: Flags, cases: Sequence[str]) -> dict[str, Statistic]:
    """Accuracy, precision and recall of failures, given which cells fail, shape ``(cells,)`` each. Precision and recall
    are rates over the cells that the grader fails, and that people fail."""

    def share(values: Flags, among: Flags, undefined: str) -> Statistic:
        return rate_measure(values[among], list(compress(cases, among)), undefined=undefined)

    return {
        "accuracy": rate_measure(people == grader, cases),
        "fail_precision": share(people, grader, "the grader fails no cell"),
        "fail_recall": share(grader, people, "the raters fail no cell"),
    }


def joint_answer(kind: Kind, codes: Sequence[float]) -> float:
    """What several raters answer together: their mean, of yes or no the majority, of words the most frequent one.

    nan if they are evenly split between two answers.
    """
    if kind not in ("bool", "one_of"):
        return sum(codes) / len(codes)
    (answer, times), *others = Counter(codes).most_common(2)
    return nan if others and others[0][1] == times else answer


def against_other_raters(
    kind: Kind, answers: Sequence[Sequence[float]], grader: Floats, cases: Sequence[str]
) -> tuple[Statistic, Statistic]:
    """The headline measure of each rater against the other raters, and of the grader against the same raters.

    ``answers`` are those of all raters by cell; ``grader`` and ``cases`` have one entry per cell. The reference is what
    the other raters answer together; evenly split ones are left out.
    """
    raters, references, scores, row_cases = [], [], [], []
    for codes, score, case in zip(answers, grader, cases, strict=True):
        for at, code in enumerate(codes if len(codes) > 1 else ()):
            reference = joint_answer(kind, [*codes[:at], *codes[at + 1 :]])
            if not isnan(reference):
                raters.append(code)
                references.append(reference)
                scores.append(score)
                row_cases.append(case)
    if not raters:
        reason = _ALL_SPLIT if any(len(codes) > 1 for codes in answers) else _NO_OTHERS
        return Statistic(note=reason), Statistic(note=reason)
    others = np.asarray(references, dtype=float)
    ceiling, in_place = (
        headline_measure(kind, np.asarray(column, dtype=float), others, row_cases, undefined=undefined)
        for column, undefined in ((raters, _RATERS_ALIKE), (scores, None))
    )
    return ceiling, in_place


SHOWN = 10
_MAX_CONFUSION_STEPS = 100


class Confusion(Frozen):
    """A confusion matrix: rows are human answers, columns are the grader's."""

    people: tuple[str, ...]
    grader: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


class Disputed(Frozen):
    """A cell with a large ``gap`` (0..1) between people and grader. ``people`` is the share of yes, the mean, or
    the most frequent word."""

    run_id: str
    test_id: str
    model_label: str
    sample_index: int
    people: float | str
    raters: int
    grader: float | str
    gap: float
    reason: str


class GraderAgreement(Frozen):
    """The agreement of a metric with the labels of a question."""

    metric: str
    """The metric, or ``verdict``."""
    question: str
    """The question's key."""
    kind: Kind
    """What is compared: yes or no, words, the scale of a rubric, or other numbers."""
    cells: int
    """The cells with labels and a score."""
    split: int
    """Cells on which raters are evenly split. Kappa, accuracy and FAIL leave them out: an odd number of raters avoids
    them.
    """
    unmeasured: int
    """Labeled cells without a score."""
    headline: str
    """The measure that ``--min`` uses by default: ``kappa``, ``quadratic_kappa``, or ``spearman`` of other numbers."""
    measures: dict[str, Statistic]
    """The measures, by name."""
    ceiling: Statistic
    """The headline measure of each rater against the other raters of the same cells."""
    grader_as_rater: Statistic
    """The headline measure of the grader against the same raters: one that is as good as one more rater reaches the
    ceiling.
    """
    rule: str | None
    """What decides which values of a scale or number fail: the suite's first rule over the metric that applies to all
    cells.
    """
    confusion: Confusion | None
    """The cells by what people and grader say."""
    disputed: tuple[Disputed, ...]
    """The largest disagreements."""

    @property
    def left_out(self) -> LeftOut:
        """The labeled cells that were not measured."""
        return LeftOut(self.unmeasured, self.cells + self.unmeasured)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The cells with both labels and a score. All lists have one entry per cell."""

    units: list[Unit]
    answers: list[list[float]]
    people: Floats
    grader: Floats
    unmeasured: int

    @property
    def cases(self) -> list[str]:
        """The case of each row."""
        return [chain_of(unit[1]) for unit in self.units]


@dataclass(frozen=True, slots=True)
class RunMetric:
    """A metric of a run: its definition, its suite, and the key of the grader that writes it."""

    name: str
    meaning: Metric
    suite: Suite
    writer: str | None

    @property
    def kind(self) -> Kind:
        """``bool``, ``one_of`` for words, ``scale`` for a rubric's scale, or ``continuous`` for any other number."""
        if self.meaning.type != "number":
            return self.meaning.type
        return "scale" if rubric_scale(self.name, self.suite.graders) else "continuous"


def metrics_of(infos: Sequence[RunInfo]) -> dict[str, RunMetric]:
    """The metrics of runs, and the verdict. Raises ``UsageError`` if runs define a metric differently."""
    metrics: dict[str, RunMetric] = {}
    for info in infos:
        writers = writers_of(info)
        for name, meaning in {VERDICT: Metric(), **meanings_of(info.metrics, info.suite)}.items():
            first = metrics.setdefault(name, RunMetric(name, meaning, info.suite, writers.get(name)))
            if not same_meaning(first.meaning, meaning):
                both = describe_meaning(first.meaning, meaning), describe_meaning(meaning, first.meaning)
                raise UsageError(
                    f"{info.run_id} defines metric {name!r} differently ({' -> '.join(both)}): analyze the runs"
                    " separately"
                )
    return metrics


def against_graders(answers: Answers, metrics: Mapping[str, RunMetric]) -> tuple[GraderAgreement, ...]:
    """Returns one finding per question and metric that it names, in suite order."""
    return tuple(
        _agreement_of(facet, metrics[name], answers)
        for facet in answers.all_facets
        if facet.question is not None
        for name in facet.question.metrics
        if name in metrics
    )


def _agreement_of(facet: Facet, measured: RunMetric, answers: Answers) -> GraderAgreement:
    metric, meaning, kind = measured.name, measured.meaning, measured.kind
    rows = _rows(facet, measured, answers)
    people, grader, cases = rows.people, rows.grader, rows.cases
    if kind == "bool":
        clear = rows.people != 0.5
        people, grader, cases = np.round(people[clear]), grader[clear], list(compress(cases, clear))
    if kind == "one_of":
        clear = np.isfinite(rows.people)
        people, grader, cases = people[clear], grader[clear], list(compress(cases, clear))
    rules = (parse_rule(entry.rule) for entry in measured.suite.verdict if entry.is_unrestricted)
    about_metric = (rule for rule in rules if rule.metric == metric and rule.op is not None)
    rule = next(about_metric, None) if kind == "scale" else None
    measures = chance_measures(kind, people, grader, cases)
    if kind == "bool" or rule is not None:
        failed = [failures(meaning, rule, side) for side in (people, grader)]
        measures |= failure_measures(failed[0], failed[1], cases)
    if kind != "one_of":
        measures |= rank_measures(rows.people, rows.grader, rows.cases)
    ceiling, grader_as_rater = against_other_raters(kind, rows.answers, rows.grader, rows.cases)
    return GraderAgreement(
        metric=metric,
        question=facet.key,
        kind=kind,
        cells=len(rows.units),
        split=len(rows.units) - len(people),
        unmeasured=rows.unmeasured,
        headline=HEADLINES[kind],
        measures=measures,
        ceiling=ceiling,
        grader_as_rater=grader_as_rater,
        rule=rule.text if rule else None,
        confusion=_confusion(facet, kind, people, grader),
        disputed=_disputed(measured, rows, answers, facet),
    )


def _rows(facet: Facet, measured: RunMetric, answers: Answers) -> _Rows:
    units, answers_by_unit, scores, unmeasured = [], [], [], len(facet.unknown_cells)
    for unit, by_rater in facet.answers.items():
        run, test_id, label, sample, other = unit
        record = answers.records[run, (test_id, label, sample)]
        applies, score = score_of(record, measured.name, answers.due[run], facet)
        if other is not None or not applies:
            continue
        if score is None:
            unmeasured += 1
            continue
        units.append(unit)
        answers_by_unit.append(list(by_rater.values()))
        scores.append(score)
    kind: Kind = "one_of" if measured.kind == "one_of" else "scale"  # of yes or no, the share of yes
    people = np.asarray([joint_answer(kind, codes) for codes in answers_by_unit], dtype=float)
    return _Rows(units, answers_by_unit, people, np.asarray(scores, dtype=float), unmeasured)


def score_of(record: Record, metric: str, due: DueMetrics, facet: Facet) -> tuple[bool, float | None]:
    """Whether a metric applies to a cell, and its value in the codes of answers, or ``None`` if unmeasured."""
    score = record.scores.get(metric)
    if score is not None:
        return True, facet.coded(score)
    if metric == VERDICT:
        passed = record.verdict.passed
        return record.verdict is not Verdict.NONE, None if passed is None else float(passed)
    return due.is_left_out(record, metric), None


def _confusion(facet: Facet, kind: Kind, people: Floats, grader: Floats) -> Confusion | None:
    """Counts by answer, or by the steps of a scale, with values rounded to the nearest step.

    ``None`` for a scale of over 100 steps: nearly all counts would be 0.
    """
    if kind == "continuous" or not len(people) or facet.question is None:
        return None
    if len(facet.question.steps) > _MAX_CONFUSION_STEPS + 1:
        return None
    if kind == "one_of":
        codes = np.zeros((len(facet.names), len(facet.names)), dtype=int)
        np.add.at(codes, (people.astype(int), grader.astype(int)), 1)
        return Confusion(people=facet.names, grader=facet.names, counts=tuple(tuple(map(int, row)) for row in codes))
    step = 1.0 if kind == "bool" else facet.question.step
    start = 0.0 if kind == "bool" or facet.question.scale is None else facet.question.scale[0]
    rounded = [np.round(start + np.round((side - start) / step) * step, 9) for side in (people, grader)]
    steps = [0.0, 1.0] if kind == "bool" else facet.question.steps
    kinds = np.unique(np.concatenate([*rounded, np.asarray(steps, dtype=float)]))
    counts = np.zeros((len(kinds), len(kinds)), dtype=int)
    np.add.at(counts, tuple(np.searchsorted(kinds, side) for side in rounded), 1)
    names = facet.names if kind == "bool" else tuple(f"{value:g}" for value in kinds)
    return Confusion(people=names, grader=names, counts=tuple(tuple(map(int, row)) for row in counts))


def _disputed(measured: RunMetric, rows: _Rows, answers: Answers, facet: Facet) -> tuple[Disputed, ...]:
    distance = np.abs(rows.people - rows.grader)
    if measured.kind == "one_of":
        gaps = np.asarray(np.isfinite(rows.people) & (distance > 0), dtype=float)
    elif measured.kind == "continuous":  # they share no scale
        gaps = np.abs(mean_ranks(rows.people) - mean_ranks(rows.grader)) / max(len(rows.units) - 1, 1)
    else:
        low, high = measured.meaning.range or (0.0, 1.0)
        span = high - low if high is not None and high > low else 1.0  # the range of a run may be empty
        gaps = np.clip(distance / span, 0, 1)
    is_split = (rows.people == 0.5) & (measured.kind == "bool")  # neither for the grader nor against it
    shown = facet.text_of if measured.kind == "one_of" else float
    worst = sorted(np.flatnonzero((gaps > 0) & ~is_split), key=lambda row: (-gaps[row], -len(rows.answers[row]), row))
    reasons = ("refused",) if measured.writer is None else (measured.name, measured.writer, "refused")
    disputed = []
    for row in worst[:SHOWN]:
        run, test_id, label, sample, _ = rows.units[row]
        record = answers.records[run, (test_id, label, sample)]
        rules = "; ".join(record.failed_rules) if measured.writer is None else ""
        disputed.append(
            Disputed(
                run_id=run,
                test_id=test_id,
                model_label=label,
                sample_index=sample,
                people=shown(rows.people[row]),
                raters=len(rows.answers[row]),
                grader=shown(rows.grader[row]),
                gap=float(gaps[row]),
                reason=rules or next(filter(None, map(record.reasons.get, reasons)), ""),
            )
        )
    return tuple(disputed)
