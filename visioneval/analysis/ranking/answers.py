"""Answers to the question which of two outputs is better, of judges or of people, pooled over runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from pathlib import Path

from visioneval.analysis.agreement.answers import LabeledRun, drop_outdated_labels
from visioneval.analysis.compare.preferences import Result, summarize_preferences
from visioneval.analysis.ranking.findings import RankedBy
from visioneval.analysis.run_lookup import Warn, named_run, warn_missing
from visioneval.errors import UsageError
from visioneval.records.between_cells import Preference, read_preferences
from visioneval.records.labels import LABELS, Label, newest, read_labels
from visioneval.records.model import RunInfo
from visioneval.records.reader import read_records
from visioneval.suite.cases.outputs import split_run
from visioneval.suite.filters import any_glob
from visioneval.suite.labels import WHY

_POINTS: Mapping[Result, float] = {"a": 1.0, "b": 0.0, "tie": 0.5, "flip": 0.5}
SWAPPED: Mapping[Result, Result] = {"a": "b", "b": "a"}
_RESULTS: Mapping[object, Result] = {"a": "a", "b": "b", "tie": "tie"}
PairKey = tuple[str, int, str, str]
"""Case, sample, and both sides as ``RUN_ID@label``, sorted."""


@dataclass(frozen=True, slots=True)
class PairAnswers:
    """All answers about two outputs of a case. ``a`` and ``b`` are ``RUN_ID@label``.

    ``counts`` counts the answers by result; ``error`` is a question without an answer, and a ``flip`` is a tie.
    ``raters`` are the people who answered.
    """

    test_id: str
    sample_index: int
    a: str
    b: str
    counts: Counter[Result] = field(default_factory=Counter)
    raters: set[str] = field(default_factory=set)

    @property
    def answers(self) -> int:
        """The number of answers."""
        return self.counts.total() - self.counts["error"]

    @property
    def share(self) -> float:
        """The share of A, 0 to 1: a win is 1, a tie a half. Raises ``ZeroDivisionError`` without answers."""
        return fsum(points * self.counts[result] for result, points in _POINTS.items()) / self.answers


AnswerSets = dict[str, list[PairAnswers]]
"""Answers that may be pooled, by the judge who gave them or the question to people. Names and pairs are sorted."""


def label_of(side: str) -> str:
    """The label of a model run named ``RUN_ID@label``."""
    return split_run(side)[1] or side


def judge_answers(preferences: Iterable[Preference]) -> AnswerSets:
    """The answers of each judge. An answer is that to both orders."""
    by_judge: dict[str, dict[PairKey, PairAnswers]] = {}
    for finding in summarize_preferences(preferences):
        if finding.a == finding.b:
            continue
        by_pair = by_judge.setdefault(finding.judge, {})
        for pair in finding.pairs:
            _add(by_pair, (pair.test_id, pair.sample_index, finding.a, finding.b), pair.result)
    return _sorted(by_judge)


def people_answers(runs: Sequence[LabeledRun]) -> tuple[AnswerSets, int, int]:
    """The answers of people to each question about pairs. The newest one of a rater counts.

    Answers about replaced outputs, and withdrawn ones, do not count. Returns also the numbers of ignored answers: about
    images that were generated again since, and about cells that are not in the run.
    """
    about_pairs = [
        replace(run, labels=[label for label in run.labels if label.other and not label.question.endswith(WHY)])
        for run in runs
    ]
    current, outdated = drop_outdated_labels(about_pairs)
    cells = {run.info.run_id: {record.cell for record in run.records} for run in runs}
    latest: dict[tuple[str, str, PairKey], tuple[Label, str]] = {}
    unknown_cells = 0
    for run in current:
        for label in newest(run.labels):
            side, other = f"{run.info.run_id}@{label.model_label}", str(label.other)
            if _RESULTS.get(label.answer) is None or other == side:
                continue
            other_run, other_label = split_run(other)
            other_cell = (label.test_id, str(other_label), label.sample_index)
            if label.cell not in cells[run.info.run_id] or other_cell not in cells.get(other_run, {other_cell}):
                unknown_cells += 1
                continue
            first, second = sorted((side, other))
            about = (label.question, label.rater, (label.test_id, label.sample_index, first, second))
            if about not in latest or latest[about][0].at <= label.at:  # whichever side the rater was shown as A
                latest[about] = label, side
    by_question: dict[str, dict[PairKey, PairAnswers]] = {}
    for (question, rater, (test_id, sample, _, _)), (label, side) in latest.items():
        key = (test_id, sample, side, str(label.other))
        _add(by_question.setdefault(question, {}), key, _RESULTS[label.answer], rater)
    return _sorted(by_question), outdated, unknown_cells


def _add(by_pair: dict[PairKey, PairAnswers], key: PairKey, result: Result, rater: str | None = None) -> None:
    test_id, sample, a, b = key
    if a > b:
        a, b, result = b, a, SWAPPED.get(result, result)
    pair = by_pair.setdefault((test_id, sample, a, b), PairAnswers(test_id, sample, a, b))
    pair.counts[result] += 1
    if rater is not None:
        pair.raters.add(rater)


def _sorted(by_name: Mapping[str, Mapping[PairKey, PairAnswers]]) -> AnswerSets:
    return {name: [by_name[name][key] for key in sorted(by_name[name])] for name in sorted(by_name)}


def read_answered_runs(names: Sequence[str], by: RankedBy, runs: Path, warn: Warn) -> list[LabeledRun]:
    """Reads runs with the answers of judges or of people. Each run is read once, also for several ``RUN@LABEL``.

    Raises ``UsageError`` for a run that is given twice, as its answers would count twice, and ``RunFormatError``.
    """
    chosen: dict[str, tuple[Path, RunInfo, set[str] | None]] = {}
    for name in names:
        folder, info, label = named_run(name, runs)
        known = (str(entry.label) for entry in info.selected_suite.models)
        labels = None if label is None else {name for name in known if any_glob((label,), name)}
        if info.run_id in chosen:
            first, _, earlier = chosen[info.run_id]
            if labels is None or earlier is None or labels & earlier or first.resolve() != folder.resolve():
                raise UsageError(f"{info.run_id} is given twice: its answers would count twice")
            labels |= earlier
        chosen[info.run_id] = folder, info, labels
    answered = []
    for folder, info, ranked in chosen.values():
        run = LabeledRun(info, (), (), ranked=frozenset(ranked or ()))
        if by == "judges":
            run = replace(run, preferences=read_preferences(folder))
        else:
            records = list(read_records(folder))
            warn_missing(folder, info, len(records), warn)
            run = replace(run, records=records, labels=read_labels(folder / LABELS))
        answered.append(run)
    return answered
