"""Upper bounds for the cost of a call, computed before it starts: the amount the budget reserves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import orjson

from visioneval.engine.calls.cost.pricing import Prices
from visioneval.engine.calls.limit_keys import RateLimitKey
from visioneval.expansion.plan import Call
from visioneval.providers.base import VIDEO_MS, Part, Question, VideoPart
from visioneval.suite.entries.judges import BaseJudge
from visioneval.suite.entries.providers import BaseProvider
from visioneval.types import TaskType

IMAGE_TOKENS = 16_384
"""Input tokens reserved for each image sent: no current model uses more at full detail."""
VIDEO_TOKENS = 100_000
"""Input tokens reserved for each video sent: about five minutes of video."""
ANSWER_TOKENS = 16_384
"""Output tokens of a judge's reply, thinking included, if its params set no maximum."""
GENERATED_TOKENS = 8_192
"""Output tokens of a generated image: the largest size at the highest quality uses fewer."""
VIDEO_SECOND_TOKENS = 6_000
"""Output tokens of a second of generated video of 720p: Gemini Omni uses 5,792."""
_SCALE_BY_RESOLUTION = {"1080p": 2.25, "4k": 9.0}
_TOKENS_BY_PROVIDER = {"gemini": 4_096}
_TOKENS_BY_QUALITY = {"low": 512, "medium": 2_048}
FRAME_TOKENS = 1_000
"""Input tokens of overhead: roles, tool declarations and the provider's own instructions."""
_MAX_TOKEN_PARAMS = ("max_output_tokens", "maxOutputTokens", "max_completion_tokens", "max_tokens")
_CANDIDATE_PARAMS = ("n", "candidate_count", "candidateCount")
_PASS_THROUGH_PROVIDERS = ("openai", "gemini", "litellm")
"""Providers that send ``params`` unchanged, so that a maximum in them is enforced."""


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
    if task is not TaskType.VIDEO_GENERATION:
        return minimum_generation_size(config.provider_name, params, outputs)
    seconds = config.longest_video_s(params) * outputs
    scale = _SCALE_BY_RESOLUTION.get(str(params.get("resolution")).lower(), 1.0)
    tokens = ceil(VIDEO_SECOND_TOKENS * seconds * scale)
    return CallSize(outputs, 0, stated_maximum(config.provider_name, params), tokens, seconds)


def minimum_generation_size(provider: str, params: Mapping[str, Any], images: int) -> CallSize:
    """The size of a call that generates ``images`` images, without its prompt."""
    quality = _TOKENS_BY_QUALITY.get(str(params.get("quality")), GENERATED_TOKENS)
    likely = _TOKENS_BY_PROVIDER.get(provider, quality) * images
    return CallSize(images, 0, stated_maximum(provider, params), likely)


def question_size(config: BaseJudge, question: Question) -> CallSize:
    """The size of one round with a judge, including all earlier rounds. Counts one token per byte."""
    params: Mapping[str, Any] = getattr(config, "params", {})
    tokens = FRAME_TOKENS + _bytes(params) + _bytes(question.schema) + _tokens(question.parts)
    tokens += sum(_bytes([tool.description, tool.parameters]) for tool in question.tools)
    for turn in question.turns:
        tokens += _bytes(turn.raw) + sum(_tokens(parts) for _, parts in turn.results)
    return CallSize(0, tokens, stated_maximum(str(getattr(config, "provider", "")), params))


def stated_maximum(provider: str, params: Mapping[str, Any]) -> int | None:
    """The maximum of output tokens per call that ``params`` set, if any."""
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
