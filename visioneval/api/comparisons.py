"""Comparisons of runs with each other and with the baselines in a repository."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack, get_args

from visioneval.analysis.compare.compare import Comparison
from visioneval.analysis.compare.compare import compare as compare_sides
from visioneval.analysis.compare.drift import find_drift
from visioneval.analysis.compare.gates import (
    GateResult,
    check_confirm,
    check_gates,
    decide,
    exit_code,
    parse_criteria,
)
from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.preferences import RankedBy, Rankings
from visioneval.analysis.ranking import rank_runs, read_answered_runs
from visioneval.analysis.redaction import Redaction
from visioneval.analysis.run_lookup import Warn, named_run, open_run, read_series, read_side, read_sides, why_partial
from visioneval.analysis.sides import writers_of
from visioneval.api.options import checked_keywords, run_options
from visioneval.api.runs import LOG, Run, load_run, log_listener
from visioneval.errors import NothingInCommonError, SeriesError, UsageError, count_of
from visioneval.records.baselines import (
    Baseline,
    baseline_path,
    check_addable,
    check_replaceable,
    make_baseline,
    read_baseline,
    write_baseline,
)
from visioneval.records.model import read_info
from visioneval.records.stores.lookup import fetch_outputs, runs_folder
from visioneval.records.stores.writing import claim_run, close_run
from visioneval.records.writer import write_summary
from visioneval.running.calls.settings import CallSettings
from visioneval.running.cells.services import Listener
from visioneval.running.confirm import confirm_comparison
from visioneval.running.loading import load_stored_plan
from visioneval.running.pairs import PairwiseResult, RunPairs, compare_runs, pair_runs, pairwise_plan
from visioneval.running.plan import Plan
from visioneval.running.prepare import RunOptions
from visioneval.settings import MAX_LAST, RUNS, CallKeywords
from visioneval.suite.filters import Scope
from visioneval.suite.runs import narrowed_further


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult:
    """A comparison of two runs and its gates."""

    comparison: Comparison
    """What was compared: ``pairs``, ``only_a``, ``only_b`` and ``changed(...)`` read cells from disk when needed."""
    gates: tuple[GateResult, ...]
    """The ``state`` and ``message`` of each gate, and the ``cases`` of ``must_pass``."""
    interrupted: bool = False
    """Whether an interrupt stopped the confirmation."""
    confirmation_notes: tuple[str, ...] = ()
    """What was confirmed, and how many new samples it used."""
    spent_usd: float = 0.0
    """What the new samples cost."""

    @property
    def exit_code(self) -> int:
        """0 if all gates passed, 1 if one failed, 3 if one could not be measured, 130 after an interrupt."""
        return int(exit_code(self.comparison, self.gates, interrupted=self.interrupted))

    def __repr__(self) -> str:
        a, b, states = self.comparison.a.name, self.comparison.b.name, Counter(gate.state for gate in self.gates)
        gates = " ".join(f"{count} {state}" for state, count in states.items())
        return (
            f"ComparisonResult({a} -> {b}: {count_of(len(self.comparison.pairs), 'paired cell')},"
            f" gates: {gates or 'none'}, exit code {self.exit_code})"
        )


def compare(
    a: Run | Path | str,
    b: Run | Path | str | None = None,
    *,
    experiment: str | None = None,
    last: int | None = None,
    fail_on: Sequence[str] = (),
    metrics: Sequence[str] = (),
    tags: Sequence[str] = (),
    cases: Sequence[str] = (),
    redact: Sequence[str] = (),
    model_map: Sequence[str] = (),
    allow: Sequence[str] = (),
    confirm: int | None = None,
    must_detect: float | None = None,
    warn: Warn = LOG.warning,
    **settings: Unpack[CallKeywords],
) -> ComparisonResult:
    """Compares run B with run A, cell by cell, and checks the gates ``fail_on``.

    A and B are what ``load_run`` takes, a JSONL file of records or ``baseline:NAME``. ``model_map`` pairs model runs
    with different labels, as ``OLD=NEW``. Without B, the ``last`` runs (1 to 100) of an ``experiment`` are tested
    together for drift, and B is the newest; by default ``last`` is ``compare: drift`` of its suite. Of cases that have
    a tag of ``redact`` in either run, the comparison has no image and no text about one. ``allow`` accepts what B lost:
    ``missing-metrics``, ``missing-cells``, ``errors`` or ``errors=RATE``, and ``excuses`` that A has not;
    ``unmeasured=RATE`` is the share of pairs that a gate may leave out, and ``cannot-tell`` accepts gates that too few
    cases decide. ``must_detect`` is a drop of the pass rate in points, above 0 and at most 100, that must be detected
    with 80 % power. With ``confirm``, uncertain cases are generated up to that many times more (1 to 100), and all
    cases where a number over all of them is uncertain; the other settings except ``runs`` apply to that. Raises
    ``UsageError``, with ``confirm`` also ``SuiteError`` and ``StorageError``, and with ``experiment`` also
    ``SeriesError``.
    """
    if any(isinstance(texts, str) for texts in (fail_on, allow, redact)):
        raise UsageError("fail_on, allow and redact must be lists of strings, not one string")
    options = run_options(**checked_keywords(compare, settings, CallKeywords))
    if confirm is None and (unused := [name for name, value in settings.items() if name != "runs" and value]):
        raise UsageError(f"{', '.join(unused)}: only for new samples, so only with confirm")
    filters = ComparisonFilters(tuple(metrics), tuple(tags), tuple(cases), Redaction.by(redact))
    request = ComparisonRequest(
        *(str(a), None if b is None else str(b), tuple(fail_on), tuple(allow), filters, tuple(model_map)),
        *(confirm, must_detect, experiment, last),
    )
    return compare_named(request, options, replace(log_listener(), say=warn))


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What ``compare`` compares, and how it decides."""

    a: str
    b: str | None
    """``None`` with an experiment."""
    fail_on: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    filters: ComparisonFilters = field(default_factory=ComparisonFilters)
    model_map: tuple[str, ...] = ()
    confirm: int | None = None
    """The maximum number of new samples of each case."""
    must_detect: float | None = None
    """The drop of the pass rate, in points, that must not be missed; by default that of the suites."""
    experiment: str | None = None
    last: int | None = None
    """How many runs of the experiment are tested together; by default that of their suite."""

    def check_sides(self) -> None:
        """Raises ``UsageError`` unless there is either B or an experiment."""
        if self.experiment is None:
            if self.last is not None:
                raise UsageError("--last: of which experiment? Add --experiment NAME")
            if self.b is None:
                raise UsageError("name the run B, or the experiment of the last runs with --experiment NAME")
        elif self.b is not None:
            raise UsageError(f"--experiment: B is its newest run, so leave out {self.b!r}")
        if self.last is not None and not 1 <= self.last <= MAX_LAST:
            raise UsageError(f"--last {self.last}: must be from 1 to {MAX_LAST} runs")


