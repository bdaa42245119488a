"""What a plan calls that may cost something, and by whose prices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from visioneval.engine.calls.budget import too_small
from visioneval.engine.calls.calls import generation_limit_key, judge_limit_key
from visioneval.engine.calls.cost_bounds import CallSize, bound_of, least_generation_size, stated_maximum
from visioneval.engine.calls.pricing import Prices
from visioneval.engine.calls.throttle import RateLimitKey
from visioneval.plan import Plan
from visioneval.suite.remote import Remote


def prices_of(plan: Plan) -> Prices:
    """The suite's prices, and those that are public for a provider's own host."""
    elsewhere = {lane for lane, config in _called(plan) if isinstance(config, Remote) and not config.is_own_host}
    return Prices(plan.suite.prices, frozenset(elsewhere))


def lanes(plan: Plan) -> dict[RateLimitKey, Any]:
    """What a plan calls that may cost something, with one entry of the suite for each."""
    return dict(_called(plan))


def _called(plan: Plan) -> Iterator[tuple[RateLimitKey, Any]]:
    for run in plan.runs:
        if plan.generates and not run.config.is_free:
            yield generation_limit_key(run.provider, run.params), run.config
    for judge in plan.judges.values():
        if not judge.is_free:
            yield judge_limit_key(judge), judge


def budget_warnings(plan: Plan, most: float, *, judges: bool = True) -> list[str]:
    """A line for each model, and each judge where ``judges``, one call of which a budget cannot pay."""
    prices = prices_of(plan)
    sizes: dict[RateLimitKey, CallSize] = {}
    for run in plan.runs:
        called = any(plan.count(case, run)[0] for case in plan.suite.cases)
        if plan.generates and called and not run.config.is_free:
            size = least_generation_size(run.provider, run.params, plan.outputs_per_call(run))
            sizes[generation_limit_key(run.provider, run.params)] = size
    for judge in plan.judges.values() if judges else ():
        if not judge.is_free:
            maximum = stated_maximum(str(getattr(judge, "provider", "")), getattr(judge, "params", {}))
            sizes[judge_limit_key(judge)] = CallSize(max_output_tokens=maximum)
    bounds = {lane: bound_of(prices, lane, size) for lane, size in sizes.items() if prices.knows(lane)}
    return [too_small(most, lane, bound) for lane, bound in bounds.items() if bound.usd > most]
