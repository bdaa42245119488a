"""The budget of a run: what calls have cost, and the most that the next one may cost."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import orjson

from visioneval.errors import BudgetError
from visioneval.providers.base import VIDEO_MS, Part, Question, VideoPart
from visioneval.running.calls.limiters import RateLimitKey, generation_limit_key, judge_limit_key
from visioneval.running.calls.prices import Prices
from visioneval.running.plan import Call, Plan
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import BaseProvider
from visioneval.suite.remote import Remote
from visioneval.types import TaskType


@dataclass(frozen=True, slots=True)
class Claim:
    """The US dollars reserved for one call in flight; ``images`` is the number of images it generates."""

    limit_key: RateLimitKey
    images: int
    usd: float


@dataclass(slots=True)
class Budget:
    """The budget of a run in US dollars, or ``None``. A call in flight reserves the most that it may cost.

    If that amount is only an estimate because the token count is unknown, the first call of a rate-limit key runs
    alone, and later calls reserve the largest cost of a call so far.
    """

    limit_usd: float | None = None
    spent: float = 0.0
    refused: int = 0
    refusal: str | None = None
    """The message of the first call that the budget refused."""
    _reserved: float = 0.0
    _running: dict[RateLimitKey, int] = field(default_factory=lambda: defaultdict(int))
    _largest: dict[RateLimitKey, float] = field(default_factory=dict)
    """The largest cost of a call so far, per generated image if it generates any."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def reserve(self, limit_key: RateLimitKey, images: int, bound: Callable[[], CostBound]) -> Reservation:
        """A context that reserves the cost of one paid call. Calls ``bound`` only if there is a budget."""
        return Reservation(self, limit_key, images, bound)

    async def start(self, limit_key: RateLimitKey, images: int, bound: Callable[[], CostBound]) -> Claim:
        """Reserves the cost of one call. Waits while calls in flight may still leave enough of the budget.

        Raises ``BudgetError`` if they cannot.
        """
        if self.limit_usd is None:
            return Claim(limit_key, images, 0.0)
        claim = await self._claim(limit_key, images, bound(), self.limit_usd)
        self._running[limit_key] += 1
        self._reserved += claim.usd
        return claim

    def end(self, claim: Claim) -> None:
        """Releases the reservation of a call."""
        if self.limit_usd is None:
            return
        self._running[claim.limit_key] -= 1
        self._reserved = self._reserved - claim.usd if any(self._running.values()) else 0.0
        self._changed.set()
        self._changed = asyncio.Event()

    def settle(self, claim: Claim, cost: float | None) -> None:
        """Adds the cost of a call. If the cost is unknown because the reply was lost, adds the whole reservation."""
        self.spent += claim.usd if cost is None else cost
        if cost:  # a call that cost nothing, such as one that was paid before, tells nothing about the next
            largest = self._largest.get(claim.limit_key, 0.0)
            self._largest[claim.limit_key] = max(largest, cost / max(1, claim.images))

    async def _claim(self, limit_key: RateLimitKey, images: int, bound: CostBound, limit_usd: float) -> Claim:
        while True:
            largest = None if bound.is_strict else self._largest.get(limit_key)
            claim = Claim(limit_key, images, bound.usd if largest is None else largest * max(1, images))
            self._check_affordable(claim, bound, limit_usd)
            is_first = largest is None and not bound.is_strict
            if _is_within(self.spent + self._reserved + claim.usd, limit_usd) and not (
                is_first and self._running[limit_key]
            ):
                return claim
            await self._changed.wait()

    def _check_affordable(self, claim: Claim, bound: CostBound, limit_usd: float) -> None:
        """Raises ``BudgetError`` if the call exceeds the budget even when all calls in flight cost nothing."""
        if _is_within(self.spent + claim.usd, limit_usd):
            return
        self.refused += 1
        message = budget_too_small(limit_usd, claim.limit_key, bound)
        if self.spent:
            message = (
                f"the budget of {limit_usd:g} USD is used up: {self.spent:.4g} USD spent, and the next call of"
                f" {claim.limit_key} may cost {claim.usd:.4g} USD"
            )
        self.refusal = self.refusal or message
        raise BudgetError(message)


@dataclass(slots=True)
class Reservation:
    """The reservation of one call, for ``async with``. ``claim`` is set while the call is in flight."""

    budget: Budget
    limit_key: RateLimitKey
    images: int
    bound: Callable[[], CostBound]
    claim: Claim = field(init=False)

    async def __aenter__(self) -> Claim:
        """Waits until the call is affordable. Raises ``BudgetError`` if it cannot be."""
        self.claim = await self.budget.start(self.limit_key, self.images, self.bound)
        return self.claim

    async def __aexit__(self, *_: object) -> None:
        self.budget.end(self.claim)


def budget_too_small(limit_usd: float, limit_key: RateLimitKey, bound: CostBound) -> str:
    """The message for a budget that is smaller than the cost of one call."""
    hint = ""
    if not bound.is_strict:
        price_hint = f"'prices: {{{limit_key}: {{per_image: ...}}}}' in the suite sets the price"
        hint = "; " + (
            price_hint
            if limit_key.kind == "generate"
            else "to lower this, set a maximum number of output tokens in its params"
        )
    return (
        f"the budget of {limit_usd:g} USD is too small for one call of {limit_key}, which may cost {bound.usd:.4g} USD"
        f"{hint}"
    )


def _is_within(usd: float, limit_usd: float) -> bool:
    """Allows a tiny excess for floating-point rounding."""
    return usd <= limit_usd * (1 + 1e-9)


