"""The most that one call may cost, worked out before it begins: what a budget reserves for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from visioneval.engine.calls.pricing import Prices
from visioneval.engine.calls.throttle import RateLimitKey
from visioneval.plan import Call
from visioneval.providers.base import Part, Question, VideoPart
from visioneval.suite.judges import BaseJudge

IMAGE_TOKENS = 16_384
"""Input tokens that an image counts as which a call sends: no current model takes more for one at full detail."""
VIDEO_TOKENS = 100_000
"""Input tokens that a video counts as: some five minutes of it."""
ANSWER_TOKENS = 16_384
"""Output tokens of a judge's answer where its params state no maximum, thinking included."""
GENERATED_TOKENS = 8_192
"""Output tokens of a generated image: the largest sizes at the highest quality take fewer."""
_TOKENS_BY_PROVIDER = {"gemini": 4_096}
_TOKENS_BY_QUALITY = {"low": 512, "medium": 2_048}
FRAME_TOKENS = 1_000
"""Input tokens around what is sent: roles, tool declarations, instructions of the provider's own."""
_MAX_TOKEN_PARAMS = ("max_output_tokens", "maxOutputTokens", "max_completion_tokens", "max_tokens")
_CANDIDATE_PARAMS = ("n", "candidate_count", "candidateCount")
_PASS_THROUGH_PROVIDERS = ("openai", "gemini")
"""Providers whose ``params`` are sent as written, so that a maximum in them holds."""


@dataclass(frozen=True, slots=True)
class CallSize:
    """What is known of a call before it begins.

    ``images`` is how many it generates; ``input_tokens`` is at least what it sends; ``max_output_tokens`` is ``None``
    where no maximum is stated, and ``likely_output_tokens`` stands for it.
    """

    images: int = 0
    input_tokens: int = 0
    max_output_tokens: int | None = None
    likely_output_tokens: int = ANSWER_TOKENS


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that a call may cost, in US dollars; an estimate unless it ``is_strict``."""

    usd: float
    is_strict: bool


def bound_of(prices: Prices, limit_key: RateLimitKey, size: CallSize) -> Bound:
    """Strict where calls and images alone are priced, or a maximum of output tokens is stated."""
    price = prices.stated(limit_key)
    if price is not None and not (price.input_per_million or price.output_per_million):
        return Bound(prices.cost(limit_key, None, size.images) or 0.0, is_strict=True)
    most = size.likely_output_tokens if size.max_output_tokens is None else size.max_output_tokens
    words = {"input_tokens": size.input_tokens, "output_tokens": most}
    pixels = {**words, "input_image_tokens": size.input_tokens, "output_image_tokens": most}
    costs = (prices.cost(limit_key, usage, size.images) for usage in (words, pixels))
    return Bound(max(cost or 0.0 for cost in costs), is_strict=size.max_output_tokens is not None)


def generation_size(call: Call) -> CallSize:
    """The size of a generation or an edit."""
    sent = len(call.files.images) + len(call.files.masks)
    words = len(call.prompt.encode()) + _bytes(call.params)
    smallest = minimum_generation_size(call.run.provider, call.params, len(call.samples))
    return replace(smallest, input_tokens=FRAME_TOKENS + words + IMAGE_TOKENS * sent)


def minimum_generation_size(provider: str, params: Mapping[str, Any], images: int) -> CallSize:
    """The size of a call that generates so many images, of whatever words."""
    quality = _TOKENS_BY_QUALITY.get(str(params.get("quality")), GENERATED_TOKENS)
    likely = _TOKENS_BY_PROVIDER.get(provider, quality) * images
    return CallSize(images, 0, stated_maximum(provider, params), likely)


def question_size(config: BaseJudge, question: Question) -> CallSize:
    """The size of one round with a judge, all rounds before it included. No token is shorter than a byte."""
    params: Mapping[str, Any] = getattr(config, "params", {})
    tokens = FRAME_TOKENS + _bytes(params) + _bytes(question.schema) + _tokens(question.parts)
    tokens += sum(_bytes([tool.description, tool.parameters]) for tool in question.tools)
    for turn in question.turns:
        tokens += _bytes(turn.said) + sum(_tokens(parts) for _, parts in turn.results)
    return CallSize(0, tokens, stated_maximum(str(getattr(config, "provider", "")), params))


def stated_maximum(provider: str, params: Mapping[str, Any]) -> int | None:
    """The most output tokens that ``params`` allow one call, where they say so."""
    if provider not in _PASS_THROUGH_PROVIDERS:
        return None
    stated = [params[name] for name in _MAX_TOKEN_PARAMS if isinstance(params.get(name), int)]
    answers = [params[name] for name in _CANDIDATE_PARAMS if isinstance(params.get(name), int)]
    return max(stated) * max([1, *answers]) if stated else None


def _tokens(parts: Iterable[Part]) -> int:
    return sum(len(part.encode()) if isinstance(part, str) else _media_tokens(part.mime, part) for part in parts)


def _media_tokens(mime: str, part: object) -> int:
    return VIDEO_TOKENS if isinstance(part, VideoPart) or mime.startswith("video/") else IMAGE_TOKENS


def _bytes(data: object) -> int:
    return len(orjson.dumps(data, default=str)) if data else 0
