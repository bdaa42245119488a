"""The Python API, for scripts and notebooks; the command line is a thin layer over it.

A run is: load a suite, expand it, then for each cell generate, grade, decide and record; then summarize.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, get_args

from visioneval.analysis.agreement.agreement import Agreement, agree
from visioneval.analysis.agreement.answers import LabeledRun
from visioneval.analysis.agreement.minimums import Minimum
from visioneval.analysis.compare.compare import Comparison, ComparisonFilters
from visioneval.analysis.compare.compare import compare as compare_sides
from visioneval.analysis.compare.coverage import check_coverage, parse_allowed
from visioneval.analysis.compare.gates import GateResult, check_confirm, check_gates, exit_code, parse_fail_on
from visioneval.analysis.compare.preferences import preferences_within
from visioneval.analysis.past_costs import read_past_costs
from visioneval.analysis.ranking.findings import RankedBy, Rankings
from visioneval.analysis.ranking.ranking import RankFilters, rank_runs
from visioneval.analysis.ranking.reading import read_answered_runs
from visioneval.analysis.run_lookup import Warn, labels_of, named_run, read_run, read_side
from visioneval.analysis.summary.findings import Summary
from visioneval.analysis.summary.judge_card import pair_cards, read_pair_cards
from visioneval.analysis.summary.summary import summarize
from visioneval.defaults import RUNS
from visioneval.engine.call_settings import CallSettings, open_calls
from visioneval.engine.calls.cost.estimate import CostEstimate, estimate
from visioneval.engine.confirm import confirm_comparison
from visioneval.engine.listener import Listener
from visioneval.engine.loop import InterruptRequest
from visioneval.engine.pairwise.runs import PairwiseResult, RunPairs, compare_runs, pair_runs, pairwise_plan
from visioneval.engine.prepare.planning import Planned, load_plans, load_stored_plan
from visioneval.engine.prepare.provenance import now
from visioneval.engine.prepare.runs import (
    PreparedRun,
    RunOptions,
    RunToGrade,
    check_runs,
    plan_runs,
    prepare_grading,
    prepare_run,
)
from visioneval.engine.prepare.sample_sizes import DetectOptions, SampleSizes, sample_sizes
from visioneval.engine.run import execute
from visioneval.errors import AuthError, StorageError, UsageError
from visioneval.expansion import Plan
from visioneval.probing.prepare import ProbeRequest
from visioneval.probing.probe import ProbeResult, run_probe
from visioneval.records.labeling.draws import read_draws
from visioneval.records.labeling.labels import LABELS, read_anchors, read_labels
from visioneval.records.model import Record, RunInfo, StoppedBy, read_info, read_records
from visioneval.records.preferences import read_preferences
from visioneval.records.resume_command import resume_hint, stopped_text
from visioneval.settings import (
    CallKeywords,
    GradeKeywords,
    PlanKeywords,
    RunKeywords,
    SelectionKeywords,
    checked_keywords,
    run_options,
)
from visioneval.suite.selection import narrowed_further

if TYPE_CHECKING:
    import pandas as pd

_LOG = logging.getLogger("visioneval")

Watch = Callable[[PreparedRun], AbstractContextManager[Listener]]
"""Provides the listener of a prepared run, for example a progress bar."""


@dataclass(frozen=True)
class Run:
    """A run on disk, or one model run of it (``label``), with its summary.

    ``error`` is the message of a provider that refused the API key, which ended the run.
    """

    folder: Path
    info: RunInfo
    summary: Summary
    label: str | None = None
    resume_hint: str | None = None
    error: str | None = None

    @property
    def exit_code(self) -> int:
        """What the command line exits with: 0 passed, 1 a gate failed, 3 incomplete, 130 interrupted."""
        return self.summary.exit_code

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """One record per cell, read from the folder when first used. Raises ``RunFormatError``."""
        return tuple(record for record in read_records(self.folder) if self.label in (None, record.model_label))

    def to_pandas(self) -> pd.DataFrame:
        """One row per cell, with a column per metric, and per judge of a panel.

        Raises ``UsageError`` if pandas is not installed.
        """
        from visioneval.export.csv import cell_row, score_columns

        try:
            import pandas as pd
        except ImportError:
            raise UsageError("to_pandas needs pandas: run pip install pandas") from None
        columns = score_columns(self.info)
        return pd.DataFrame([cell_row(record, columns) for record in self.records])

    def __str__(self) -> str:
        return str(self.folder) if self.label is None else f"{self.folder}@{self.label}"


@dataclass(frozen=True, slots=True)
class SuitePlan:
    """What a run of a suite would do and cost."""

    plan: Plan
    estimate: CostEstimate
    sizes: SampleSizes | None = None
    """What it takes to detect a difference, if one is given."""


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """A comparison of two runs and its gates."""

    comparison: Comparison
    gates: tuple[GateResult, ...]
    interrupted: bool = False
    """Whether an interrupt stopped the confirmation."""

    @property
    def exit_code(self) -> int:
        """0 if all gates passed, 1 if one failed, 3 if one could not be measured, 130 after an interrupt."""
        return exit_code(self.comparison, self.gates, interrupted=self.interrupted)


def run(suite: Path | str | None = None, **settings: Unpack[RunKeywords]) -> Run:
    """Runs a suite, or resumes a run. See ``RunKeywords`` for the settings.

    Works in a running event loop too, which waits meanwhile. Raises ``SuiteError``, ``UsageError``, ``BudgetError`` and
    ``StorageError``. Calls that fail are errors of their cells.
    """
    return _run(suite, run_options(**settings), _logging)


async def run_async(suite: Path | str | None = None, **settings: Unpack[RunKeywords]) -> Run:
    """Like ``run``, without blocking the event loop.

    When cancelled, it waits for the calls in flight; when cancelled again, it stops them.
    """
    options, interrupt = run_options(**settings), InterruptRequest()

    def watch(prepared: PreparedRun) -> AbstractContextManager[Listener]:
        with _logging(prepared) as listener:
            return nullcontext(replace(listener, started=interrupt.connect))

    work = asyncio.ensure_future(asyncio.to_thread(_run, suite, options, watch))
    is_cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            is_cancelled = True
            interrupt()
    if is_cancelled:
        work.exception()  # retrieved, so that asyncio does not report it
        raise asyncio.CancelledError
    return work.result()


def grade(source: Run | Path | str, suite: Path | str | None = None, **settings: Unpack[GradeKeywords]) -> Run:
    """Grades the outputs of a run again, by its own suite or another, into a new run. Generates nothing."""
    options = run_options(**checked_keywords(settings, GradeKeywords))
    return grade_run(str(source), None if suite is None else Path(suite), options, _logging, _LOG.warning)


def plan(
    suite: Path | str,
    *,
    detect: float | str | None = None,
    like: Sequence[Run | Path | str] | Run | Path | str = (),
    pass_rate: float | None = None,
    case_correlation: float | None = None,
    **settings: Unpack[PlanKeywords],
) -> SuitePlan:
    """Loads and expands a suite, and estimates its cost, without calling a provider.

    ``detect`` asks how many cases show a difference between two runs: points of the pass rate, or ``METRIC:VALUE``.
    Its variance comes from one or two earlier runs, ``like``, or from the stated ``pass_rate`` and
    ``case_correlation``. Raises ``SuiteError`` and ``UsageError``.
    """
    options = run_options(**checked_keywords(settings, PlanKeywords))
    names = [like] if isinstance(like, (str, Path, Run)) else like
    wish = detect_options(
        detect, [str(name) for name in names], pass_rate, case_correlation, options.suite.runs, _LOG.warning
    )
    (planned,) = load_plans([Path(suite)], options.suite)
    return estimate_plan(planned, options, wish)


def load_run(name: Path | str = "latest", *, runs: Path | str = RUNS, warn: Warn = _LOG.warning) -> Run:
    """Reads a run: its path, id, a unique prefix of it or ``latest``; ``RUN@LABEL`` for one model run."""
    folder, _, label = named_run(str(name), Path(runs))
    _, info, records = read_run(str(folder) if label is None else f"{folder}@{label}", Path(runs), warn)
    summary = summarize(info, records, preferences_within(folder, info), read_pair_cards(folder))
    return Run(folder, info, summary, label, resume_hint(folder, info))


def compare(
    a: Run | Path | str,
    b: Run | Path | str,
    *,
    fail_on: Sequence[str] = (),
    metrics: Sequence[str] = (),
    tags: Sequence[str] = (),
    cases: Sequence[str] = (),
    model_map: Sequence[str] = (),
    allow: Sequence[str] = (),
    confirm: int | None = None,
    warn: Warn = _LOG.warning,
    **settings: Unpack[CallKeywords],
) -> ComparisonResult:
    """Compares run B with run A, cell by cell, and checks the gates ``fail_on``.

    A and B are what ``load_run`` takes, a JSONL file of records or ``baseline:NAME``. ``model_map`` pairs model runs
    with different labels, as ``OLD=NEW``. ``allow`` accepts what B lost: ``missing-metrics``, ``missing-cells``,
    ``errors`` or ``errors=RATE``. With ``confirm``, ``must_pass`` cases that broke are generated up to that many times
    more (1 to 100), and judged with these samples; the other settings except ``runs`` apply to that. Raises
    ``UsageError``, with ``confirm`` also ``SuiteError`` and ``StorageError``.
    """
    if isinstance(fail_on, str) or isinstance(allow, str):
        raise UsageError("fail_on and allow must be lists of strings, not one string")
    options = run_options(**checked_keywords(settings, CallKeywords))
    if confirm is None and (unused := [name for name, value in settings.items() if name != "runs" and value]):
        raise UsageError(f"{', '.join(unused)}: only for new samples, so only with confirm")
    filters = ComparisonFilters(tuple(metrics), tuple(tags), tuple(cases))
    request = ComparisonRequest(str(a), str(b), tuple(fail_on), tuple(allow), filters, tuple(model_map), confirm)
    return compare_named(request, options, replace(_listener(), say=warn))


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """What ``compare`` compares, and how it decides."""

    a: str
    b: str
    fail_on: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    filters: ComparisonFilters = field(default_factory=ComparisonFilters)
    model_map: tuple[str, ...] = ()
    confirm: int | None = None
    """The maximum number of new samples of each case that broke."""


def compare_named(request: ComparisonRequest, options: RunOptions, listener: Listener) -> ComparisonResult:
    """Compares two runs. ``options`` are for new samples, except for the folder of runs."""
    gates, allowed = parse_fail_on(request.fail_on), parse_allowed(request.allow)
    if request.confirm is not None:
        check_confirm(request.confirm, gates)
    a, b = (read_side(name, options.suite.runs, listener.say) for name in (request.a, request.b))
    if request.confirm is not None:
        b = replace(b, unused_confirmations=False)
    comparison = compare_sides(a, b, request.filters, request.model_map)
    results, losses = check_gates(comparison, gates), check_coverage(comparison, allowed)
    if request.confirm is None:
        return ComparisonResult(comparison, (*results, *losses))
    confirmed = confirm_comparison(comparison, request.confirm, options, listener)
    results = check_gates(comparison, gates, confirmed.confirmation)
    return ComparisonResult(comparison, (*results, *losses), confirmed.interrupted)


def agreement(
    *names: Run | Path | str,
    minimums: Mapping[str, float] | None = None,
    minimum_points: Mapping[str, float] | None = None,
    correct: bool = False,
    runs: Path | str = RUNS,
    warn: Warn = _LOG.warning,
) -> Agreement:
    """Compares graders with human labels; several runs are pooled.

    ``minimums`` are required values of the lower bounds of the 95 % intervals, ``minimum_points`` of the estimates, by
    ``METRIC`` or ``METRIC:MEASURE``, such as ``verdict:accuracy``.
    ``correct`` also corrects the graders' figures with the labels of a random draw, and compares those of two runs.
    Raises ``UsageError``.
    """
    if not names:
        raise UsageError("name at least one run")
    labeled = [_labeled_run(str(name), Path(runs), warn) for name in names]
    required = [Minimum(target, value) for target, value in (minimums or {}).items()]
    required += [Minimum(target, value, "estimate") for target, value in (minimum_points or {}).items()]
    return agree(labeled, required, is_corrected=correct)


def rank(
    *names: Run | Path | str,
    by: RankedBy = "judges",
    judge: str | None = None,
    cases: Sequence[str] = (),
    tags: Sequence[str] = (),
    models: Sequence[str] = (),
    runs: Path | str = RUNS,
    warn: Warn = _LOG.warning,
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
    answered = read_answered_runs(list(map(str, names)), by, Path(runs), warn)
    return rank_runs(answered, by, RankFilters(tuple(cases), tuple(tags), tuple(models)), judge)


def probe(
    source: Run | Path | str,
    *,
    kinds: Sequence[str] = (),
    seed: int = 0,
    with_judges: bool = False,
    min_detection: Sequence[str] = (),
    max_false_alarm: float | None = None,
    with_images: bool = False,
    **settings: Unpack[SelectionKeywords],
) -> ProbeResult:
    """Plants damage of known kind and strength in outputs that pass, grades it, and counts what is caught.

    ``source`` is a suite file or a run. ``kinds`` are names or prefixes of kinds, such as ``copy.letter``. With
    ``with_judges``, graders that ask judges are probed too. ``min_detection`` are gates such as ``copy.letter:0.9``,
    ``max_false_alarm`` is a share. Raises ``UsageError``, ``SuiteError``, ``BudgetError`` and ``StorageError``.
    """
    if isinstance(kinds, str) or isinstance(min_detection, str):
        raise UsageError("kinds and min_detection must be lists of strings, not one string")
    options = run_options(**checked_keywords(settings, SelectionKeywords))
    request = ProbeRequest(
        str(source), tuple(kinds), seed, with_judges, tuple(min_detection), max_false_alarm, with_images
    )
    return run_probe(request, options.suite, options.calls, _listener())


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
    options = run_options(cases=cases, tags=tags, limit=limit, **settings)
    job = plan_pairs(str(a), str(b), judge, model_map, options, _LOG.warning)
    return compare_runs(job.plan, job.pairs, job.folder, options.calls, _listener())


@dataclass(frozen=True, slots=True)
class PairwiseJob:
    """The pairs of two runs for a judge. ``folder`` is that of run B, which gets the answers."""

    plan: Plan
    pairs: RunPairs
    folder: Path


def plan_pairs(
    a: str, b: str, judge: str | None, model_map: Sequence[str], options: RunOptions, warn: Warn
) -> PairwiseJob:
    """Pairs the outputs of two runs. Raises ``UsageError``."""
    runs = options.suite.runs
    folders = named_run(a, runs)[0], named_run(b, runs)[0]
    info = read_info(folders[1])
    selection = narrowed_further(info.suite, info.selection, options.suite.selection)
    judged = pairwise_plan(load_stored_plan(folders[1], replace(options.suite, selection=selection)).plan, judge)
    sides = read_side(a, runs, warn), read_side(b, runs, warn)
    return PairwiseJob(judged, pair_runs(judged, sides, folders, model_map), folders[1])


def estimate_plan(planned: Planned, options: RunOptions, detect: DetectOptions | None = None) -> SuitePlan:
    """The work and the cost of a plan, from its prices and from earlier runs, and what detects a difference."""
    past_costs = cache(lambda: read_past_costs(options.suite.runs))  # read only if prices are unknown
    work = estimate(planned.plan, past_costs, options.calls.budget_usd)
    sizes = None if detect is None else sample_sizes(planned.plan, work, detect, past_costs)
    return SuitePlan(planned.plan, work, sizes)


def detect_options(
    difference: float | str | None,
    like: Sequence[str],
    pass_rate: float | None,
    case_correlation: float | None,
    runs: Path,
    warn: Warn,
) -> DetectOptions | None:
    """Reads the earlier runs that a difference is planned with; ``None`` without a difference.

    Raises ``UsageError``, also for options that need a difference.
    """
    if difference is None:
        given = (("--like", like or None), ("--pass-rate", pass_rate), ("--case-correlation", case_correlation))
        for flag, value in given:
            if value is not None:
                raise UsageError(f"{flag}: needs --detect, the difference that two runs are to show")
        return None
    return DetectOptions(difference, [read_side(name, runs, warn) for name in like], pass_rate, case_correlation)


def run_planned(planned: Sequence[Planned], options: RunOptions, watch: Watch, warn: Warn) -> Iterator[Run]:
    """Executes plans one after the other, with one budget. All are checked first, and an interrupt ends them all."""
    components = check_runs(planned, options, warn)
    spent_usd = 0.0
    for suite, parts in zip(planned, components, strict=True):
        finished, spent_usd = _finish(prepare_run(suite, parts, options), options.calls, watch, spent_usd)
        yield finished
        if finished.info.state == "interrupted" and finished.info.stopped_by is None:
            return


def grade_run(name: str, suite: Path | None, options: RunOptions, watch: Watch, warn: Warn) -> Run:
    """Grades the run ``name`` again, into a new run."""
    source = RunToGrade(*named_run(name, options.suite.runs))
    return _finish(prepare_grading(source, suite, options, warn), options.calls, watch)[0]


def _run(suite: Path | str | None, options: RunOptions, watch: Watch) -> Run:
    planned = plan_runs([] if suite is None else [Path(suite)], options)
    (finished,) = run_planned(planned, options, watch, _LOG.warning)
    return finished


def _finish(prepared: PreparedRun, calls: CallSettings, watch: Watch, spent_usd: float = 0.0) -> tuple[Run, float]:
    """Executes a prepared run and summarizes it, which decides its exit code. Also returns what is spent so far."""
    folder = prepared.writer.folder
    with watch(prepared) as listener:
        info, error, spent_usd = _execute(prepared, calls, listener, spent_usd)
    pairs = preferences_within(folder, info)
    summary = summarize(info, read_records(folder), pairs, read_pair_cards(folder))
    prepared.writer.write_summary(summary)
    return Run(folder, info, summary, None, prepared.resume_hint, error), spent_usd


def _execute(
    prepared: PreparedRun, calls: CallSettings, listener: Listener, spent_usd: float
) -> tuple[RunInfo, str | None, float]:
    """Runs the cells. Whatever happens, ``run.json`` says how the run ended.

    Returns its contents, the message of a refused API key, and what is spent so far.
    """
    writer, error = prepared.writer, None
    try:
        with open_calls(prepared.plan, calls, writer.info.run_id, listener.say, spent_usd=spent_usd) as session:
            outcome = execute(prepared.plan, prepared.components, writer, session, listener, prepared.jobs)
        stopped_by: StoppedBy | None = "budget" if outcome.out_of_budget else None
    except AuthError as refusal:
        error, stopped_by = str(refusal), "refused_key"
    except BaseException:
        with suppress(StorageError):
            writer.finish("interrupted", now())
        listener.say(stopped_text(writer.folder, prepared.resume_hint))
        raise
    is_complete = error is None and outcome.complete
    state: Literal["complete", "interrupted"] = "complete" if is_complete else "interrupted"
    info = writer.finish(state, now(), stopped_by=stopped_by, reused_since=session.reused_since)
    return info, error, session.budget.spent


def _labeled_run(name: str, runs: Path, warn: Warn) -> LabeledRun:
    folder, info, records = read_run(name, runs, warn)
    labels = labels_of(name, records, read_labels(folder / LABELS))
    draws = read_draws(folder)
    anchors, preferences = read_anchors(folder, info), read_preferences(folder)
    return LabeledRun(info, records, labels, anchors, draws, name, preferences, pair_cards(preferences))


def _listener() -> Listener:
    return Listener(say=_LOG.warning, note=_LOG.info, debug=lambda error: _LOG.debug("unexpected", exc_info=error))


def _logging(prepared: PreparedRun) -> AbstractContextManager[Listener]:
    """Sends the messages of a run to the logger ``visioneval``."""
    for note in prepared.notes:
        _LOG.info(note)
    return nullcontext(_listener())