IMAGE_TOKENS = 16_384
"""Input tokens reserved for each image sent: no current model uses more at full detail."""
VIDEO_TOKENS = 100_000
"""Input tokens reserved for each video sent: about five minutes of video."""
ANSWER_TOKENS = 16_384
"""Output tokens of a judge's reply, thinking included, if its params set no maximum."""
VIDEO_SECOND_TOKENS = 6_000
"""Output tokens of a second of generated video of 720p: Gemini Omni uses 5,792."""
_SCALE_BY_RESOLUTION = {"1080p": 2.25, "4k": 9.0}
FRAME_TOKENS = 1_000
"""Input tokens of overhead: roles, tool declarations and the provider's own instructions."""
_MAX_TOKEN_PARAMS = ("max_output_tokens", "maxOutputTokens", "max_completion_tokens", "max_tokens")
_CANDIDATE_PARAMS = ("n", "candidate_count", "candidateCount")


@dataclass(frozen=True, slots=True)
class CallSize:
    """The size of a call before it starts.

    ``images`` is the number of images or videos it generates, and ``input_tokens`` an upper bound of what it sends. If
    no maximum is set, ``max_output_tokens`` is ``None`` and ``likely_output_tokens`` is used instead.
    ``video_seconds`` is the greatest length of its videos together.
    """

    images: int = 0
    input_tokens: int = 0
    max_output_tokens: int | None = None
    likely_output_tokens: int = ANSWER_TOKENS
    video_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CostBound:
    """The maximum cost of a call in US dollars; an estimate unless ``is_strict``."""

    usd: float
    is_strict: bool


def bound_of(prices: Prices, limit_key: RateLimitKey, size: CallSize) -> CostBound:
    """The cost bound of a call: strict if only calls and images are priced, or a maximum of output tokens is set."""
    price, length = prices.fixed(limit_key), {VIDEO_MS: round(1000 * size.video_seconds)}
    if price is not None and not (price.input_per_million or price.output_per_million):
        return CostBound(prices.cost(limit_key, length, size.images) or 0.0, is_strict=True)
    output_tokens = size.likely_output_tokens if size.max_output_tokens is None else size.max_output_tokens
    text_usage = {"input_tokens": size.input_tokens, "output_tokens": output_tokens, **length}
    image_usage = {**text_usage, "input_image_tokens": size.input_tokens, "output_image_tokens": output_tokens}
    video_usage = {**text_usage, "output_video_tokens": output_tokens}
    usages = (text_usage, video_usage) if size.video_seconds else (text_usage, image_usage)
    costs = (prices.cost(limit_key, usage, size.images) for usage in usages)
    return CostBound(max(cost or 0.0 for cost in costs), is_strict=size.max_output_tokens is not None)


def generation_size(call: Call) -> CallSize:
    """The size of a generation or an edit."""
    files = len(call.files.images) + len(call.files.masks)
    text_bytes = len(call.sent_prompt.encode()) + _bytes(call.params)
    smallest = smallest_size(call.run.config, call.params, len(call.samples), call.task_type)
    return replace(smallest, input_tokens=FRAME_TOKENS + text_bytes + IMAGE_TOKENS * files)


def smallest_size(config: BaseProvider, params: Mapping[str, Any], outputs: int, task: TaskType) -> CallSize:
    """The size of a call that generates so many images or videos, without its prompt."""
    maximum = stated_maximum(config, params)
    if task is not TaskType.VIDEO_GENERATION:
        return CallSize(outputs, 0, maximum, config.most_image_tokens(params) * outputs)
    seconds = config.longest_video_s(params) * outputs
    scale = _SCALE_BY_RESOLUTION.get(str(params.get("resolution")).lower(), 1.0)
    tokens = ceil(VIDEO_SECOND_TOKENS * seconds * scale)
    return CallSize(outputs, 0, maximum, tokens, seconds)


def question_size(config: BaseJudge, question: Question) -> CallSize:
    """The size of one round with a judge, including all earlier rounds. Counts one token per byte."""
    params: Mapping[str, Any] = getattr(config, "params", {})
    tokens = FRAME_TOKENS + _bytes(params) + _bytes(question.schema) + _tokens(question.parts)
    tokens += sum(_bytes([tool.description, tool.parameters]) for tool in question.tools)
    for turn in question.turns:
        tokens += _bytes(turn.raw) + sum(_tokens(parts) for _, parts in turn.results)
    return CallSize(0, tokens, stated_maximum(config, params))


def stated_maximum(config: BaseProvider | BaseJudge, params: Mapping[str, Any]) -> int | None:
    """The maximum of output tokens per call that ``params`` set, if any.

    A custom class or a program may not send it.
    """
    if not isinstance(config, Remote):
        return None
    stated = [params[name] for name in _MAX_TOKEN_PARAMS if isinstance(params.get(name), int)]
    answers = [params[name] for name in _CANDIDATE_PARAMS if isinstance(params.get(name), int)]
    return max(stated) * max([1, *answers]) if stated else None


def _tokens(parts: Iterable[Part]) -> int:
    tokens = 0
    for part in parts:
        if isinstance(part, str):
            tokens += len(part.encode())
        else:
            tokens += VIDEO_TOKENS if isinstance(part, VideoPart) or part.mime.startswith("video/") else IMAGE_TOKENS
    return tokens


def _bytes(data: object) -> int:
    return len(orjson.dumps(data, default=str)) if data else 0


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
            maximum = stated_maximum(judge, getattr(judge, "params", {}))
            sizes[judge_limit_key(judge)] = CallSize(max_output_tokens=maximum)
    bounds = {
        limit_key: bound_of(prices, limit_key, size) for limit_key, size in sizes.items() if prices.knows(limit_key)
    }
    return [
        budget_too_small(limit_usd, limit_key, bound) for limit_key, bound in bounds.items() if bound.usd > limit_usd
    ]
