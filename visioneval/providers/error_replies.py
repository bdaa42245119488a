"""What an error reply of a server says, in the forms of several providers: words, codes, limits, and when to retry."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice

import orjson

_INNER = ("error", "detail", "errors")
"""Where a body has its error: OpenAI's ``error``, FastAPI's and fal's ``detail``, Stability's ``errors``."""
_WORDS = ("message", "msg", "detail", "title")
_CODES = ("code", "type", "name", "status", "reason", "error_type", "finish_reason")
_TEXTS = (*_WORDS, *_INNER, "description", "error_description", "error_message", "raw", "")
"""Where the words of an error are, at any depth. A text that is no JSON has no name."""
_QUOTAS = ("quotaId", "quotaMetric")
"""In Google's details: which quota is violated."""
_ECHOES = ("input", "ctx", "params")
"""What repeats the request."""
CLOSED = "the connection was closed in the middle of the answer"
_MAX_QUOTED = 80
_MAX_DEPTH = 8
_MAX_FIELDS, _MAX_TEXT = 500, 20_000
_MAX_CODE = 200
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
_PAGE = re.compile(r"\s*(<!doctype|<html|<head|<body)", re.IGNORECASE)
_PAGE_WITHIN = re.compile(r"<(!doctype|html|head|body|title)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error: ``message`` on one line, for people, which may be empty and repeat the request; ``code`` is its own.

    What decides is in ``fields``: the names and texts at any depth, without web pages and without what repeats the
    request. ``is_json`` tells an API from a gateway in front of it, which answers with a page or a bare text.
    """

    message: str
    code: str
    is_json: bool
    fields: tuple[tuple[str, str], ...]

    @property
    def codes(self) -> list[str]:
        """Its codes, types and names, inner ones too."""
        return [text[:_MAX_CODE] for name, text in self.fields if name in _CODES]

    @property
    def words(self) -> list[str]:
        """What it says, each of at most 20,000 characters."""
        return [text for name, text in self.fields if name in _TEXTS]

    @property
    def quotas(self) -> list[str]:
        """The violated quotas, each with the name of its field."""
        return [f"{name}: {text}" for name, text in self.fields if name in _QUOTAS]


def read_error(body: object) -> ErrorReply:
    """Reads the body of an error reply: parsed JSON, or text. Never raises. A message may contain what was sent."""
    data = _parsed(body) if isinstance(body, str) else body
    error = _innermost(data)
    fields = error if isinstance(error, Mapping) else {}
    outer = data if isinstance(data, Mapping) else {}
    named = (found for name in ("code", "type", "name") for found in (fields.get(name), outer.get(name)))
    code = next((str(found)[:_MAX_CODE] for found in named if found), "")
    found = tuple(islice(_fields("", data, 0), _MAX_FIELDS))
    return ErrorReply(_message(data, error), code, not isinstance(data, str), found)


def one_line(text: str) -> str:
    """A text on one line; of a web page its title, else its words without the tags."""
    if not _PAGE.match(text):
        return " ".join(text.split())
    title = _TITLE.search(text)
    words = " ".join((title[1] if title else _TAG.sub(" ", text)).split())
    return f"a web page: {words!r}" if words else "a web page"


def beginning(text: str) -> str:
    """What an answer is that cannot be used, as the end of a sentence."""
    line = one_line(text)
    if not line:
        return "is empty"
    return f"is {line[:_MAX_QUOTED]}" if _PAGE.match(text) else f"begins with {line[:_MAX_QUOTED]!r}"


def _parsed(text: str) -> object:
    """The JSON in a text, or the text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return orjson.loads(text)
    except ValueError:
        return text


def _innermost(data: object) -> object:
    """The object that describes the error: the first one, if there is a list of them."""
    for _ in range(_MAX_DEPTH):
        candidates = data[:1] if isinstance(data, list) else []
        if isinstance(data, Mapping):
            candidates = [data[name] for name in _INNER if data.get(name)]
        if not candidates or candidates[0] is None:
            break
        data = candidates[0]
    return data


def _message(data: object, error: object) -> str:
    """The words of an error, with those of the provider behind a router: OpenRouter's ``metadata.raw``."""
    if data == error and isinstance(data, str) and not _PAGE.match(data):
        return one_line(data.strip().partition("\n")[0])  # a text may be a traceback
    fields = error if isinstance(error, Mapping) else {}
    words = next((fields[name] for name in _WORDS if fields.get(name)), error if isinstance(error, str) else data)
    message = one_line(words if isinstance(words, str) else orjson.dumps(words, default=str).decode() if words else "")
    metadata = fields.get("metadata")
    if isinstance(metadata, Mapping):
        raw = metadata.get("raw")
        inner = _parsed(raw) if isinstance(raw, str) else raw
        words = one_line(inner) if isinstance(inner, str) else read_error(inner).message if inner else ""
        cause = ": ".join(str(part) for part in (metadata.get("provider_name"), words) if part)
        return f"{message} ({cause})" if cause and cause not in message else message
    return message


def _fields(name: str, data: object, depth: int) -> Iterator[tuple[str, str]]:
    """The texts and numbers in a body by their names, also in JSON that one of its texts contains."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(data, str):
        parsed = _parsed(data)
        if isinstance(parsed, str):
            yield name, _PAGE_WITHIN.split(data, maxsplit=1)[0][:_MAX_TEXT]
        else:
            yield from _fields(name, parsed, depth + 1)
    elif isinstance(data, list):
        for item in data:
            yield from _fields(name, item, depth + 1)
    elif isinstance(data, Mapping):
        for inner, value in data.items():
            if inner not in _ECHOES:
                yield from _fields(str(inner), value, depth + 1)
    elif isinstance(data, (int, float)) and not isinstance(data, bool):
        yield name, str(data)


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


_MAX_VALUE = 100
_OLDEST_TIME = 1e9
"""A number from here on is a time in seconds since 1970, and from a hundred times that in milliseconds."""
_PART = (
    r"(\d{1,15}(?:\.\d{1,20})?)\s?(ms|milliseconds?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)(?![a-z])"
)
_DURATION = re.compile(rf"(?:{_PART}[\s,]{{0,2}}){{1,5}}", re.IGNORECASE)
_WAIT_WORDS = re.compile(
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
    if match := next(filter(None, map(_WAIT_WORDS.search, error.words)), None):
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
    seconds = 0.0
    for number, unit in re.findall(_PART, text.lower()):
        unit_s = 0.001 if unit.startswith(("ms", "mil")) else {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[unit[0]]
        seconds += float(number) * unit_s
    return seconds


def _until_date(text: str) -> float | None:
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = parse(text)
            date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
            return max(0.0, (date - datetime.now(UTC)).total_seconds())
        except (ValueError, OverflowError):
            continue
    return None
