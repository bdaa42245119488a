"""Combines the suite and the command-line flags into the provider calls of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from visioneval.errors import BudgetError, UsageError
from visioneval.records.stores.lookup import cache_url
from visioneval.running.calls.attempts import Budget, CallLog
from visioneval.running.calls.cache import Cache, check_shared_cache, default_folder, open_cache
from visioneval.running.calls.calls import Calls, Reuse, RunCells
from visioneval.running.calls.prices import budget_warnings, paid_configs, prices_of
from visioneval.running.calls.throttle import Throttle
from visioneval.running.plan import Plan, asks
from visioneval.running.sanitize import sanitizer_for
from visioneval.settings import MAX_CONCURRENCY


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How a run calls providers: concurrency, cache, budget and logging flags."""

    max_concurrency: int = MAX_CONCURRENCY
    cache: Path | None = None
    """The cache folder; ``None`` for the user's default."""
    reuse: Reuse = field(default_factory=Reuse)
    budget_usd: float | None = None
    """For all runs of a command together; overrides the budgets of their suites, which are per run."""
    log_file: Path | None = None
    debug: bool = False
    cache_reads: set[str] | None = None
    """Gets the names of the cached answers that are read."""


@contextmanager
def open_calls(
    plan: Plan, settings: CallSettings, payer: str, warn: Callable[[str], None], *, spent_usd: float = 0.0
) -> Iterator[Calls]:
    """Opens the provider calls of one run. Raises ``UsageError`` if the cache or the log cannot be opened.

    ``payer`` is what the cache calls the run. ``spent_usd`` is what earlier runs of the same command spent of the
    budget in ``settings``.
    """
    suite, cells = plan.whole_suite, RunCells()
    if settings.reuse.generations == "own":  # also the cells of other shards
        labels = frozenset(str(entry.label) for entry in suite.models)
        cells = RunCells(frozenset(case.id for case in suite.cases), labels)
    log = CallLog(settings.log_file, sys.stderr if settings.debug else None)
    cache = _open_cache(plan, settings, payer, warn)
    try:
        yield Calls(
            Throttle(plan.suite.limits, settings.max_concurrency),
            prices_of(plan),
            Budget(budget_of(plan, settings), 0.0 if settings.budget_usd is None else spent_usd),
            log,
            cache,
            settings.reuse,
            payer,
            cells,
            sanitizer=sanitizer_for(plan),
        )
    finally:
        log.close()


def _open_cache(plan: Plan, settings: CallSettings, payer: str, warn: Callable[[str], None]) -> Cache | None:
    """The cache; ``None`` for a plan that stores nothing in it. Raises ``UsageError`` if it cannot be opened.

    Without paid calls, a run needs no cache: if the user's default folder cannot be used, it measures without one.
    """
    is_paid = bool(paid_configs(plan))
    if not is_paid and not measures_locally(plan):
        return None
    try:
        return open_cache(settings.cache or default_folder(), run_id=payer, warn=warn, reads=settings.cache_reads)
    except UsageError as error:
        if is_paid or settings.cache is not None:
            raise
        warn(f"measurements are not cached: {error}")
        return None


def measures_locally(plan: Plan) -> bool:
    """Whether a grader of the plan measures on this machine."""
    return any(
        grader.measures_locally and any(asks(grader, case) for case in plan.suite.cases)
        for grader in plan.suite.graders
    )


def budget_of(plan: Plan, settings: CallSettings) -> float | None:
    """The budget of the run in US dollars."""
    return plan.suite.budget_usd if settings.budget_usd is None else settings.budget_usd


def check_session(plan: Plan, settings: CallSettings, warn: Callable[[str], None]) -> None:
    """Checks that the log and the cache can be opened. Raises ``UsageError`` if not."""
    CallLog(settings.log_file).close()
    folder = settings.cache or default_folder()
    if not paid_configs(plan):
        is_named = settings.cache is not None and (folder.exists() or not settings.reuse.offline)
        if is_named and measures_locally(plan):
            Cache(folder, warn=warn)
        return
    check_shared_cache(folder, is_written=not settings.reuse.offline)
    is_local = cache_url(folder) is None
    if settings.reuse.offline and settings.cache is not None and is_local and not folder.is_dir():
        raise UsageError(f"{folder}: no cache found: --offline needs an existing cache")
    Cache(folder, warn=warn)


def check_budget(plan: Plan, settings: CallSettings) -> None:
    """Raises ``UsageError`` if there is a budget but the price of a call is unknown.

    Raises ``BudgetError`` if the budget is too small for one call of a model that is certain to be called. Calls that
    the cache may answer are not checked here.
    """
    limit_usd = budget_of(plan, settings)
    if settings.reuse.offline or limit_usd is None:
        return
    prices = prices_of(plan)
    unknown = sorted((limit_key for limit_key in paid_configs(plan) if not prices.knows(limit_key)), key=str)
    if unknown:
        units: dict[str, list[str]] = {}
        for limit_key in unknown:
            unit = "per_image" if limit_key.kind == "generate" else "per_call"
            units.setdefault(str(limit_key), []).append(f"{unit}: 0.02")
        example = ", ".join(f"{name}: {{{', '.join(parts)}}}" for name, parts in units.items())
        raise UsageError(
            f"the budget needs the price of every call, but these are unknown: {', '.join(units)}."
            f" Set them in the suite, 0 for free calls, for example {f'prices: {{{example}}}'!r}"
        )
    if settings.reuse.generations == "none" and (warnings := budget_warnings(plan, limit_usd, judges=False)):
        raise BudgetError(warnings[0])
