"""The usage that a server reports: what may be believed of it, and its token counts under one set of names."""

from __future__ import annotations

from collections.abc import Mapping

from visioneval.engine.sanitize import scalar
from visioneval.providers.base import MOST_VIDEO_MS, VIDEO_MS

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
