"""What calls cost, and the most that they may cost: by prices of the suite, genai-prices or LiteLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from visioneval import plugins
from visioneval.providers.base import MOST_VIDEO_MS, VIDEO_MS
from visioneval.running.keys import RateLimitKey
from visioneval.running.sanitize import scalar
from visioneval.suite.entries.providers import Price
from visioneval.suite.remote import Remote

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as PricedProvider
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import ceil

import orjson

from visioneval.providers.base import Part, Question, VideoPart
from visioneval.running.keys import generation_limit_key, judge_limit_key
from visioneval.running.plan import Call, Plan
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import BaseProvider
from visioneval.types import TaskType


@dataclass(frozen=True, slots=True)
class Prices:
    """The cost of a call by the suite's ``prices``, or else by a public list for a provider's own host."""

    suite_prices: Mapping[str, Price] = field(default_factory=dict)
    custom_hosts: frozenset[RateLimitKey] = frozenset()
    """Rate-limit keys whose calls go to a custom host, which public lists do not cover."""

    def knows(self, limit_key: RateLimitKey) -> bool:
        """Whether the price of a call is known."""
        return self.fixed(limit_key) is not None or self._public(limit_key) is not None

    def checked_usage(self, limit_key: RateLimitKey, usage: object, images: int) -> dict[str, int] | None:
        """The usage that a server reports of one call that generated ``images`` images; ``None`` if unknown."""
        public = self._public(limit_key)
        window = None if public is None else public[1].context_window
        return checked_usage(usage, window or MOST_TOKENS, images)

    def reported_cost(self, limit_key: RateLimitKey, usage: Mapping[str, int] | None, images: int) -> float | None:
        """The cost of one call by its checked usage.

        ``None`` if unknown, also without tokens of a kind that is priced: no call sends nothing or returns nothing.
        """
        price, tokens = self.fixed(limit_key), tokens_of(usage or {})
        lacks_input = not tokens["input_tokens"] and (price is None or price.input_per_million)
        lacks_output = not tokens["output_tokens"] and (price is None or price.output_per_million)
        return None if lacks_input or lacks_output else self.cost(limit_key, usage, images)

    def cost(self, limit_key: RateLimitKey, usage: Mapping[str, int] | None, images: int) -> float | None:
        """The cost in US dollars of one call that generated ``images`` images.

        ``None`` if unknown, also where public prices tell image or video tokens from text and the usage does not.
        """
        price = self.fixed(limit_key)
        if price is not None:
            by_token = price.input_per_million or price.output_per_million
            is_unknown = (by_token and not usage) or (price.per_second and images and VIDEO_MS not in (usage or {}))
            tokens = tokens_of(usage or {})
            cost = (
                (price.per_call or 0.0)
                + (price.per_image or 0.0) * images
                + (price.per_second or 0.0) * (usage or {}).get(VIDEO_MS, 0) / 1e3
                + (price.input_per_million or 0.0) * tokens["input_tokens"] / 1e6
                + (price.output_per_million or 0.0) * tokens["output_tokens"] / 1e6
            )
            return None if is_unknown else cost
        name, public = self._public_name(limit_key), self._public(limit_key)
        if not usage or name is None or public is None or (images and _hides_media_tokens(usage, public[1])):
            return None
        return _public_cost(*name, tuple(sorted(usage.items())))

    def stated(self, limit_key: RateLimitKey) -> Price | None:
        """The suite's price for a rate-limit key."""
        names = (str(limit_key), limit_key.model or "", limit_key.provider)
        return next((self.suite_prices[name] for name in names if name in self.suite_prices), None)

    def fixed(self, limit_key: RateLimitKey) -> Price | None:
        """The suite's price for a rate-limit key, or that of the provider's own list if genai-prices has none."""
        price, provider = self.stated(limit_key), self._on_own_host(limit_key)
        if price is not None or provider is None or not limit_key.model or self._public(limit_key) is not None:
            return price
        listed = provider.listed_price(limit_key.model)
        return None if listed is None else Price(**listed)

    def _public(self, limit_key: RateLimitKey) -> Any:
        name = self._public_name(limit_key)
        return None if name is None else _public_model(*name)

    def _public_name(self, limit_key: RateLimitKey) -> tuple[str, str] | None:
        """The provider and the model in genai-prices, if the provider is there."""
        provider = self._on_own_host(limit_key)
        return provider.public_name(limit_key.model) if provider is not None and limit_key.model else None

    def _on_own_host(self, limit_key: RateLimitKey) -> type[Remote] | None:
        """The class of options for a key whose calls go to the provider's own host."""
        table = plugins.JUDGES if limit_key.kind == "judge" else plugins.PROVIDERS
        if limit_key in self.custom_hosts or limit_key.provider not in table:
            return None
        options = plugins.config_of(table, limit_key.provider)
        return options if issubclass(options, Remote) else None


