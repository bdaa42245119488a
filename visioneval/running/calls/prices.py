"""What calls cost: the usage that a server reports, and prices of the suite, genai-prices or LiteLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from visioneval import plugins
from visioneval.providers.base import MOST_VIDEO_MS, VIDEO_MS
from visioneval.running.calls.limiters import RateLimitKey
from visioneval.running.sanitize import scalar
from visioneval.suite.entries.limits import Price
from visioneval.suite.remote import Remote

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as PricedProvider


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
            return None if is_unknown else _cost_by_price(price, usage or {}, images)
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


def _cost_by_price(price: Price, usage: Mapping[str, int], images: int) -> float:
    tokens = tokens_of(usage)
    return (
        (price.per_call or 0.0)
        + (price.per_image or 0.0) * images
        + (price.per_second or 0.0) * usage.get(VIDEO_MS, 0) / 1e3
        + (price.input_per_million or 0.0) * tokens["input_tokens"] / 1e6
        + (price.output_per_million or 0.0) * tokens["output_tokens"] / 1e6
    )


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
