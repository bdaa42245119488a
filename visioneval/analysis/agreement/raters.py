"""Raters: how far they agree with each other, which limits how far a grader can, and with their own answers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from visioneval.analysis.agreement.answers import Answers, Facet, LabeledRun, Unit, unit_of
from visioneval.analysis.stats.agreement import (
    Level,
    alpha_measure,
    category_measure,
    cohen_kappa,
    fleiss_kappa,
    quadratic_kappa,
)
from visioneval.analysis.stats.basic import Statistic, grouped
from visioneval.records.labels import Label
from visioneval.suite.filters import chain_of
from visioneval.types import Frozen

Compared = tuple[Facet, float, float]
SHOWN = 10
MAX_RATER_PAIRS = 500_000
"""The most pairs of answers to one item for which pairs of raters are compared."""
_ALL_EQUAL = "all answers are the same: agreement is undefined"
_TOO_MANY = "too many raters for pairwise kappa: see alpha"
_NO_KAPPA = "no two raters have common items with differing answers"
_NO_OVERLAP = "no item has answers from two raters"


class MatchCount(Frozen):
    """How many of ``n`` pairs of answers match. ``distance`` is the mean difference on scales, in steps."""

    n: int
    same: int
    distance: float | None = None

    @property
    def share(self) -> float | None:
        """The share of matching answers, or ``None`` without answers."""
        return self.same / self.n if self.n else None


class Day(MatchCount):
    """The matches of one day in UTC."""

    day: str


class RaterFinding(Frozen):
    """The findings for one rater.

    ``repeats`` compares repeated answers with the previous ones, ``anchors`` compares answers with the agreed ones.
    ``days`` groups all answers to anchors by day: a falling share shows drift.
    """

    rater: str
    answers: int
    repeats: MatchCount
    anchors: MatchCount
    days: tuple[Day, ...]


def rater_findings(runs: Sequence[LabeledRun], answers: Answers) -> tuple[RaterFinding, ...]:
    """Returns one finding per rater, most answers first."""
    repeats: list[tuple[str, Compared]] = []
    anchored: dict[str, list[tuple[str, Compared]]] = {}
    for run in runs:
        cells = {record.cell for record in run.records}
        labels = [label for label in run.labels if label.cell in cells]
        repeats += _compare_repeats(run, labels, answers)
        anchors = {(anchor.question, unit_of(run, anchor)): anchor for anchor in run.anchors}
        for label in labels:
            if (anchor := anchors.get((label.question, unit_of(run, label)))) is not None:
                compared_to_anchor = ((label.at[:10], compared) for compared in _compare(answers, anchor, label))
                anchored.setdefault(label.rater, []).extend(compared_to_anchor)
    findings = []
    for rater, count in sorted(answers.raters.items(), key=lambda entry: (-entry[1], entry[0])):
        by_day = grouped(anchored.get(rater, ()))
        findings.append(
            RaterFinding(
                rater=rater,
                answers=count,
                repeats=_match_count([compared for name, compared in repeats if name == rater]),
                anchors=_match_count([compared for _, compared in anchored.get(rater, ())]),
                days=tuple(Day(day=day, **_match_count(rows).model_dump()) for day, rows in sorted(by_day.items())),
            )
        )
    return tuple(findings)


def _match_count(compared: Sequence[Compared]) -> MatchCount:
    gaps = [
        abs(first - second) / facet.question.step
        for facet, first, second in compared
        if facet.is_ordered and facet.question
    ]
    return MatchCount(
        n=len(compared),
        same=sum(first == second for _, first, second in compared),
        distance=sum(gaps) / len(gaps) if gaps else None,
    )


def _compare_repeats(run: LabeledRun, labels: Sequence[Label], answers: Answers) -> Iterator[tuple[str, Compared]]:
    """Compares each answer with the previous one. A ``null`` answer withdraws the previous one."""
    histories: dict[tuple[str, str, Unit], list[Label]] = {}
    for label in labels:
        history = histories.setdefault((label.rater, label.question, unit_of(run, label)), [])
        if label.answer is not None:
            history.append(label)
        elif history:
            history.pop()
    for history in histories.values():
        for earlier, later in pairwise(history):
            yield from ((later.rater, compared) for compared in _compare(answers, earlier, later))


def _compare(answers: Answers, first: Label, second: Label) -> Iterator[Compared]:
    for facet in answers.facets.get(first.question, ()):
        first_code, second_code = facet.code(first), facet.code(second)
        if first_code is not None and second_code is not None:
            yield facet, first_code, second_code


class PairOfRaters(Frozen):
    """Cohen's kappa of two raters over their ``n`` common items, quadratic-weighted for a scale."""

    raters: tuple[str, str]
    n: int
    kappa: float | None


class SplitItem(Frozen):
    """An item on which raters disagree. ``answers`` counts each answer by its text."""

    run_id: str
    test_id: str
    model_label: str
    sample_index: int
    other: str | None
    answers: dict[str, int]


