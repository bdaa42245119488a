"""Judges of pairs against people, and all judges against agreed answers, run by run: a falling share is drift. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import fsum
from typing import Literal

import numpy as np

from visioneval.analysis.agreement.answers import Answers, Facet, LabeledRun
from visioneval.analysis.agreement.graders import Confusion
from visioneval.analysis.preferences import Result, summarize_preferences
from visioneval.analysis.stats.agreement import kappa_measure, rate_measure
from visioneval.analysis.stats.basic import Statistic, ends, grouped
from visioneval.analysis.stats.intervals import rate_interval
from visioneval.analysis.summary.judges import Disagreements, JudgeCard, JudgeCards, PairCard, pair_cards
from visioneval.records.between_cells import Preference
from visioneval.records.labels import PAIR_ANSWERS
from visioneval.records.model import CellKey
from visioneval.suite.filters import chain_of
from visioneval.types import Frozen

Winner = Literal["a", "b", "tie"]
PairKey = tuple[str, int]
"""Case and sample."""
_POINTS: Mapping[Winner, float] = {"a": 0.0, "tie": 0.5, "b": 1.0}
_FLIPPED: Mapping[Result, Result] = {"a": "b", "b": "a"}
_UNDECIDED = "people prefer neither image in any pair that the judge answered"
_ONE_ANSWER = "people and the judge give every pair the same answer: the measure is undefined"


class HumanPreferences(Frozen):
    """People's preferences between the outputs of ``a`` and ``b``, each a ``RUN_ID@label``, by one question.

    The winner of a pair is the image with more votes; equal votes are a tie. ``b_win_rate`` is the share of pairs that
    B wins, ties counting half.
    """

    question: str
    a: str
    b: str
    raters: int
    a_wins: int
    b_wins: int
    ties: int
    b_win_rate: Statistic


class PairwiseJudgeAgreement(Frozen):
    """A pairwise judge and people, over the ``pairs`` that both answered, of all model runs together.

    ``accuracy`` is the share of the ``decided`` pairs, those with a human winner, in which the judge prefers the same
    image; a tie or a flip of the judge counts half. ``kappa`` is over all pairs, with the answers a, b and tie; the
    judge's ``flips`` are ties. ``unjudged`` pairs have labels, but no answer from the judge in an order.
    """

    question: str
    judge: str
    pairs: int
    decided: int
    flips: int
    unjudged: int
    accuracy: Statistic
    kappa: Statistic
    confusion: Confusion


@dataclass(frozen=True, slots=True)
class _LabeledPairs:
    """The human winners of the pairs of two model runs."""

    question: str
    a: str
    b: str
    winners: dict[PairKey, Winner] = field(default_factory=dict)
    raters: set[str] = field(default_factory=set)


def preferences_of_people(answers: Answers) -> tuple[HumanPreferences, ...]:
    """Returns one finding per question and two model runs, in order of first appearance."""
    findings = []
    for labeled in _labeled_pairs(answers):
        winners = list(labeled.winners.values())
        cases = [chain_of(case) for case, _ in labeled.winners]
        finding = HumanPreferences(
            question=labeled.question,
            a=labeled.a,
            b=labeled.b,
            raters=len(labeled.raters),
            a_wins=winners.count("a"),
            b_wins=winners.count("b"),
            ties=winners.count("tie"),
            b_win_rate=rate_measure([_POINTS[winner] for winner in winners], cases),
        )
        findings.append(finding)
    return tuple(findings)


def against_pairwise_judges(runs: Sequence[LabeledRun], answers: Answers) -> tuple[PairwiseJudgeAgreement, ...]:
    """Returns one finding per question and judge that answered a labeled pair."""
    lines: dict[object, Preference] = {line.key: line for run in runs for line in run.preferences}
    judged = summarize_preferences(lines.values())
    compared: dict[tuple[str, str], list[tuple[str, Winner, Result]]] = {}
    for labeled in _labeled_pairs(answers):
        for finding in judged:
            rows = compared.setdefault((labeled.question, finding.judge), [])
            if {finding.a, finding.b} != {labeled.a, labeled.b}:
                continue
            for pair in finding.pairs:
                winner = labeled.winners.get((pair.test_id, pair.sample_index))
                if winner is not None:
                    is_swapped = finding.a != labeled.a
                    result = _FLIPPED.get(pair.result, pair.result) if is_swapped else pair.result
                    rows.append((pair.test_id, winner, result))
    return tuple(_judge_agreement(question, judge, rows) for (question, judge), rows in compared.items() if rows)


def _labeled_pairs(answers: Answers) -> list[_LabeledPairs]:
    by_runs: dict[tuple[str, str, str], _LabeledPairs] = {}
    for facet in answers.all_facets:
        for (run, test_id, label, sample, other), by_rater in facet.answers.items() if facet.type == "pair" else ():
            about = facet.key, f"{run}@{label}", str(other)
            labeled = by_runs.setdefault(about, _LabeledPairs(*about))
            votes = [PAIR_ANSWERS[int(code)] for code in by_rater.values()]
            lead = votes.count("b") - votes.count("a")
            labeled.winners[test_id, sample] = "tie" if lead == 0 else "b" if lead > 0 else "a"
            labeled.raters.update(by_rater)
    return list(by_runs.values())


def _judge_agreement(
    question: str, judge: str, compared: Sequence[tuple[str, Winner, Result]]
) -> PairwiseJudgeAgreement:
    answered = [row for row in compared if row[2] != "error"]
    cases = [chain_of(case) for case, _, _ in answered]
    people = [winner for _, winner, _ in answered]
    judged: list[Winner] = [result if result in ("a", "b") else "tie" for _, _, result in answered]
    decided = [winner != "tie" for winner in people]
    points = [1 - abs(_POINTS[winner] - _POINTS[choice]) for winner, choice in zip(people, judged, strict=True)]
    people_codes, judged_codes = (np.asarray([_POINTS[winner] for winner in side]) for side in (people, judged))
    counts = Counter(zip(people, judged, strict=True))
    return PairwiseJudgeAgreement(
        question=question,
        judge=judge,
        pairs=len(answered),
        decided=sum(decided),
        flips=sum(result == "flip" for _, _, result in answered),
        unjudged=len(compared) - len(answered),
        accuracy=rate_measure(list(compress(points, decided)), list(compress(cases, decided)), undefined=_UNDECIDED),
        kappa=kappa_measure(people_codes, judged_codes, cases, undefined=_ONE_ANSWER),
        confusion=Confusion(
            people=tuple(_POINTS),
            grader=tuple(_POINTS),
            counts=tuple(tuple(counts[row, column] for column in _POINTS) for row in _POINTS),
        ),
    )


class AnchorMatch(Frozen):
    """A judge's metric against the agreed answers to a question."""

    grader: str
    """The grader's key."""
    metric: str
    """The metric."""
    question: str
    """The question's key."""
    n: int
    """The anchors with a score."""
    unmeasured: int
    """Anchors without a score, printed as `!2`."""
    same: float | None = None
    """The share of anchors with the same answer."""
    low: float | None = None
    """The lower end of its 95 % interval over cases."""
    high: float | None = None
    """The upper end."""
    higher: float | None = None
    """On a scale: the mean of judge minus anchor, printed as `difference`."""
    distance: float | None = None
    """On a scale: the mean size of that."""