def compare_named(request: ComparisonRequest, options: RunOptions, listener: Listener) -> ComparisonResult:
    """Compares two runs. ``options`` are for new samples, except for the folder of runs."""
    request.check_sides()
    is_series, runs = request.experiment is not None, options.suite.runs
    criteria = parse_criteria(request.fail_on, request.allow, request.must_detect, is_series=is_series)
    if request.confirm is not None:
        check_confirm(request.confirm, criteria.gates)
    series = None
    if request.experiment is not None:
        suite = read_side(request.a, runs).suite
        series = read_series(request.experiment, suite, request.last, runs, listener.say)
    a, b = read_sides(
        (request.a, str(request.b) if series is None else str(runs / series.runs[-1].run_id)),
        runs,
        metrics=(*request.filters.metrics, *criteria.metrics),
        redact=request.filters.redact,
        is_confirmed=request.confirm is not None,
        warn=listener.say,
    )
    if series is not None:
        b = replace(b, name=series.runs[-1].run_id)  # found by its path: a folder here may have the same name
    try:
        comparison = compare_sides(a, b, request.filters, request.model_map)
    except NothingInCommonError as error:
        if series is None:
            raise
        raise SeriesError(str(error)) from None
    if series is not None:
        drift = find_drift(a, series, filters=request.filters, renamed=request.model_map, granted=criteria.granted)
        comparison = replace(comparison, drift=drift)
    if request.confirm is None:
        return ComparisonResult(comparison, decide(comparison, criteria))
    check_gates(comparison, criteria.gates)  # a gate that cannot be checked costs no call
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        listener.note(text)

    confirmed = confirm_comparison(comparison, criteria.gates, request.confirm, options, replace(listener, note=note))
    results = decide(comparison, criteria, confirmed.confirmation)
    return ComparisonResult(comparison, results, confirmed.interrupted, tuple(notes), confirmed.spent_usd)


def rank(
    *names: Run | Path | str,
    by: RankedBy = "judges",
    judge: str | None = None,
    cases: Sequence[str] = (),
    tags: Sequence[str] = (),
    models: Sequence[str] = (),
    runs: Path | str = RUNS,
    warn: Warn = LOG.warning,
) -> Rankings:
    """Ranks model runs by the pairwise answers that are stored in runs, of judges or of people.

    Several runs are pooled; ``RUN@LABEL`` leaves out other model runs of the run. There is one ranking for each judge,
    or for each question to people. ``judge`` is ``provider:model``, or a name in a run's suite. Raises ``UsageError``.
    """
    if not names:
        raise UsageError("name at least one run")
    if any(isinstance(patterns, str) for patterns in (cases, tags, models)):
        raise UsageError("cases, tags and models must be lists of strings, not one string")
    if by not in get_args(RankedBy):
        raise UsageError(f"by: {by!r} is not valid: use {' or '.join(get_args(RankedBy))}")
    if by == "people" and judge is not None:
        raise UsageError("judge: people have no judge; leave it out, or rank by judges")
    answered = read_answered_runs(list(map(str, names)), by, runs_folder(runs), warn)
    return rank_runs(answered, by, Scope(cases=tuple(cases), tags=tuple(tags), models=tuple(models)), judge)


