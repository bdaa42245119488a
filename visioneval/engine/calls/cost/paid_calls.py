"""The paid calls of a plan: their rate-limit keys, prices and budget warnings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from visioneval.engine.calls.cost.bounds import CallSize, bound_of, smallest_size, stated_maximum
from visioneval.engine.calls.cost.budget import budget_too_small
from visioneval.engine.calls.cost.pricing import Prices
from visioneval.engine.calls.limit_keys import RateLimitKey, generation_limit_key, judge_limit_key
from visioneval.expansion.plan import Plan
from visioneval.suite.remote import Remote
from visioneval.types import TaskType


def prices_of(plan: Plan) -> Prices:
    """The suite's prices, and public prices for calls to a provider's own host."""
    custom_hosts = {
        limit_key for limit_key, config in _paid_configs(plan) if isinstance(config, Remote) and not config.is_own_host
    }
    return Prices(plan.suite.prices, frozenset(custom_hosts))


def paid_configs(plan: Plan) -> dict[RateLimitKey, Any]:
    """The provider or judge config of each rate-limit key of a plan whose calls may cost money."""
    return dict(_paid_configs(plan))


def _paid_configs(plan: Plan) -> Iterator[tuple[RateLimitKey, Any]]:
    for run in plan.runs:
        if plan.generates and not run.config.is_free:
            yield generation_limit_key(run.provider, run.params), run.config
    for judge in plan.judges.values():
        if not judge.is_free:
            yield judge_limit_key(judge), judge


def budget_warnings(plan: Plan, limit_usd: float, *, judges: bool = True) -> list[str]:
    """One line for each model, and each judge if ``judges``, whose single call exceeds the budget."""
    prices = prices_of(plan)
    sizes: dict[RateLimitKey, CallSize] = {}
    for run in plan.runs:
        tasks = {case.task_type for case in plan.suite.cases if plan.count(case, run)[0]}
        if plan.generates and tasks and not run.config.is_free:
            # a model that generates videos generates nothing else
            task = max(tasks, key=lambda task: task is TaskType.VIDEO_GENERATION)
            size = smallest_size(run.config, run.params, plan.outputs_per_call(run), task)
            sizes[generation_limit_key(run.provider, run.params)] = size
    for judge in plan.judges.values() if judges else ():
        if not judge.is_free:
            maximum = stated_maximum(str(getattr(judge, "provider", "")), getattr(judge, "params", {}))
            sizes[judge_limit_key(judge)] = CallSize(max_output_tokens=maximum)
    bounds = {
        limit_key: bound_of(prices, limit_key, size) for limit_key, size in sizes.items() if prices.knows(limit_key)
    }
    return [
        budget_too_small(limit_usd, limit_key, bound) for limit_key, bound in bounds.items() if bound.usd > limit_usd
    ]
