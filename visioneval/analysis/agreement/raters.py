"""Consistency of each rater on repeated items, and agreement with anchors by day. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from visioneval.analysis.agreement.answers import Answers, Facet, LabeledRun, Unit, unit_of
from visioneval.records.labels import Label
from visioneval.types import Frozen


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


Compared = tuple[Facet, float, float]


def rater_findings(runs: Sequence[LabeledRun], answers: Answers) -> tuple[RaterFinding, ...]:
    """Returns one finding per rater, most answers first."""
    repeats: dict[str, list[Compared]] = {}
    anchored: dict[str, list[tuple[str, Compared]]] = {}
    for run in runs:
        cells = {record.cell for record in run.records}
        labels = [label for label in run.labels if label.cell in cells]
        for rater, compared in _compare_repeats(run, labels, answers):
            repeats.setdefault(rater, []).append(compared)
        for label, compared in _compare_anchors(run, labels, answers):
            anchored.setdefault(label.rater, []).append((label.at[:10], compared))
    return tuple(
        _finding(rater, count, repeats.get(rater, []), anchored.get(rater, []))
        for rater, count in sorted(answers.raters.items(), key=lambda entry: (-entry[1], entry[0]))
    )


def _finding(
    rater: str, count: int, repeats: Sequence[Compared], anchored: Sequence[tuple[str, Compared]]
) -> RaterFinding:
    days: dict[str, list[Compared]] = {}
    for day, compared in anchored:
        days.setdefault(day, []).append(compared)
    return RaterFinding(
        rater=rater,
        answers=count,
        repeats=_match_count(repeats),
        anchors=_match_count([compared for _, compared in anchored]),
        days=tuple(Day(day=day, **_match_count(rows).model_dump()) for day, rows in sorted(days.items())),
    )


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


def _compare_anchors(run: LabeledRun, labels: Sequence[Label], answers: Answers) -> Iterator[tuple[Label, Compared]]:
    anchors = {(anchor.question, unit_of(run, anchor)): anchor for anchor in run.anchors}
    for label in labels:
        anchor = anchors.get((label.question, unit_of(run, label)))
        if anchor is not None:
            yield from ((label, compared) for compared in _compare(answers, anchor, label))


def _compare(answers: Answers, first: Label, second: Label) -> Iterator[Compared]:
    for facet in answers.facets.get(first.question, ()):
        first_code, second_code = facet.code(first), facet.code(second)
        if first_code is not None and second_code is not None:
            yield facet, first_code, second_code
