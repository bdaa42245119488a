"""Judges against agreed answers, run by run: a falling share is drift. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from visioneval.analysis.agreement.answers import Answers, Facet, LabeledRun
from visioneval.analysis.disagreements import Disagreements
from visioneval.analysis.stats.clusters import rate_interval
from visioneval.analysis.summary.judge_card import JudgeCard, JudgeCards, PairCard
from visioneval.records.model import CellKey, Record, RunInfo
from visioneval.suite.turns import chain_of
from visioneval.types import Frozen


class AnchorMatch(Frozen):
    """A judge's metric against the agreed answers to a question.

    ``same`` is the share of ``n`` anchors with the same answer, with its 95 % interval over cases. ``higher`` is the
    mean of the judge's score minus the agreed answer, and ``distance`` its mean size, both on a scale only.
    ``unmeasured`` more anchors have no score.
    """

    grader: str
    metric: str
    question: str
    n: int
    unmeasured: int
    same: float | None = None
    low: float | None = None
    high: float | None = None
    higher: float | None = None
    distance: float | None = None


class RunJudges(Frozen):
    """The judges of one run. ``anchors`` is empty if no anchor answers a question about a metric of a judge."""

    run_id: str
    started_at: str
    cards: tuple[JudgeCard, ...]
    pairs: tuple[PairCard, ...]
    anchors: tuple[AnchorMatch, ...]


def judges_by_run(runs: Sequence[LabeledRun], answers: Answers) -> tuple[RunJudges, ...]:
    """One entry per run that has judges, oldest first."""
    in_order = sorted(runs, key=lambda run: (run.info.started_at, run.info.run_id))
    judges = (_judges_of(run, answers) for run in in_order)
    return tuple(entry for entry in judges if entry.cards or entry.pairs)


def _judges_of(run: LabeledRun, answers: Answers) -> RunJudges:
    cards, disagreements = JudgeCards(run.info), Disagreements(run.info.selected_suite)
    for record in run.records:
        cards.add(record)
        disagreements.add(record)
    return RunJudges(
        run_id=run.info.run_id,
        started_at=run.info.started_at,
        cards=cards.result(disagreements.result()),
        pairs=tuple(run.pair_cards),
        anchors=tuple(_anchor_matches(run, answers)),
    )


def _anchor_matches(run: LabeledRun, answers: Answers) -> Iterator[AnchorMatch]:
    records = {record.cell: record for record in run.records}
    writers = _judged_metrics(run.info)
    for facet in answers.all_facets:
        for metric in facet.question.metrics if facet.question is not None else ():
            if metric not in writers:
                continue
            agreed = _agreed(run, facet, records, metric)
            if agreed:
                yield _match(facet, metric, writers[metric], agreed, records)


def _agreed(run: LabeledRun, facet: Facet, records: Mapping[CellKey, Record], metric: str) -> dict[CellKey, float]:
    """The agreed answers about the cells of a run that have the metric."""
    agreed: dict[CellKey, float] = {}
    for anchor in run.anchors:
        code = facet.code(anchor) if anchor.question == facet.key and anchor.other is None else None
        record = records.get(anchor.cell)
        if code is not None and record is not None and metric in record.scores:
            agreed[anchor.cell] = code
    return agreed


def _match(
    facet: Facet, metric: str, grader: str, agreed: Mapping[CellKey, float], records: Mapping[CellKey, Record]
) -> AnchorMatch:
    gaps: dict[str, list[float]] = {}
    for cell, answer in agreed.items():
        score = records[cell].scores[metric]
        if score is not None:
            gaps.setdefault(chain_of(cell[0]), []).append(float(score) - answer)
    differences = [gap for case in gaps.values() for gap in case]
    n = len(differences)
    sums = [(float(sum(gap == 0 for gap in case)), len(case)) for case in gaps.values()]
    interval = rate_interval(sums)
    has_distance = facet.is_ordered and n > 0
    return AnchorMatch(
        grader=grader,
        metric=metric,
        question=facet.key,
        n=n,
        unmeasured=len(agreed) - n,
        same=fsum(total for total, _ in sums) / n if n else None,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        higher=fsum(differences) / n if has_distance else None,
        distance=fsum(map(abs, differences)) / n if has_distance else None,
    )


def _judged_metrics(info: RunInfo) -> dict[str, str]:
    """The metrics that judges score, with the keys of their graders."""
    suite = info.selected_suite
    judges = [grader for grader in suite.graders if grader.judge_names]
    return {name: grader.key for grader in judges for case in suite.cases for name in grader.metrics(case)}
