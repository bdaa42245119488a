"""Tells a spent quota, with which no further call succeeds, from a limit that a wait ends."""

from __future__ import annotations

import re

from visioneval.providers.error_replies import ErrorReply

_SPENT = re.compile(
    r"insufficient[ _-]?(?:user[ _-]?)?(?:quota|balance|credits?\b)|exceeded_current_quota"
    r"|billing[ _](?:hard[ _]limit|not[ _]active|disabled)|check your billing details"
    r"|usage_limit_exceeded|spend(?:ing)?[_-](?:limit|cap)|monthly spend(?:ing)? (?:limit|cap)"
    r"|budget_exceeded|Exceeded(?:Token)?Budget|budget has been exceeded|crossed budget"
    r"|credit[ _]balance[ _](?:is too low|exhausted)|exhausted balance|payment[ _]required"
    r"|all available credits|out of credits|not enough credits|requires more credits|included credits"
    r"|credits (?:are|have been) (?:depleted|exhausted|used up)|daily free allocation|out of call volume quota"
    r"|AccountOverdue|Arrearage|dailyLimitExceeded|models-per-day"
    r"|quota(?:Id|Metric)\W{1,8}[\w./-]{0,200}per_?day|quota exceeded for [\w./-]{0,200}per_day"
    r"|quota exceeded for metric: [\w./-]{0,200}, limit: 0(?!\d)|\bLimit 0, (?:Used|Requested)",
    re.IGNORECASE,
)
"""Codes and words of OpenAI, Azure, Gemini and Vertex AI, xAI, OpenRouter, LiteLLM's proxy, fal and others. A quota per
day is spent, a limit per minute is not; a limit of 0 allows no call at all."""
_OPENAI_WORDS = re.compile("exceeded your current quota", re.IGNORECASE)
_GOOGLE = re.compile("google|RESOURCE_EXHAUSTED", re.IGNORECASE)
"""Google uses OpenAI's words for limits per minute too, where only the violated quota tells."""


_LIMITED = (403, 429)
"""The statuses with which words alone can mean a spent quota. With others they may be a prompt that is quoted."""
_OTHER_STATUSES = (400, 401, 500)
_DOCUMENTED = re.compile(
    r"insufficient_quota|billing_hard_limit_reached|billing hard limit has been reached|budget_exceeded"
    r"|Exceeded(?:Token)?Budget: |budget has been exceeded! |credit balance is too low to access",
    re.IGNORECASE,
)
"""What OpenAI, LiteLLM's proxy and Anthropic say with another status."""


def is_quota_spent(status: int, error: ErrorReply) -> bool:
    """Whether an error reply means that the account, the key or the day has nothing left."""
    if status == 402 or any(map(_SPENT.search, error.codes)):
        return True
    if status not in _LIMITED:
        return status in _OTHER_STATUSES and any(map(_DOCUMENTED.search, error.words))
    if any(map(_SPENT.search, (*error.words, *error.quotas))):
        return True
    is_google = any(map(_GOOGLE.search, (*error.codes, *error.words)))
    return not is_google and any(map(_OPENAI_WORDS.search, error.words))
