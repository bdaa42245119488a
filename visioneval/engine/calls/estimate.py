"""What a run of a plan would do, and what it would cost as far as anybody knows. Nothing is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from visioneval.analysis.past_costs import PastCosts
from visioneval.engine.calls.calls import generation_limit_key, judge_limit_key
from visioneval.engine.calls.paid_calls import budget_warnings, prices_of
from visioneval.engine.calls.pricing import Prices
from visioneval.engine.calls.throttle import RateLimitKey
from visioneval.media.urls import is_url
from visioneval.plan import Plan, asks
from visioneval.suite.graders import BaseGrader
from visioneval.types import ModelRun

Basis = Literal["prices", "earlier runs", "tokens", "none"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one model run, or one grader's judge, would cost in US dollars; ``None`` where nobody can tell.

    ``basis`` is the suite's ``prices``, or the mean over ``seen`` cells of ``earlier runs``; where neither tells,
    ``tokens`` (genai-prices knows the price of a token, and no run how many there are) or ``none``.
    """

    name: str
    usd: float | None
    basis: Basis
    seen: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would do, and what it lacks. What works for nothing has no entry among the ``costs``."""

    calls: int
    cells: int
    grader_calls: int
    costs: tuple[Cost, ...]
    missing_files: tuple[str, ...]
    budget_warnings: tuple[str, ...] = ()
    """A line for each model and judge one call of which the budget cannot pay."""

    @property
    def usd(self) -> float:
        """The sum of what is known."""
        return sum(cost.usd or 0.0 for cost in self.costs)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """What may cost something that nobody here knows."""
        return tuple(cost.name for cost in self.costs if cost.usd is None)


def estimate(plan: Plan, past: Callable[[], PastCosts] = PastCosts, budget_usd: float | None = None) -> Estimate:
    """Counts the work of a plan, and prices it; ``past`` is asked for only where the suite's prices do not tell.

    ``budget_usd`` is instead of the suite's.
    """
    calls = cells = grader_calls = 0
    generated: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    missing: list[str] = []
    for call in plan.calls():
        calls += 1
        cells += call.cells
        generated[call.run.label] += 1
        for each in (call, *call.dependents):
            grader_calls += len(each.samples) * len(each.graders)
            asked.update({grader.key: len(each.samples) for grader in each.graders})
        path = call.params.get("path") if call.run.config.reads_outputs else None
        if path is not None and not (is_url(path) or (path and (plan.folder / path).is_file())):
            missing.append(path or call.params.get("row") or f"an image of {call.case.id!r} by {call.run.label!r}")
    pairs = {each.key: _pairs(plan, each) for each in plan.suite.graders}
    pricing = _Pricing(plan, prices_of(plan), past)
    costs = [pricing.generation(run, generated[run.label]) for run in plan.runs if not run.config.is_free]
    for grader in plan.suite.graders:
        judge = plan.judges.get(grader.judge_name or "")
        if judge is not None and not judge.is_free and any(asks(grader, case) for case in plan.suite.cases):
            costs.append(pricing.judging(grader, asked[grader.key] + pairs[grader.key]))
    most = plan.suite.budget_usd if budget_usd is None else budget_usd
    warnings = () if most is None else tuple(budget_warnings(plan, most))
    return Estimate(calls, cells, grader_calls + sum(pairs.values()), tuple(costs), tuple(missing), warnings)


def _pairs(plan: Plan, grader: BaseGrader) -> int:
    """How many pairs of images a grader compares."""
    labels = grader.compared(run.label for run in plan.runs)
    runs = [run for run in plan.runs if run.label in labels]
    cases = [case for case in plan.suite.cases if grader.is_for(case)]
    sizes = ([plan.count(case, run)[1] for run in runs] for case in cases)
    return sum(min(two) for own in sizes for two in combinations(own, 2))


class _Pricing:
    """Prices the parts of a plan."""

    def __init__(self, plan: Plan, prices: Prices, past: Callable[[], PastCosts]) -> None:
        self._plan = plan
        self._prices = prices
        self._ask = past
        self._past: PastCosts | None = None

    @property
    def past(self) -> PastCosts:
        """Earlier costs, read when they are first needed."""
        if self._past is None:
            self._past = self._ask()
        return self._past

    def generation(self, run: ModelRun, calls: int) -> Cost:
        """What the generations of a model run cost."""
        limit_key, images = generation_limit_key(run.provider, run.params), calls * self._plan.outputs_per_call(run)
        stated = self._stated(limit_key, calls, images)
        if stated is not None:
            return Cost(run.label, stated, "prices")
        mean = self.past.generations.get((run.provider, run.label))
        if mean is not None:
            return Cost(run.label, mean.usd * images, "earlier runs", mean.times)
        return self._unknown(run.label, limit_key)

    def judging(self, grader: BaseGrader, times: int) -> Cost:
        """What a grader's judge costs, asked about so many cells or pairs."""
        judge = self._plan.judges[str(grader.judge_name)]
        limit_key, name = judge_limit_key(judge), f"{grader.key} by {grader.judge_name}"
        suite = self._plan.suite
        calls = grader.judge_calls(times, [case for case in suite.cases if asks(grader, case)], suite.vars)
        stated = None if calls is None else self._stated(limit_key, calls, 0)
        if stated is not None:
            return Cost(name, stated, "prices")
        mean = self.past.judgements.get((grader.key, judge.title))
        if mean is not None:
            return Cost(name, mean.usd * times, "earlier runs", mean.times)
        return self._unknown(name, limit_key)

    def _stated(self, limit_key: RateLimitKey, calls: int, images: int) -> float | None:
        """By the suite's price of a call and of an image; ``None`` where there is none, or tokens count too."""
        price = self._prices.stated(limit_key)
        if price is None or price.input_per_million or price.output_per_million:
            return None
        return (price.per_call or 0.0) * calls + (price.per_image or 0.0) * images

    def _unknown(self, name: str, limit_key: RateLimitKey) -> Cost:
        return Cost(name, None, "tokens" if self._prices.knows(limit_key) else "none")
