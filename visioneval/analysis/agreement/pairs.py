"""People's preferences between two images of a case, and the pairwise judge compared with them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal

import numpy as np

from visioneval.analysis.agreement.answers import Answers, LabeledRun, Unit
from visioneval.analysis.agreement.graders import Confusion
from visioneval.analysis.compare.preferences import PreferenceFinding, Result, summarize_preferences
from visioneval.analysis.stats.interval import kappa_measure, rate_measure
from visioneval.analysis.stats.measure import Statistic
from visioneval.records.labels import PAIR_ANSWERS
from visioneval.records.preferences import Preference
from visioneval.suite.turns import chain_of
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
    winners: Mapping[PairKey, Winner]
    raters: frozenset[str]


def preferences_of_people(answers: Answers) -> tuple[HumanPreferences, ...]:
    """Returns one finding per question and two model runs, in order of first appearance."""
    return tuple(_human_preferences(pairs) for pairs in _labeled_pairs(answers))


def against_pairwise_judges(runs: Sequence[LabeledRun], answers: Answers) -> tuple[PairwiseJudgeAgreement, ...]:
    """Returns one finding per question and judge that answered a labeled pair."""
    lines: dict[object, Preference] = {line.key: line for run in runs for line in run.preferences}
    judged = summarize_preferences(lines.values())
    compared: dict[tuple[str, str], list[tuple[str, Winner, Result]]] = {}
    for labeled in _labeled_pairs(answers):
        for finding in judged:
            rows = compared.setdefault((labeled.question, finding.judge), [])
            rows.extend(
                (test_id, labeled.winners[test_id, sample], result)
                for test_id, sample, result in _results(finding, labeled)
                if (test_id, sample) in labeled.winners
            )
    return tuple(_judge_agreement(question, judge, rows) for (question, judge), rows in compared.items() if rows)


def _labeled_pairs(answers: Answers) -> list[_LabeledPairs]:
    by_runs: dict[tuple[str, str, str], list[tuple[Unit, Mapping[str, float]]]] = {}
    for facet in answers.all_facets:
        if facet.type == "pair":
            for unit, by_rater in facet.answers.items():
                run, _, label, _, other = unit
                by_runs.setdefault((facet.key, f"{run}@{label}", str(other)), []).append((unit, by_rater))
    return [
        _LabeledPairs(
            question=question,
            a=a,
            b=b,
            winners={(unit[1], unit[3]): _winner(by_rater.values()) for unit, by_rater in rows},
            raters=frozenset(rater for _, by_rater in rows for rater in by_rater),
        )
        for (question, a, b), rows in by_runs.items()
    ]


def _winner(codes: Iterable[float]) -> Winner:
    answers = [PAIR_ANSWERS[int(code)] for code in codes]
    lead = answers.count("b") - answers.count("a")
    return "tie" if lead == 0 else "b" if lead > 0 else "a"


def _human_preferences(labeled: _LabeledPairs) -> HumanPreferences:
    winners = list(labeled.winners.values())
    cases = [chain_of(case) for case, _ in labeled.winners]
    return HumanPreferences(
        question=labeled.question,
        a=labeled.a,
        b=labeled.b,
        raters=len(labeled.raters),
        a_wins=winners.count("a"),
        b_wins=winners.count("b"),
        ties=winners.count("tie"),
        b_win_rate=rate_measure([_POINTS[winner] for winner in winners], cases),
    )


def _results(finding: PreferenceFinding, labeled: _LabeledPairs) -> Iterator[tuple[str, int, Result]]:
    """The judge's results in the direction of the labels; none if they are about other model runs."""
    if {finding.a, finding.b} == {labeled.a, labeled.b}:
        is_same = finding.a == labeled.a
        for pair in finding.pairs:
            yield pair.test_id, pair.sample_index, pair.result if is_same else _FLIPPED.get(pair.result, pair.result)


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
    counts = np.zeros((3, 3), dtype=int)
    np.add.at(counts, tuple((2 * codes).astype(int) for codes in (people_codes, judged_codes)), 1)
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
            people=tuple(_POINTS), grader=tuple(_POINTS), counts=tuple(tuple(map(int, row)) for row in counts)
        ),
    )
