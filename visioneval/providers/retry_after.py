"""Parses the wait that a provider requests in the headers of a reply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_LONGEST_TEXT = 100


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, 0 or more, by ``Retry-After-Ms`` or ``Retry-After``; ``None`` if neither is usable."""
    milliseconds = seconds(headers.get("retry-after-ms", ""))
    return milliseconds / 1000 if milliseconds is not None else wait_of(headers.get("retry-after", ""))


def wait_of(text: str) -> float | None:
    """Seconds of a ``Retry-After``, 0 or more: a number, or the time until a date."""
    number = seconds(text)
    return _until(text) if number is None else number


def seconds(text: str) -> float | None:
    """A number of seconds, 0 for a negative one; ``None`` for anything else."""
    try:
        number = float(text[:_LONGEST_TEXT])
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _until(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text[:_LONGEST_TEXT])
    except (ValueError, OverflowError):
        return None
    date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
    return max(0.0, (date - datetime.now(UTC)).total_seconds())
