"""Ranks model runs by the answers of judges or of people, pooled over runs, to the question which of two outputs is
better. Pure, beside the reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import fsum, isnan
from pathlib import Path

import numpy as np

from visioneval.analysis.agreement.answers import LabeledRun, drop_outdated_labels
from visioneval.analysis.preferences import (
    HeadToHead,
    IntervalEstimate,
    RankedBy,
    RankedRun,
    Ranking,
    Rankings,
    Result,
    summarize_preferences,
)
from visioneval.analysis.run_lookup import Warn, named_run, warn_missing
from visioneval.analysis.stats.ranks import MIN_CASES, Standings, groups, rank_group
from visioneval.errors import ExitCode, UsageError, count_of, did_you_mean
from visioneval.records.between_cells import Preference, read_preferences
from visioneval.records.labels import LABELS, Label, newest, read_labels
from visioneval.records.model import RunInfo
from visioneval.records.reader import read_records
from visioneval.suite.files import split_run
from visioneval.suite.filters import Scope, any_case, any_glob, chain_of
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


MAX_NAMES = 5
MAX_MODEL_RUNS = 100
MAX_ENTRIES = 30_000_000
"""Of the table of points by case and two model runs, which bounds the memory to about a gigabyte."""
_NO_ANSWERS: dict[RankedBy, str] = {
    "judges": (
        "no judge has compared these model runs: run 'visioneval pairwise A B' or add a grader of type pairwise;"
        " --by people ranks by human labels"
    ),
    "people": "nobody has compared these model runs: collect answers with 'visioneval label RUN@A --pairs RUN@B'",
}


@dataclass(slots=True)
class _Tally:
    """The answers about a model run, or about two of them, counted by result. A side of its own is always A."""

    counts: Counter[Result] = field(default_factory=Counter)
    pairs: int = 0
    unanswered: int = 0
    cases: set[str] = field(default_factory=set)

    def add(self, pair: PairAnswers, *, swapped: bool = False) -> None:
        for result, times in pair.counts.items():
            self.counts[SWAPPED.get(result, result) if swapped else result] += times
        self.pairs += bool(pair.answers)
        self.unanswered += not pair.answers
        if pair.answers:
            self.cases.add(chain_of(pair.test_id))

    @property
    def ties(self) -> int:
        """Ties with flips."""
        return self.counts["tie"] + self.counts["flip"]


@dataclass(frozen=True, slots=True)
class _Group:
    """Model runs that answers connect, and their standings, ``None`` for one alone."""

    number: int
    sides: Sequence[str]
    standings: Standings | None


def rank_answers(name: str, pairs: Sequence[PairAnswers], by: RankedBy) -> Ranking:
    """Ranks the model runs that answers are about. Those that no answer connects are in groups of their own.

    ``name`` is that of the judge, or of the question to people. Raises ``UsageError`` for too many model runs.
    """
    answered = [pair for pair in pairs if pair.answers]
    unanswered = len(pairs) - len(answered)
    sides = sorted({side for pair in pairs for side in (pair.a, pair.b)})
    cases = len({chain_of(pair.test_id) for pair in answered})
    if len(sides) > MAX_MODEL_RUNS:
        raise UsageError(
            f"{len(sides):,} model runs, more than {MAX_MODEL_RUNS}: select some with --model or RUN@LABEL"
        )
    if cases * len(sides) ** 2 > MAX_ENTRIES:
        raise UsageError(
            f"{cases:,} cases are too many for {len(sides)} model runs: select some with --case or --model"
        )
    times = Counter(map(label_of, sides))
    names = {side: label_of(side) if times[label_of(side)] == 1 else side for side in sides}
    all_groups = _groups(answered, sides)
    model_runs = _ranked_runs(all_groups, names, pairs)
    return Ranking(
        judge=name if by == "judges" else None,
        question=name if by == "people" else None,
        raters=len({rater for pair in answered for rater in pair.raters}) if by == "people" else None,
        cases=cases,
        pairs=len(answered),
        unanswered=unanswered,
        model_runs=tuple(model_runs),
        comparisons=tuple(_comparisons(all_groups, names, pairs)),
        gaps=tuple(_gaps(all_groups, names, unanswered)),
        notes=tuple(dict.fromkeys(_notes(all_groups, model_runs))),
    )


def _groups(pairs: Sequence[PairAnswers], sides: Sequence[str]) -> list[_Group]:
    """The groups, largest first. A pair is worth one point, which its answers share."""
    cases = {case: at for at, case in enumerate(dict.fromkeys(chain_of(pair.test_id) for pair in pairs))}
    index = {side: at for at, side in enumerate(sides)}
    points = np.zeros((len(cases), len(sides), len(sides)))
    for pair in pairs:
        case, a, b = cases[chain_of(pair.test_id)], index[pair.a], index[pair.b]
        points[case, a, b] += pair.share
        points[case, b, a] += 1 - pair.share
    ordered = sorted(groups(points.sum(axis=0)), key=len, reverse=True)
    standings = [rank_group(points[:, group][:, :, group]) if len(group) > 1 else None for group in ordered]
    listed = enumerate(zip(ordered, standings, strict=True), 1)
    return [_Group(number, [sides[member] for member in group], ranks) for number, (group, ranks) in listed]


def _ranked_runs(
    all_groups: Sequence[_Group], names: Mapping[str, str], pairs: Sequence[PairAnswers]
) -> list[RankedRun]:
    """All model runs, by group and rank."""
    tallies: dict[str, _Tally] = {side: _Tally() for group in all_groups for side in group.sides}
    for pair in pairs:
        tallies[pair.a].add(pair)
        tallies[pair.b].add(pair, swapped=True)
    ranked = []
    for group in all_groups:
        for at, side in enumerate(group.sides):
            standings, tally = group.standings, tallies[side]
            strength = standings and _estimate(standings.strength[at], standings.reach[at])
            ranked.append(
                RankedRun(
                    model_run=side,
                    name=names[side],
                    group=group.number,
                    tier=int(standings.tier[at]) + 1 if standings else 1,
                    rank=int(standings.rank[at]) if standings else None,
                    low_rank=int(standings.low_rank[at]) if standings and standings.low_rank is not None else None,
                    high_rank=int(standings.high_rank[at]) if standings and standings.high_rank is not None else None,
                    strength=strength,
                    chance=strength and strength.as_chance(),
                    wins=tally.counts["a"],
                    losses=tally.counts["b"],
                    ties=tally.ties,
                    pairs=tally.pairs,
                    cases=len(tally.cases),
                )
            )
    return sorted(ranked, key=lambda entry: (entry.group, entry.rank or 0, entry.name))


def _estimate(value: float, reach: float) -> IntervalEstimate | None:
    if isnan(value):
        return None
    low, high = (None, None) if isnan(reach) else (float(value - reach), float(value + reach))
    return IntervalEstimate(value=float(value), low=low, high=high)


def _comparisons(
    all_groups: Sequence[_Group], names: Mapping[str, str], pairs: Sequence[PairAnswers]
) -> Iterator[HeadToHead]:
    """Each two model runs that are ranked together, or that have unanswered pairs."""
    estimates: dict[tuple[str, str], IntervalEstimate | None] = {}
    for group in all_groups:
        for (row, a), (column, b) in combinations(enumerate(group.sides), 2):
            if standings := group.standings:
                reach = standings.difference_reach[row, column]
                estimates[a, b] = _estimate(standings.difference[row, column], reach)
    tallies = {key: _Tally() for key in estimates}
    for pair in pairs:
        tallies.setdefault((pair.a, pair.b), _Tally()).add(pair)
    for (a, b), tally in sorted(tallies.items(), key=lambda entry: entry[0]):
        yield HeadToHead(
            a=names[a],
            b=names[b],
            a_wins=tally.counts["a"],
            b_wins=tally.counts["b"],
            ties=tally.ties,
            flips=tally.counts["flip"],
            pairs=tally.pairs,
            unanswered=tally.unanswered,
            difference=estimates.get((a, b)),
        )


def _gaps(all_groups: Sequence[_Group], names: Mapping[str, str], unanswered: int) -> Iterator[str]:
    if unanswered:
        subject, verb = ("1 pair", "is") if unanswered == 1 else (f"{unanswered:,} pairs", "are")
        yield f"{subject} could not be judged and {verb} left out"
    if len(all_groups) > 1:
        listed = (_listed([names[side] for side in group.sides]) for group in all_groups)
        yield f"not ranked together, as no answers connect them: {'; '.join(listed)}"
    for group in all_groups:
        if group.standings is not None:
            rows, columns = np.nonzero(np.triu(~group.standings.is_ordered))
            unordered = [
                f"{names[group.sides[row]]} and {names[group.sides[column]]}"
                for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
            ]
            if unordered:
                yield f"no answers show which is better: {_listed(unordered, '; ')}"


def _notes(all_groups: Sequence[_Group], model_runs: Sequence[RankedRun]) -> Iterator[str]:
    """Unequal numbers of cases, missing intervals, and strengths without bounds."""
    for group in all_groups:
        if group.standings is None:
            continue
        ranked = [entry for entry in model_runs if entry.group == group.number]
        cases = max(entry.cases for entry in ranked)
        fewer = [f"{entry.name} ({entry.cases:,})" for entry in ranked if entry.cases < cases]
        if fewer:
            yield f"compared in fewer than {cases:,} cases: {_listed(fewer)}"
        if group.standings.low_rank is None:
            yield f"no intervals: they need {MIN_CASES} cases"
        elif any(entry.strength and entry.strength.low is None for entry in ranked):
            yield "no interval for a strength that one case decides"
        extreme = [entry for entry in ranked if entry.strength is None and not (entry.wins and entry.losses)]
        for entry in extreme:
            result, bound = ("won", "upper") if entry.wins else ("lost", "lower")
            yield f"{entry.name} {result} every pair: its strength has no {bound} bound"
        tiers = {entry.tier for entry in ranked}
        if len(tiers) > 1 + len(extreme):
            listed = (_listed([entry.name for entry in ranked if entry.tier == tier]) for tier in sorted(tiers))
            yield f"strengths compare only within each of these tiers: {'; '.join(listed)}"


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return separator.join(names[:MAX_NAMES]) + more


def rank_runs(
    runs: Sequence[LabeledRun], by: RankedBy, scope: Scope | None = None, judge: str | None = None
) -> Rankings:
    """Ranks the model runs of several runs together, by each judge or each question to people.

    ``scope`` limits it to cases, tags and model runs, and ``judge`` to one judge: ``provider:model``, or its name in
    the suite of a run. Exits 3 if there are gaps. Raises ``UsageError`` for a limit without a match.
    """
    notes: list[str] = []
    if by == "judges":
        answer_sets = judge_answers(line for run in runs for line in run.preferences)
    else:
        answer_sets, outdated, unknown_cells = people_answers(runs)
        if outdated:
            notes.append(f"ignored: {count_of(outdated, 'label')} for replaced images")
        if unknown_cells:
            notes.append(f"ignored: {count_of(unknown_cells, 'label')} for cells that are not in the run")
    gaps = [
        f"the run {run.info.run_id} is {run.info.state}: pairs may be missing"
        for run in runs
        if run.info.state != "complete"
    ]
    if not answer_sets:
        gaps.append(_NO_ANSWERS[by])
    elif judge is not None:
        titles = {run.info.suite.judges[judge].title for run in runs if judge in run.info.suite.judges}
        names = {judge} if judge in answer_sets else titles & answer_sets.keys()
        if not names:
            raise UsageError(f"--judge {judge}: no answers of this judge{did_you_mean(judge, list(answer_sets))}")
        answer_sets = {name: pairs for name, pairs in answer_sets.items() if name in names}
    scope = scope or Scope()
    selected = _filtered(answer_sets, runs, scope)
    if answer_sets and not selected:
        gaps.append("no pair of these model runs and cases was compared")
    gaps += _without_answers(selected, [run for run in runs if run.ranked], scope)
    notes += _without_answers(selected, [run for run in runs if not run.ranked], scope)
    rankings = tuple(rank_answers(name, pairs, by) for name, pairs in selected.items())
    return Rankings(
        by=by,
        runs=tuple(run.info.run_id for run in runs),
        rankings=rankings,
        gaps=tuple(gaps),
        notes=tuple(notes),
        exit_code=ExitCode.INCOMPLETE if gaps or any(ranking.gaps for ranking in rankings) else ExitCode.PASSED,
    )


def _without_answers(answer_sets: AnswerSets, runs: Iterable[LabeledRun], scope: Scope) -> Iterator[str]:
    """The model runs of the named runs that no answer is about, of those in the scope."""
    compared = {side for pairs in answer_sets.values() for pair in pairs for side in (pair.a, pair.b)}
    missing = [
        side
        for run in runs
        for label in sorted(run.ranked) or map(str, (entry.label for entry in run.info.selected_suite.models))
        if (not scope.models or any_glob(scope.models, label))
        and (side := f"{run.info.run_id}@{label}") not in compared
    ]
    if missing and compared:
        yield f"no answers about {_listed(missing)}: not ranked"


def _filtered(answer_sets: AnswerSets, runs: Sequence[LabeledRun], scope: Scope) -> AnswerSets:
    """The answers that the scope and ``RUN@LABEL`` leave."""
    all_pairs = [pair for pairs in answer_sets.values() for pair in pairs]
    tags = {case.id: case.tags for run in runs for case in run.info.suite.cases}
    for flag, patterns, names in (
        ("--case", scope.cases, {*tags, *(pair.test_id for pair in all_pairs)}),
        ("--model", scope.models, {label_of(side) for pair in all_pairs for side in (pair.a, pair.b)}),
        ("--tag", scope.tags, {tag for case_tags in tags.values() for tag in case_tags}),
    ):
        for pattern in patterns if all_pairs else ():
            if not any(any_case((pattern,), name) for name in names):
                raise UsageError(f"{flag} {pattern!r}: no match in these runs{did_you_mean(pattern, names)}")
    ranked = {run.info.run_id: run.ranked for run in runs}

    def is_selected(pair: PairAnswers) -> bool:
        return (
            (not scope.cases or any_case(scope.cases, pair.test_id))
            and (not scope.tags or not set(scope.tags).isdisjoint(tags.get(pair.test_id, ())))
            and all(is_ranked(side) for side in (pair.a, pair.b))
        )

    def is_ranked(side: str) -> bool:
        named = ranked.get(split_run(side)[0])
        label = label_of(side)
        return (not named or label in named) and (not scope.models or any_glob(scope.models, label))

    narrowed = {name: list(filter(is_selected, pairs)) for name, pairs in answer_sets.items()}
    return {name: pairs for name, pairs in narrowed.items() if pairs}