class RunJudges(Frozen):
    """The judges of one run. ``anchors`` is empty if no anchor answers a question about a metric of a judge."""

    run_id: str
    started_at: str
    cards: tuple[JudgeCard, ...]
    pairs: tuple[PairCard, ...]
    anchors: tuple[AnchorMatch, ...]


def judges_by_run(runs: Sequence[LabeledRun], answers: Answers) -> tuple[RunJudges, ...]:
    """One entry per run that has judges, oldest first."""
    judges = []
    for run in sorted(runs, key=lambda run: (run.info.started_at, run.info.run_id)):
        cards, disagreements = JudgeCards(run.info), Disagreements(run.info.selected_suite)
        for record in run.records:
            cards.add(record)
            disagreements.add(record)
        of_run = RunJudges(
            run_id=run.info.run_id,
            started_at=run.info.started_at,
            cards=cards.result(disagreements.result()),
            pairs=pair_cards(run.preferences),
            anchors=tuple(_anchor_matches(run, answers)),
        )
        if of_run.cards or of_run.pairs:
            judges.append(of_run)
    return tuple(judges)


def _anchor_matches(run: LabeledRun, answers: Answers) -> Iterator[AnchorMatch]:
    records = {record.cell: record for record in run.records}
    suite = run.info.selected_suite
    judges = [grader for grader in suite.graders if grader.judge_names]
    writers = {name: grader.key for grader in judges for case in suite.cases for name in grader.metrics(case)}
    for facet in answers.all_facets:
        for metric in facet.question.metrics if facet.question is not None else ():
            agreed: dict[CellKey, tuple[float, float | None]] = {}
            for anchor in run.anchors if metric in writers else ():
                code = facet.code(anchor) if anchor.question == facet.key and anchor.other is None else None
                record = records.get(anchor.cell)
                if code is not None and record is not None and metric in record.scores:
                    agreed[anchor.cell] = code, facet.coded(record.scores[metric])
            measured = ((cell, score - answer) for cell, (answer, score) in agreed.items() if score is not None)
            gaps = grouped((chain_of(cell[0]), gap) for cell, gap in measured)
            if agreed:
                yield _anchor_match(facet, metric, writers[metric], len(agreed), gaps)


def _anchor_match(facet: Facet, metric: str, grader: str, anchors: int, gaps: Mapping[str, list[float]]) -> AnchorMatch:
    """``gaps`` are by case what the scores differ from the agreed answers by."""
    differences = [gap for case in gaps.values() for gap in case]
    n = len(differences)
    sums = [(float(sum(gap == 0 for gap in case)), len(case)) for case in gaps.values()]
    low, high = ends(rate_interval(sums))
    has_distance = facet.is_ordered and n > 0
    return AnchorMatch(
        grader=grader,
        metric=metric,
        question=facet.key,
        n=n,
        unmeasured=anchors - n,
        same=fsum(total for total, _ in sums) / n if n else None,
        low=low,
        high=high,
        higher=fsum(differences) / n if has_distance else None,
        distance=fsum(map(abs, differences)) / n if has_distance else None,
    )
