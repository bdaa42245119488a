"""Reads how long a failed reply asks to wait, in the forms of all providers: in its headers, its body and its words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from visioneval.providers.error_replies import ErrorReply

_MAX_VALUE = 100
_OLDEST_TIME = 1e9
"""A number from here on is a time in seconds since 1970, and from a hundred times that in milliseconds."""
_PART = (
    r"(\d{1,15}(?:\.\d{1,20})?)\s?(ms|milliseconds?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])"
)
_DURATION = re.compile(rf"(?:{_PART}[\s,]{{0,2}}){{1,5}}", re.IGNORECASE)
_WORDS = re.compile(
    rf"\b(?:again|retry|wait|available|resets?)\s(?:(?:in|after|for)\s)?(?:about\s|at least\s)?~?({_DURATION.pattern})",
    re.IGNORECASE,
)
"""As in "Please try again in 1m30s", "retry after 60 seconds", "Expected available in 20 seconds"."""
_FIELD = re.compile(
    r'"(retry[\w-]{2,30}|[\w-]{0,30}rate-?limit[\w-]{1,30})\\{0,3}"\s?:\s?\\{0,3}"?([^"\\,}\]]{1,100})', re.IGNORECASE
)
"""In words that quote the JSON of another server: Gemini's ``retryDelay`` behind a proxy."""
_STATED = (("retryafterms", 0.001), ("xmsretryafterms", 0.001), ("retryafter", 1.0), ("retryafterseconds", 1.0),
           ("retrydelay", 1.0))  # fmt: skip
_COMBINED = re.compile(r"\b(?:remaining|r)=0\b.{0,20}?\b(?:reset|t)=(\d{1,15})\b")
"""As in ``"default";r=0;t=50`` and ``limit=10, remaining=0, reset=50``."""


def retry_after(status: int, headers: Mapping[str, str], error: ErrorReply) -> float | None:
    """Seconds, 0 or more, until a call may be repeated; ``None`` if the reply does not say so in a usable form.

    What is stated for a retry comes first, then the error's words, then when a limit resets: the last one of which
    nothing remains, or else, with status 429, the first one of which the reply does not say what remains.
    """
    quoted = [field for words in error.words for field in _FIELD.findall(words)]
    stated = (*quoted, *error.fields, *headers.items())
    values = {re.sub("[-_]", "", name).lower(): value for name, value in stated}
    for name, unit_s in _STATED:
        wait = _seconds(values.get(name, ""))
        if wait is not None:
            return wait * unit_s
    if match := next(filter(None, map(_WORDS.search, error.words)), None):
        return _duration(match[1])
    return _until_reset(values, status)


def _until_reset(values: Mapping[str, str], status: int) -> float | None:
    """The time until the limit resets that a call has met. ``values`` are by names without hyphens."""
    spent, unknown = [], []
    for name, value in values.items():
        if "ratelimit" in name and "reset" in name:
            remaining = values.get(name.replace("reset", "remaining"))
            wait = _seconds(value)  # one that is over says nothing
            if wait and remaining is None:
                unknown.append(wait)
            elif wait and _number(str(remaining)) == 0:
                spent.append(wait)
        elif name == "ratelimit" and (match := _COMBINED.search(value[:_MAX_VALUE])):
            spent.append(float(match[1]))
    if spent:
        return max(spent)
    return min(unknown) if unknown and status == 429 else None


def _seconds(text: str) -> float | None:
    """A number of seconds, a duration such as ``6m0s``, or the time until a date or a time since 1970; at least 0."""
    text = text[:_MAX_VALUE].strip()
    number = _number(text)
    if number is None:
        return _duration(text) if _DURATION.fullmatch(text) else _until_date(text)
    if number >= _OLDEST_TIME:
        number = (number / 1000 if number >= 100 * _OLDEST_TIME else number) - datetime.now(UTC).timestamp()
    return max(0.0, number)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _duration(text: str) -> float:
    return sum(float(number) * _unit_s(unit.lower()) for number, unit in re.findall(_PART, text, re.IGNORECASE))


def _unit_s(unit: str) -> float:
    if unit.startswith(("ms", "mil")):
        return 0.001
    return {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[unit[0]]


def _until_date(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = parse(text)
            date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
            return max(0.0, (date - datetime.now(UTC)).total_seconds())
        except (ValueError, OverflowError):
            continue
    return None