def _hides_media_tokens(usage: Mapping[str, int], model: ModelInfo) -> bool:
    """Whether a count may contain image or video tokens of a price of their own, and does not say how many."""
    tokens = tokens_of(usage)
    prices = model.prices if isinstance(model.prices, list) else [model.prices]
    return any(
        tokens[f"{direction}_tokens"]
        and not tokens.get(f"{direction}_{medium}_tokens")
        and usage.keys().isdisjoint(names)
        and any(getattr(getattr(price, "prices", price), f"{direction}_{medium}_mtok", None) for price in prices)
        for direction, names in TEXT_TOKENS.items()
        for medium in ("image", "video")
    )


@lru_cache(maxsize=256)
def _public_model(provider: str, model: str) -> tuple[PricedProvider, ModelInfo] | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


@lru_cache(maxsize=4096)
def _public_cost(provider: str, model: str, usage: tuple[tuple[str, int], ...]) -> float | None:
    """Cached because generations of one size use the same tokens and a lookup takes as long as a small request."""
    from genai_prices import Usage, calc_price

    counted = {name: count for name, count in tokens_of(dict(usage)).items() if count}
    try:
        return float(calc_price(Usage(**counted), model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None


MOST_TOKENS = 10_000_000
"""The most tokens of a call to a model whose context window is unknown."""
_COUNT_ENDINGS = ("tokens", "token_count")
"""How the names of token counts end. Servers report other things beside them, such as times and prices."""
_TOTAL = "total"
"""How the sum of input and output begins, which may be more than either. Nothing is priced by it."""
_TOKENS = {
    "input_tokens": ("input_tokens", "prompt_tokens", "prompt_token_count", "tool_use_prompt_token_count"),
    "output_tokens": ("output_tokens", "completion_tokens", "candidates_token_count", "thoughts_token_count"),
    "cache_read_tokens": ("input_cached_tokens", "prompt_cached_tokens", "cached_content_token_count"),
    "input_image_tokens": ("input_image_tokens", "prompt_image_tokens"),
    "output_image_tokens": ("output_image_tokens", "candidates_image_tokens"),
    "output_video_tokens": ("output_video_tokens", "candidates_video_tokens"),
    "cache_image_read_tokens": ("input_cached_image_tokens", "prompt_cached_image_tokens", "cache_image_tokens"),
}
"""The token names of genai-prices, and the names that providers use for them."""
TEXT_TOKENS = {
    "input": ("input_text_tokens", "prompt_text_tokens"),
    "output": ("output_text_tokens", "candidates_text_tokens"),
}


def tokens_of(usage: Mapping[str, int]) -> dict[str, int]:
    """Token counts under the names of genai-prices."""
    return {ours: sum(usage.get(name, 0) for name in names) for ours, names in _TOKENS.items()}


def checked_usage(usage: object, most_tokens: int = MOST_TOKENS, outputs: int = 1) -> dict[str, int] | None:
    """The usage of one call, if it is possible; ``None`` if it is unknown.

    One impossible number makes all of them unknown: a token count must be a whole number from 0 to ``most_tokens``,
    and a detail at most its total. Other numbers that are impossible are left out.
    """
    if not isinstance(usage, Mapping):
        return None
    counts: dict[str, int] = {}
    for key, value in usage.items():
        name, count = str(key), scalar(value)
        least, most = (1, MOST_VIDEO_MS * max(1, outputs)) if name == VIDEO_MS else (0, most_tokens)
        if type(count) is int and least <= count <= (2 * most if name.startswith(_TOTAL) else most):
            counts[name] = count
        elif count is not None and (name == VIDEO_MS or name.endswith(_COUNT_ENDINGS)):
            return None
    return counts if counts and _adds_up(counts) else None


def _adds_up(usage: Mapping[str, int]) -> bool:
    tokens = tokens_of(usage)
    text = {direction: sum(usage.get(name, 0) for name in names) for direction, names in TEXT_TOKENS.items()}
    details_and_totals = (
        (text["input"] + tokens["input_image_tokens"], tokens["input_tokens"]),
        (text["output"] + tokens["output_image_tokens"] + tokens["output_video_tokens"], tokens["output_tokens"]),
        (tokens["cache_read_tokens"], tokens["input_tokens"]),
        (tokens["cache_image_read_tokens"], tokens["cache_read_tokens"]),
    )
    return all(detail <= total for detail, total in details_and_totals)


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
