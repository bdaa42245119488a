"""Runs of suites: from the settings to the finished run, and its comparison with a baseline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Self, Unpack

from visioneval.analysis.compare.pairing import ComparisonFilters
from visioneval.analysis.redaction import Redaction
from visioneval.analysis.run_lookup import Warn
from visioneval.api.comparisons import ComparisonRequest, ComparisonResult, compare_named
from visioneval.api.options import checked_keywords, run_options
from visioneval.api.runs import LOG, Run, Watch, check_path, logging_run, summarized_run, track_finished
from visioneval.errors import ExitCode, UsageError
from visioneval.running.cells.services import Listener
from visioneval.running.execution import InterruptRequest
from visioneval.running.loading import SuiteOptions
from visioneval.running.plan import Plan
from visioneval.running.prepare import PreparedRun, RunOptions, check_runs, plan_runs, prepare_run
from visioneval.running.runner import RunCells, run_cells_here, run_prepared
from visioneval.settings import RunKeywords

NO_BUDGET = 0.000001
"""In US dollars: less than any call costs, so that none is made."""


@dataclass(frozen=True, repr=False)
class FinishedRun(Run):
    """A run that has just ended."""

    comparison: ComparisonResult | None = None
    """With its ``baseline``, if it has one."""

    @classmethod
    def of(cls, run: Run) -> Self:
        """The run without a comparison."""
        return cls(**{field.name: getattr(run, field.name) for field in fields(run)})

    @property
    def exit_code(self) -> int:
        """That of the run, or the more severe one of its comparison."""
        compared = [] if self.comparison is None else [self.comparison.exit_code]
        return int(ExitCode.most_severe([self.summary.exit_code, *compared]))


def run(suite: Path | str | None = None, **settings: Unpack[RunKeywords]) -> FinishedRun:
    """Runs a suite, or resumes a run. See ``RunKeywords`` for the settings.

    Works in a running event loop too, which waits meanwhile. Raises ``SuiteError``, ``UsageError``, ``BudgetError`` and
    ``StorageError``. Calls that fail are errors of their cells.
    """
    check_path(run, suite)
    return _run(suite, run_options(**checked_keywords(run, settings, RunKeywords)), logging_run)


async def run_async(suite: Path | str | None = None, **settings: Unpack[RunKeywords]) -> FinishedRun:
    """Like ``run``, without blocking the event loop.

    When cancelled, it waits for the calls in flight; when cancelled again, it stops them.
    """
    check_path(run_async, suite)
    options, interrupt = run_options(**checked_keywords(run_async, settings, RunKeywords)), InterruptRequest()

    def watch(prepared: PreparedRun) -> AbstractContextManager[Listener]:
        with logging_run(prepared) as listener:
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


def run_planned(
    planned: Sequence[Plan], options: RunOptions, watch: Watch, warn: Warn, *, is_tracked: bool = True
) -> Iterator[FinishedRun]:
    """Executes plans one after the other, with one budget, and sends each run to its tracker.

    All plans are checked first, and an interrupt ends them all. A run until its gates are decided is compared with its
    baseline. Raises ``UsageError`` if it cannot be, after the run itself was returned, as that is paid for.
    """
    components = check_runs(planned, options, warn)
    spent_usd = 0.0
    with _cells_runner(options) as run_cells:
        for suite, parts in zip(planned, components, strict=True):
            prepared = prepare_run(suite, parts, options)
            with watch(prepared) as listener:
                ended = run_prepared(prepared, options.calls, listener, spent_usd=spent_usd, run_cells=run_cells)
                finished = FinishedRun.of(summarized_run(prepared, ended, options))
                spent_usd, problem = ended.spent_usd, None
                if ended.info.state == "complete":
                    try:
                        finished, spent_usd = _compared(finished, options, listener, spent_usd)
                    except UsageError as error:
                        problem = error
            yield finished
            if problem is not None:
                raise problem
            if is_tracked:
                track_finished(finished, options, warn)
            if ended.info.state == "interrupted" and ended.info.stopped_by is None:
                return


def _compared(run: FinishedRun, options: RunOptions, listener: Listener, spent_usd: float) -> tuple[FinishedRun, float]:
    """A finished run with its comparison with the baseline, if it has one, and what the command has spent so far."""
    until = run.info.until_decided
    if until is None or until.baseline is None:
        return run, spent_usd
    new = until.max_samples - run.info.most_samples
    filters = ComparisonFilters(redact=Redaction.by(options.redact))
    baseline = f"baseline:{until.baseline}"
    request = ComparisonRequest(baseline, str(run.folder), filters=filters, confirm=new or None)
    hidden = {name: value for name, value in options.suite.variables.items() if name in run.info.hidden_vars}
    suite = SuiteOptions(variables=hidden, trust=options.suite.trust, runs=options.suite.runs)
    budget_usd = options.calls.budget_usd or run.info.suite.budget_usd
    left_usd = None if budget_usd is None else max(NO_BUDGET, budget_usd - spent_usd)
    calls = replace(options.calls, budget_usd=left_usd)
    compared = compare_named(request, replace(options, suite=suite, calls=calls), listener)
    return replace(run, comparison=compared), spent_usd + compared.spent_usd


@contextmanager
def _cells_runner(options: RunOptions) -> Iterator[RunCells]:
    """What does the cells of runs: this process or a cluster."""
    if options.cluster is None:
        yield run_cells_here
        return
    from visioneval.scale.ray.cluster import connected_cluster

    with connected_cluster(options.cluster, options.calls) as cluster:
        yield cluster.run_cells


def _run(suite: Path | str | None, options: RunOptions, watch: Watch) -> FinishedRun:
    planned = plan_runs([] if suite is None else [Path(suite)], options)
    (finished,) = run_planned(planned, options, watch, LOG.warning)
    return finished
