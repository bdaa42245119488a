"""Where the noise of a run is: in cases, samples or votes of a judge, and what would narrow its intervals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from typing import Literal

from pydantic import Field

from visioneval.analysis.compare.differences import PASS_RATE
from visioneval.analysis.scores import Scores, case_of, counted_metrics, word_shares
from visioneval.analysis.stats.basic import grouped, t_quantile, wilson_interval
from visioneval.analysis.stats.intervals import case_sums, effective_number
from visioneval.analysis.stats.variance import (
    CaseTable,
    SampleVotes,
    VarianceComponents,
    case_of_values,
    case_of_votes,
    components,
)
from visioneval.records.model import GraderRecord, JudgeAnswer, Record, RunInfo
from visioneval.suite.metrics import LeftOutScores
from visioneval.types import MAX_NUMBER, Frozen, Metric

Lever = Literal["cases", "samples", "votes"]
LEVERS: tuple[Lever, ...] = ("cases", "samples", "votes")
SAME = 0.02
"""Half-widths within this share of each other count as the same."""
ONE_CASE = "there is only one case: add cases to get an interval"
ALL_EQUAL = "all values of a model run are equal: no variance to estimate"
ONE_SAMPLE = "one sample per case: run with --samples 2 to estimate the variance between samples"
ONE_VOTE = "one vote per output: set votes: 3 on the rubric to estimate the judge's variance"
NO_VERDICT_VOTES = "the pass rate does not show the judge's variance; metrics with votes do"


class NoiseFinding(Frozen):
    """The variance of the pass rate or of a metric within model runs, by where it arises.

    ``case``, ``sample`` and ``vote`` are the variances of a single value between cases, between samples of a case and
    between votes about a sample, in squared units. What is ``null`` cannot be separated, as ``notes`` explain: it is
    then a part of the component before it. ``cases``, ``samples`` and ``votes`` are mean numbers per model run, case
    and sample. ``half_width`` is that of the 95 % interval of one model run, as a mean over model runs, and ``doubled``
    what it would be about with twice as many cases, samples or votes. ``best`` are those that narrow it most.
    """

    name: str
    metric: Metric
    case: float | None
    sample: float | None
    vote: float | None
    cases: float
    samples: float
    votes: float
    half_width: float | None = None
    doubled: dict[Lever, float] = Field(default_factory=dict)
    best: tuple[Lever, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def varies(self) -> bool:
        """Whether any component is above 0."""
        return any((self.case, self.sample, self.vote))


class Noises:
    """Collects the votes of judges."""

    def __init__(self, info: RunInfo, left_out: LeftOutScores) -> None:
        """Starts without cells."""
        self._metrics, self._left_out = counted_metrics(info.metrics), left_out
        self._words = word_shares(info.metrics)
        suite = info.selected_suite
        voting = (grader for grader in suite.graders if grader.judge_names and "votes" in type(grader).model_fields)
        self._can_have_votes = {
            name for grader in voting for case in suite.cases for name in counted_metrics(grader.metrics(case))
        }
        self._votes: dict[str, dict[str, list[tuple[str, SampleVotes]]]] = {}
        """By metric and model run: the case of each cell, and the votes about it."""

    def add(self, cell: Record) -> None:
        """Counts the votes of a cell."""
        left_out = self._left_out.metrics_of(cell.test_id)
        for grader in cell.graders:
            for name, votes in votes_of(grader).items():
                if not votes or name in left_out or cell.scores.get(name) is None:
                    continue
                shares = self._words.get(name, {})
                by_share = {share: [float(vote == word) for vote in votes] for word, share in shares.items()}
                numbers = [vote for vote in votes if not isinstance(vote, str)]
                for counted, values in (by_share or {name: numbers}).items():
                    self._add(counted, cell, values)

    def _add(self, name: str, cell: Record, values: Sequence[float]) -> None:
        if values:
            mean = fsum(values) / len(values)
            votes = len(values), mean, fsum((value - mean) ** 2 for value in values)
            rows = self._votes.setdefault(name, {}).setdefault(cell.model_label, [])
            rows.append((case_of(cell.test_id), votes))

    def result(self, passes: Sequence[Scores], scores: Sequence[Mapping[str, Scores]]) -> tuple[NoiseFinding, ...]:
        """Returns the pass rate, then the metrics in the order of the run; none that was never measured.

        ``passes`` and ``scores`` (by metric) have one entry per model run.
        """
        rates = [_tables(rate) for rate in passes]
        notes = (NO_VERDICT_VOTES,) if self._can_have_votes else ()
        findings = [_finding(PASS_RATE, Metric(), rates, passes, notes)]
        for name, metric in self._metrics.items():
            by_run = [by_metric[name] for by_metric in scores if name in by_metric]
            if name in self._votes:
                strata = [list(map(case_of_votes, grouped(rows).values())) for rows in self._votes[name].values()]
            else:
                strata = list(map(_tables, by_run))
            notes = (ONE_VOTE,) if name in self._can_have_votes else ()
            findings.append(_finding(name, metric, strata, by_run, notes))
        return tuple(finding for finding in findings if finding is not None)


def votes_of(answer: GraderRecord | JudgeAnswer) -> dict[str, list[float | str]]:
    """The votes of a judge by metric, numbers or words, without lost ones; empty if the record has none."""
    votes = answer.details.get("votes")
    if not isinstance(votes, dict):
        return {}
    return {
        name: [
            vote if isinstance(vote, str) else float(vote)
            for vote in values
            if isinstance(vote, str) or (isinstance(vote, (bool, int, float)) and abs(vote) <= MAX_NUMBER)
        ]
        for name, values in votes.items()
        if isinstance(values, list)
    }


def _tables(scores: Scores) -> list[CaseTable]:
    return [case_of_values(values) for values in scores.by_case().values()]


def _finding(
    name: str,
    metric: Metric,
    strata: Sequence[Sequence[CaseTable]],
    by_run: Sequence[Scores],
    without_votes: tuple[str, ...],
) -> NoiseFinding | None:
    """``by_run`` are the values of each model run, and ``without_votes`` explains why votes cannot be separated.

    The components say by how much more cases, samples or votes lower the variance. The width is that of the interval
    which is shown: of a rate, Wilson's with as many more independent cells; else it narrows as a t interval does.
    """
    measured = [cases for cases in strata if cases]
    if not measured:
        return None
    split = components(measured)
    tables = [case for cases in measured for case in cases]
    samples, votes = sum(case.samples for case in tables), sum(case.votes for case in tables)
    is_constant = not any((split.case, split.sample, split.vote))
    notes = [ALL_EQUAL] if is_constant else [ONE_CASE] * (split.case is None) + [ONE_SAMPLE] * (split.sample is None)
    notes += without_votes if split.vote is None and not is_constant else ()
    sizes: dict[Lever, float] = {
        "cases": len(tables) / len(measured),
        "samples": samples / len(tables),
        "votes": votes / samples,
    }
    half_width: float | None = None
    measured_runs = [scores for scores in by_run if scores.n]
    doubled: dict[Lever, float] = {}
    if not is_constant and split.case is not None and round(sizes["cases"]) > 1:
        variance, quantile = _variance(split, **sizes), _t(sizes["cases"])
        shown = [scores.estimate(metric) for scores in by_run]
        widths = [(item.high - item.low) / 2 for item in shown if item.low is not None and item.high is not None]
        half_width = fsum(widths) / len(widths) if widths else quantile * sqrt(variance)
        for lever, component in zip(LEVERS, (split.case, split.sample, split.vote), strict=True):
            if component is None:
                continue
            more = {**sizes, lever: 2 * sizes[lever]}
            times = variance / _variance(split, **more)
            if metric.type == "bool":
                doubled[lever] = fsum(_rate_width(scores, times) for scores in measured_runs) / len(measured_runs)
            else:
                doubled[lever] = half_width / sqrt(times) * _t(more["cases"]) / quantile
    narrowest = min(doubled.values(), default=0.0)
    best = tuple(lever for lever, width in doubled.items() if width <= narrowest * (1 + SAME)) if half_width else ()
    return NoiseFinding(
        name=name,
        metric=metric,
        case=split.case,
        sample=split.sample,
        vote=split.vote,
        **sizes,
        half_width=half_width,
        doubled=doubled,
        best=best,
        notes=tuple(notes),
    )


def _variance(split: VarianceComponents, cases: float, samples: float, votes: float) -> float:
    """The variance of a mean of balanced data, in squared units."""
    cells = cases * samples
    return (split.case or 0.0) / cases + (split.sample or 0.0) / cells + (split.vote or 0.0) / (cells * votes)


def _t(cases: float) -> float:
    return t_quantile(0.975, round(cases) - 1)


def _rate_width(scores: Scores, times: float) -> float:
    """Half the width of the interval of a rate from ``times`` as many independent cells."""
    cells = times * effective_number(case_sums(scores.by_case()))
    low, high = wilson_interval(min(scores.mean * cells, cells), cells)
    return (high - low) / 2
