"""How long a failed reply asks to wait: in headers, in a body and in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from tables import rows_of

from visioneval.providers import error_replies as waits
from visioneval.providers.error_replies import read_error

rows = rows_of(__file__)

NOW = datetime.now(UTC)
SOON = NOW + timedelta(seconds=100_000)
MINUTE = pytest.approx(100_000, abs=3600)
"""The time until ``SOON``, up to an hour after these tests were collected."""
OPENROUTER = {"error": {"code": 429, "metadata": {"headers": {
    "X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": f"{SOON.timestamp() * 1000:.0f}",
}}}}  # fmt: skip


def retry_after(status: int, headers: Mapping[str, str], body: str = "") -> float | None:
    return waits.retry_after(status, headers, read_error(body))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        *rows("headers"),
        ({"retry-after": format_datetime(SOON, usegmt=True)}, MINUTE),
        ({"retry-after": SOON.isoformat()}, MINUTE),
        ({"x-ratelimit-reset": f"{SOON.timestamp():.0f}"}, MINUTE),
        ({"x-ratelimit-reset": f"{SOON.timestamp() * 1000:.0f}"}, MINUTE),
        ({"anthropic-ratelimit-requests-reset": SOON.isoformat().replace("+00:00", "Z")}, MINUTE),
    ],
)
def test_headers(headers: Mapping[str, str], seconds: float | None) -> None:
    assert retry_after(429, headers) == seconds


REQUESTS, TOKENS = {"x-ratelimit-reset-requests": "10s"}, {"x-ratelimit-reset-tokens": "40s"}


@pytest.mark.parametrize(("requests", "tokens", "seconds"), rows("only_a_limit_of_which_nothing_remains_counts"))
def test_only_a_limit_of_which_nothing_remains_counts(
    requests: str | None, tokens: str | None, seconds: float | None
) -> None:
    remaining = {"x-ratelimit-remaining-requests": requests, "x-ratelimit-remaining-tokens": tokens}
    stated = {name: value for name, value in remaining.items() if value is not None}
    assert retry_after(429, {**REQUESTS, **TOKENS, **stated}) == seconds


def test_a_limit_that_an_outage_mentions_does_not_delay_it() -> None:
    assert retry_after(500, REQUESTS) is None
    assert retry_after(503, {**REQUESTS, "x-ratelimit-remaining-requests": "0"}) == 10


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        *rows("bodies"),
        (json.dumps(OPENROUTER), MINUTE),
    ],
)
def test_bodies(body: str, seconds: float | None) -> None:
    assert retry_after(429, {}, body) == seconds


def test_what_the_body_says_is_for_this_call_and_a_header_states_it_best() -> None:
    body = "Please try again in 20s."
    assert retry_after(429, {"x-ratelimit-reset": "50"}, body) == 20
    assert retry_after(429, {"retry-after": "5", "x-ratelimit-reset": "50"}, body) == 5
    assert retry_after(429, {"retry-after": "5"}, '{"retry_after": 30}') == 5


@pytest.mark.parametrize("name", ["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens"])
@pytest.mark.parametrize(
    "value", ["", "soon", "nan", "inf", "-inf", "Wed, 99 Oct 2026 07:28:00 GMT", "1 year", "9" * 10_000, "1e", "\x00"]
)
def test_a_wait_that_is_none_says_nothing(name: str, value: str) -> None:
    wait = retry_after(429, {name: value})
    assert wait is None or wait > 1e9, "a number of any length is one"


@pytest.mark.parametrize(("value", "seconds"), [("-1", 0), ("-1e308", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)])
def test_a_time_that_is_over_is_no_wait(value: str, seconds: float) -> None:
    assert retry_after(429, {"retry-after": value}) == seconds
    assert retry_after(429, {"x-ratelimit-reset": value}) is None, "the limit still holds: the usual backoff applies"


@pytest.mark.parametrize(
    "body", ["try again in " + "9" * 10_000 + "s", '"retry_after": "' * 10_000, "again in 5m" * 10_000]
)
def test_a_hostile_body_says_nothing(body: str) -> None:
    assert retry_after(429, {}, body) is None
