"""Prices: the suite's, or the public ones of genai-prices, and what usage costs by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from visioneval.engine.calls.throttle import RateLimitKey
from visioneval.suite.limits import Price

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo
    from genai_prices.types import Provider as PricedProvider


_PROVIDER_NAMES = {"openai": "openai", "gemini": "google"}
_TOKENS = {
    "input_tokens": ("input_tokens", "prompt_tokens", "prompt_token_count", "tool_use_prompt_token_count"),
    "output_tokens": ("output_tokens", "completion_tokens", "candidates_token_count", "thoughts_token_count"),
    "cache_read_tokens": ("input_cached_tokens", "prompt_cached_tokens", "cached_content_token_count"),
    "input_image_tokens": ("input_image_tokens", "prompt_image_tokens"),
    "output_image_tokens": ("output_image_tokens", "candidates_image_tokens"),
}
"""Tokens as genai-prices names them, and as the providers do."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a call costs: by the suite's ``prices``, or else by genai-prices, where the host is the provider's own."""

    own: Mapping[str, Price] = field(default_factory=dict)
    custom_hosts: frozenset[RateLimitKey] = frozenset()
    """Lanes whose calls go to a host of the user's own, of which genai-prices knows nothing."""

    def knows(self, limit_key: RateLimitKey) -> bool:
        """Whether the cost of a call can be told."""
        return self.stated(limit_key) is not None or self._public(limit_key) is not None

    def cost(self, limit_key: RateLimitKey, usage: Mapping[str, int] | None, images: int) -> float | None:
        """US dollars for one call that gave so many images; ``None`` where that is not known."""
        own = self.stated(limit_key)
        if own is not None:
            by_token = own.input_per_million or own.output_per_million
            return None if by_token and not usage else _cost_by_price(own, usage or {}, images)
        if not usage or self._public(limit_key) is None:
            return None
        return _public_cost(_PROVIDER_NAMES[limit_key.provider], str(limit_key.model), tuple(sorted(usage.items())))

    def stated(self, limit_key: RateLimitKey) -> Price | None:
        """The suite's own price for a lane."""
        names = (str(limit_key), limit_key.model or "", limit_key.provider)
        return next((self.own[name] for name in names if name in self.own), None)

    def _public(self, limit_key: RateLimitKey) -> Any:
        public_name = _PROVIDER_NAMES.get(limit_key.provider)
        if public_name is None or limit_key.model is None or limit_key in self.custom_hosts:
            return None
        return _public_model(public_name, limit_key.model)


def _cost_by_price(price: Price, usage: Mapping[str, int], images: int) -> float:
    tokens = tokens_of(usage)
    return (
        (price.per_call or 0.0)
        + (price.per_image or 0.0) * images
        + (price.input_per_million or 0.0) * tokens["input_tokens"] / 1e6
        + (price.output_per_million or 0.0) * tokens["output_tokens"] / 1e6
    )


def tokens_of(usage: Mapping[str, int]) -> dict[str, int]:
    """Token counts under one set of names, whatever the provider calls them."""
    return {ours: sum(usage.get(name, 0) for name in names) for ours, names in _TOKENS.items()}


@lru_cache(maxsize=256)
def _public_model(provider: str, model: str) -> tuple[PricedProvider, ModelInfo] | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:
        return None


@lru_cache(maxsize=4096)
def _public_cost(provider: str, model: str, usage: tuple[tuple[str, int], ...]) -> float | None:
    """Kept, as generations of one size use the same tokens, and a look-up costs as much as sending a small request."""
    from genai_prices import Usage, calc_price

    counted = {name: count for name, count in tokens_of(dict(usage)).items() if count}
    try:
        return float(calc_price(Usage(**counted), model, provider_id=provider).total_price)
    except (LookupError, ValueError):
        return None