class RaterAgreement(Frozen):
    """Agreement among raters on one question, or on one of its tags.

    ``alpha`` is Krippendorff's alpha by level of measurement: nominal, or ordinal and interval for a scale. ``fleiss``
    covers the items with ``fleiss_raters`` answers, the most common number. ``cohen_mean`` is the mean of ``cohen``
    over pairs of raters, weighted by common items. Both are empty if there are too many raters.
    """

    question: str
    tag: str | None
    type: str
    raters: int
    items: int
    shared: int
    alpha: dict[Level, Statistic]
    fleiss: Statistic
    fleiss_raters: int | None
    cohen: tuple[PairOfRaters, ...]
    cohen_mean: Statistic
    split_items: tuple[SplitItem, ...]


def agreement_on(facet: Facet) -> RaterAgreement:
    """The agreement of raters on a question that has answers."""
    shared = {unit: by_rater for unit, by_rater in facet.answers.items() if len(by_rater) > 1}
    values, codes = np.unique([code for by_rater in shared.values() for code in by_rater.values()], return_inverse=True)
    counts = np.zeros((len(shared), len(values)), dtype=np.int64)
    np.add.at(counts, (np.repeat(np.arange(len(shared)), list(map(len, shared.values()))), codes), 1)
    cases = [chain_of(unit[1]) for unit in shared]
    levels: tuple[Level, ...] = ("ordinal", "interval") if facet.is_ordered else ("nominal",)
    alpha = dict.fromkeys(levels, Statistic(note=_NO_OVERLAP))
    for level in levels if shared else ():
        alpha[level] = alpha_measure(counts, values, level, cases, undefined=_ALL_EQUAL)
    fleiss, size = Statistic(note=_NO_OVERLAP), None
    if shared:  # over the items with the most common number of answers, as it allows no missing ones
        sizes = counts.sum(axis=1)
        size = int(max(Counter(sizes.tolist()).items(), key=lambda entry: (entry[1], entry[0]))[0])
        rows = np.flatnonzero(sizes == size)
        of_size, of_cases = counts[rows], [cases[row] for row in rows]
        kappa = fleiss_kappa(of_size)
        fleiss = category_measure(kappa, of_size, of_cases, correction=1.0, undefined=_ALL_EQUAL)
    has_too_many = sum(len(by_rater) * (len(by_rater) - 1) // 2 for by_rater in shared.values()) > MAX_RATER_PAIRS
    pairs = () if has_too_many else _cohen(facet, shared)
    weighted = [(pair.kappa, pair.n) for pair in pairs if pair.kappa is not None]
    if weighted:
        mean = sum(kappa * n for kappa, n in weighted) / sum(n for _, n in weighted)
        cohen_mean = Statistic(value=mean, n=len(weighted))
    else:
        cohen_mean = Statistic(note=_TOO_MANY if has_too_many else _NO_KAPPA)
    return RaterAgreement(
        question=facet.key,
        tag=facet.tag,
        type=facet.type,
        raters=len({rater for by_rater in facet.answers.values() for rater in by_rater}),
        items=len(facet.answers),
        shared=len(shared),
        alpha=alpha,
        fleiss=fleiss,
        fleiss_raters=size,
        cohen=pairs,
        cohen_mean=cohen_mean,
        split_items=_split_items(facet, shared),
    )


def _cohen(facet: Facet, shared: dict[Unit, dict[str, float]]) -> tuple[PairOfRaters, ...]:
    """Returns the pairs of raters with two or more common items, most common items first."""
    columns = grouped(
        ((first, second), (by_rater[first], by_rater[second]))
        for by_rater in shared.values()
        for first, second in combinations(sorted(by_rater), 2)
    )
    statistic = quadratic_kappa if facet.is_ordered else cohen_kappa
    pairs = []
    for raters, rows in columns.items():
        if len(rows) > 1:
            first, second = zip(*rows, strict=True)
            kappa = statistic(first, second)
            pairs.append(PairOfRaters(raters=raters, n=len(rows), kappa=None if np.isnan(kappa) else kappa))
    return tuple(sorted(pairs, key=lambda pair: (-pair.n, pair.raters)))


def _split_items(facet: Facet, shared: dict[Unit, dict[str, float]]) -> tuple[SplitItem, ...]:
    """Returns the items with the largest disagreement: variance on a scale, else the share outside the top answer."""

    def spread_of(by_rater: dict[str, float]) -> float:
        codes = list(by_rater.values())
        return float(np.var(codes)) if facet.is_ordered else 1 - max(Counter(codes).values()) / len(codes)

    ranked = sorted(((spread_of(by_rater), unit) for unit, by_rater in shared.items()), key=lambda entry: -entry[0])
    split = []
    for spread, unit in ranked[:SHOWN]:
        if spread > 0:
            answers = {facet.text_of(code): times for code, times in sorted(Counter(shared[unit].values()).items())}
            about = zip(("run_id", "test_id", "model_label", "sample_index", "other"), unit, strict=True)
            split.append(SplitItem.model_validate({**dict(about), "answers": answers}))
    return tuple(split)