def pairwise(
    a: Run | Path | str,
    b: Run | Path | str,
    *,
    judge: str | None = None,
    model_map: Sequence[str] = (),
    cases: Sequence[str] = (),
    tags: Sequence[str] = (),
    limit: int | None = None,
    **settings: Unpack[CallKeywords],
) -> PairwiseResult:
    """Asks a judge which outputs it prefers, those of run A or of run B. The answers are stored in run B.

    ``judge`` is a judge of B's suite, or ``NAME=PROVIDER:MODEL``.
    """
    cells: dict[str, Any] = {"cases": cases, "tags": tags, "limit": limit}
    options = run_options(**cells, **checked_keywords(pairwise, settings, CallKeywords))
    job = plan_pairs(str(a), str(b), judge, model_map, options, LOG.warning)
    return judge_pairs(job, options.calls, log_listener())


@dataclass(frozen=True, slots=True)
class PairwiseJob:
    """The pairs of two runs for a judge. ``folder`` is that of run B, which gets the answers."""

    plan: Plan
    pairs: RunPairs
    folder: Path


def judge_pairs(job: PairwiseJob, calls: CallSettings, listener: Listener) -> PairwiseResult:
    """Asks the judge, stores its answers in run B, and writes the summary of B again, with their cost."""
    folder = claim_run(job.folder)
    try:
        result = compare_runs(job.plan, job.pairs, folder, calls, listener)
        write_summary(folder, load_run(folder, warn=listener.say).summary)
    finally:
        close_run(folder)
    return result


def plan_pairs(
    a: str, b: str, judge: str | None, model_map: Sequence[str], options: RunOptions, warn: Warn
) -> PairwiseJob:
    """Pairs the outputs of two runs. Raises ``UsageError``."""
    runs = options.suite.runs
    folders = named_run(a, runs)[0], named_run(b, runs)[0]
    for folder in folders:
        fetch_outputs(folder)
    info = read_info(folders[1])
    selection = narrowed_further(info.suite, info.selection, options.suite.selection)
    judged = pairwise_plan(load_stored_plan(folders[1], replace(options.suite, selection=selection)), judge)
    sides = read_side(a, runs, warn), read_side(b, runs, warn)
    return PairwiseJob(judged, pair_runs(judged, sides, folders, model_map), folders[1])


def set_baseline(name: str, run: str, runs: Path, *, partial: bool, warn: Warn) -> tuple[Path, Baseline]:
    """Writes the results of a run, in place of all runs of a baseline. Returns its file.

    Raises ``UsageError``, without ``partial`` also for a run that was narrowed or is incomplete.
    """
    path, baseline = baseline_path(name), _of_run(run, runs, partial=partial, warn=warn)
    check_replaceable(path, baseline.header.suite)
    write_baseline([baseline], path)
    return path, baseline


def add_to_baseline(
    name: str, run: str, keep: int, runs: Path, *, partial: bool, warn: Warn
) -> tuple[Path, Sequence[Baseline]]:
    """Adds the results of a run to a baseline, which keeps its newest ``keep`` runs. Returns its file and these.

    Raises ``UsageError`` as ``set_baseline`` does, and for a run of another suite.
    """
    path, baseline = baseline_path(name), _of_run(run, runs, partial=partial, warn=warn)
    if not path.is_file():
        raise UsageError(f"{path}: no such baseline: create it with 'visioneval baseline set {run} --name {name}'")
    stored = read_baseline(path)
    check_addable(baseline, stored, path)
    kept_runs = (baseline, *stored)[:keep]
    write_baseline(kept_runs, path)
    return path, kept_runs


def _of_run(run: str, runs: Path, *, partial: bool, warn: Warn) -> Baseline:
    folder, info, records = open_run(run, runs, warn)
    problem = why_partial(info, len(records))
    if not records or (problem is not None and not partial):
        raise UsageError(f"{folder}: {problem}: a baseline needs a complete run, or --partial")
    if not info.suite.has_rules:
        raise UsageError(f"{folder}: its suite has no rules, so a baseline has nothing to compare")
    return make_baseline(info, records, writers_of(info), is_partial=problem is not None)
