"""What a run's calls need, put together from the suite and the flags."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from visioneval.engine.calls.budget import Budget, Prices, too_small
from visioneval.engine.calls.cache import Cache, default_folder
from visioneval.engine.calls.calls import Calls, Reuse, draw_lane, judge_lane
from visioneval.engine.calls.cost_bounds import CallSize, bound_of, least_drawing_size, stated_maximum
from visioneval.engine.calls.log import CallLog
from visioneval.engine.calls.throttle import Lane, Throttle
from visioneval.engine.context import secrets_around
from visioneval.errors import BudgetError, UsageError
from visioneval.plan import Plan
from visioneval.suite.remote import Remote

MAX_CONCURRENCY = 64


@dataclass(frozen=True, slots=True)
class Session:
    """How a run calls providers: the flags about speed, reuse, money and logs."""

    max_concurrency: int = MAX_CONCURRENCY
    cache: Path | None = None
    """The folder of the cache, instead of the user's own."""
    reuse: Reuse = field(default_factory=Reuse)
    budget_usd: float | None = None
    """Instead of the suite's."""
    log_file: Path | None = None
    debug: bool = False


@contextmanager
def open_calls(plan: Plan, session: Session, run_id: str, warn: Callable[[str], None]) -> Iterator[Calls]:
    """The calls of one run. Raises ``UsageError`` for a cache or a log that cannot be used."""
    log = CallLog(session.log_file, sys.stderr if session.debug else None)
    cache = Cache(session.cache or default_folder(), run_id=run_id, warn=warn) if lanes(plan) else None
    try:
        yield Calls(
            Throttle(plan.suite.limits, session.max_concurrency),
            prices_of(plan),
            Budget(budget_of(plan, session)),
            log,
            cache,
            session.reuse,
            run_id,
            plain=secrets_around(plan),
        )
    finally:
        log.close()
        if cache is not None:
            cache.close()


def budget_of(plan: Plan, session: Session) -> float | None:
    """What the run may cost in US dollars."""
    return plan.suite.budget_usd if session.budget_usd is None else session.budget_usd


def prices_of(plan: Plan) -> Prices:
    """The suite's prices, and those that are public for a provider's own host."""
    elsewhere = {lane for lane, config in _called(plan) if isinstance(config, Remote) and not config.is_own_host}
    return Prices(plan.suite.prices, frozenset(elsewhere))


def lanes(plan: Plan) -> dict[Lane, Any]:
    """What a plan calls that may cost something, with one entry of the suite for each."""
    return dict(_called(plan))


def _called(plan: Plan) -> Iterator[tuple[Lane, Any]]:
    for run in plan.runs:
        if plan.draws and not run.config.is_free:
            yield draw_lane(run.provider, run.params), run.config
    for judge in plan.judges.values():
        if not judge.is_free:
            yield judge_lane(judge), judge


def check_session(plan: Plan, session: Session, warn: Callable[[str], None]) -> None:
    """Opens and closes what a run will write beside itself. Raises ``UsageError`` for what cannot be used."""
    CallLog(session.log_file).close()
    if not lanes(plan):
        return
    folder = session.cache or default_folder()
    if session.reuse.offline and session.cache is not None and not folder.is_dir():
        raise UsageError(f"{folder}: there is no cache here to answer from")
    Cache(folder, warn=warn).close()


def check_budget(plan: Plan, session: Session) -> None:
    """Raises ``UsageError`` for a budget over calls whose price nobody knows.

    Raises ``BudgetError`` for one that cannot pay a call of a model that is certainly called. What may be in the cache
    is known only once it is looked for.
    """
    most = budget_of(plan, session)
    if session.reuse.offline or most is None:
        return
    prices = prices_of(plan)
    unknown = sorted({str(lane) for lane in lanes(plan) if not prices.knows(lane)})
    if unknown:
        raise UsageError(
            f"a budget needs the price of every call; unknown: {', '.join(unknown)}. State them in the suite, as in"
            f" 'prices: {{{unknown[0]}: {{per_image: 0.02}}}}'"
        )
    if session.reuse.drawings == "none" and (warnings := budget_warnings(plan, most, judges=False)):
        raise BudgetError(warnings[0])


def budget_warnings(plan: Plan, most: float, *, judges: bool = True) -> list[str]:
    """A line for each model, and each judge where ``judges``, one call of which a budget cannot pay."""
    prices = prices_of(plan)
    sizes: dict[Lane, CallSize] = {}
    for run in plan.runs:
        called = any(plan.count(case, run)[0] for case in plan.suite.cases)
        if plan.draws and called and not run.config.is_free:
            size = least_drawing_size(run.provider, run.params, plan.pictures_per_call(run))
            sizes[draw_lane(run.provider, run.params)] = size
    for judge in plan.judges.values() if judges else ():
        if not judge.is_free:
            maximum = stated_maximum(str(getattr(judge, "provider", "")), getattr(judge, "params", {}))
            sizes[judge_lane(judge)] = CallSize(max_output_tokens=maximum)
    bounds = {lane: bound_of(prices, lane, size) for lane, size in sizes.items() if prices.knows(lane)}
    return [too_small(most, lane, bound) for lane, bound in bounds.items() if bound.usd > most]
