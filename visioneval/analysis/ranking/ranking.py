"""Ranks model runs by the pairwise answers of judges or of people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.analysis.ranking.answers import PairAnswers, PairwiseAnswers, judge_answers, label_of, people_answers
from visioneval.analysis.ranking.findings import RankedBy, Rankings
from visioneval.analysis.ranking.standings import MAX_NAMES, rank_answers
from visioneval.errors import ExitCode, UsageError, count_of
from visioneval.records.model import RunInfo
from visioneval.records.preferences import Preference
from visioneval.suite.cases.outputs import split_run
from visioneval.suite.filters import any_case, any_glob
from visioneval.suite.loading.messages import did_you_mean

_NO_ANSWERS: dict[RankedBy, str] = {
    "judges": (
        "no judge has compared these model runs: run 'visioneval pairwise A B' or add a grader of type pairwise;"
        " --by people ranks by human labels"
    ),
    "people": "nobody has compared these model runs: collect answers with 'visioneval label RUN@A --pairs RUN@B'",
}


@dataclass(frozen=True, slots=True)
class AnsweredRun:
    """A run with the answers that are stored in it, and the labels of the model runs to rank, all if ``None``."""

    labeled: LabeledRun
    preferences: Sequence[Preference] = ()
    labels: frozenset[str] | None = None

    @property
    def info(self) -> RunInfo:
        """The contents of its ``run.json``."""
        return self.labeled.info


@dataclass(frozen=True, slots=True)
class RankFilters:
    """Limits a ranking to cases and labels of model runs (globs) and to tags. An empty filter matches everything."""

    cases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


def rank_runs(
    runs: Sequence[AnsweredRun], by: RankedBy, filters: RankFilters | None = None, judge: str | None = None
) -> Rankings:
    """Ranks the model runs of several runs together, by each judge or each question to people.

    ``judge`` limits the ranking to one judge: ``provider:model``, or its name in the suite of a run. Exits 3 if there
    are gaps. Raises ``UsageError`` for a filter without a match.
    """
    notes: list[str] = []
    if by == "judges":
        answer_sets = judge_answers(line for run in runs for line in run.preferences)
    else:
        answers = people_answers([run.labeled for run in runs])
        answer_sets, notes = list(answers.sets), list(_ignored(answers.outdated, answers.unknown_cells))
    gaps = [
        f"the run {run.info.run_id} is {run.info.state}: pairs may be missing"
        for run in runs
        if run.info.state != "complete"
    ]
    if not answer_sets:
        gaps.append(_NO_ANSWERS[by])
    elif judge is not None:
        answer_sets = _of_judge(judge, answer_sets, runs)
    selected = _filtered(answer_sets, runs, filters or RankFilters())
    if answer_sets and not selected:
        gaps.append("no pair of these model runs and cases was compared")
    gaps += _without_answers(selected, [run for run in runs if run.labels], filters or RankFilters())
    notes += _without_answers(selected, [run for run in runs if not run.labels], filters or RankFilters())
    rankings = tuple(rank_answers(answers, by) for answers in selected)
    return Rankings(
        by=by,
        runs=tuple(run.info.run_id for run in runs),
        rankings=rankings,
        gaps=tuple(gaps),
        notes=tuple(notes),
        exit_code=ExitCode.INCOMPLETE if gaps or any(ranking.gaps for ranking in rankings) else ExitCode.PASSED,
    )


def _ignored(outdated: int, unknown_cells: int) -> Iterator[str]:
    if outdated:
        yield f"ignored: {count_of(outdated, 'label')} for replaced images"
    if unknown_cells:
        yield f"ignored: {count_of(unknown_cells, 'label')} for cells that are not in the run"


def _without_answers(
    answer_sets: Sequence[PairwiseAnswers], runs: Iterable[AnsweredRun], filters: RankFilters
) -> Iterator[str]:
    """The model runs of the named runs that no answer is about, of those that the filters leave."""
    compared = {side for answers in answer_sets for pair in answers.pairs for side in (pair.a, pair.b)}
    missing = [
        side
        for run in runs
        for label in run.labels or map(str, (entry.label for entry in run.info.selected_suite.models))
        if (not filters.models or any_glob(filters.models, label))
        and (side := f"{run.info.run_id}@{label}") not in compared
    ]
    if missing and compared:
        more = f" and {len(missing) - MAX_NAMES} more" if len(missing) > MAX_NAMES else ""
        yield f"no answers about {', '.join(missing[:MAX_NAMES])}{more}: not ranked"


def _of_judge(judge: str, answer_sets: Sequence[PairwiseAnswers], runs: Iterable[AnsweredRun]) -> list[PairwiseAnswers]:
    titles = {run.info.suite.judges[judge].title for run in runs if judge in run.info.suite.judges}
    matching = [answers for answers in answer_sets if answers.name == judge]
    matching = matching or [answers for answers in answer_sets if answers.name in titles]
    if not matching:
        names = [answers.name for answers in answer_sets]
        raise UsageError(f"--judge {judge}: no answers of this judge{did_you_mean(judge, names)}")
    return matching


def _filtered(
    answer_sets: Sequence[PairwiseAnswers], runs: Sequence[AnsweredRun], filters: RankFilters
) -> list[PairwiseAnswers]:
    """The answers that the filters and ``RUN@LABEL`` leave."""
    pairs = [pair for answers in answer_sets for pair in answers.pairs]
    tags = {case.id: case.tags for run in runs for case in run.info.suite.cases}
    if pairs:
        _check_matches("--case", filters.cases, {*tags, *(pair.test_id for pair in pairs)})
        _check_matches("--model", filters.models, {label_of(side) for pair in pairs for side in (pair.a, pair.b)})
        _check_matches("--tag", filters.tags, {tag for case_tags in tags.values() for tag in case_tags})
    labels = {run.info.run_id: run.labels for run in runs}

    def is_selected(pair: PairAnswers) -> bool:
        return (
            (not filters.cases or any_case(filters.cases, pair.test_id))
            and (not filters.tags or not set(filters.tags).isdisjoint(tags.get(pair.test_id, ())))
            and all(is_ranked(side) for side in (pair.a, pair.b))
        )

    def is_ranked(side: str) -> bool:
        named = labels.get(split_run(side)[0])
        label = label_of(side)
        return (named is None or label in named) and (not filters.models or any_glob(filters.models, label))

    narrowed = [PairwiseAnswers(answers.name, list(filter(is_selected, answers.pairs))) for answers in answer_sets]
    return [answers for answers in narrowed if answers.pairs]


def _check_matches(flag: str, patterns: Iterable[str], names: set[str]) -> None:
    for pattern in patterns:
        if not any(any_case((pattern,), name) for name in names):
            raise UsageError(f"{flag} {pattern!r}: no match in these runs{did_you_mean(pattern, names)}")
