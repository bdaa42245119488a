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
GEMINI = {"error": {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37s"}]}}
PROXIED = {"error": {"message": f"GeminiException - {json.dumps(GEMINI)}", "code": "429"}}


def retry_after(status: int, headers: Mapping[str, str], body: str = "") -> float | None:
    return waits.retry_after(status, headers, read_error(body))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"Retry-After": "1m30s"}, 90),
        ({"retry-after": format_datetime(SOON, usegmt=True)}, MINUTE),
        ({"retry-after": SOON.isoformat()}, MINUTE),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"x-ms-retry-after-ms": "60000"}, 60),
        ({"retry-after": "20", "x-ratelimit-reset-requests": "40"}, 20),
        ({"x-ratelimit-reset-requests": "1s"}, 1),
        ({"x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-reset-tokens": "1h2m3s"}, 3723),
        ({"x-ratelimit-reset-tokens": "2m59.56s"}, 179.56),
        ({"x-rate-limit-reset-tokens": "55"}, 55),
        ({"x-ratelimit-reset": f"{SOON.timestamp():.0f}"}, MINUTE),
        ({"x-ratelimit-reset": f"{SOON.timestamp() * 1000:.0f}"}, MINUTE),
        ({"anthropic-ratelimit-requests-reset": SOON.isoformat().replace("+00:00", "Z")}, MINUTE),
        ({"ratelimit-reset": "30"}, 30),
        ({"ratelimit": '"default";r=0;t=50'}, 50),
        ({"ratelimit": "limit=10, remaining=0, reset=50"}, 50),
        ({"ratelimit": '"default";r=3;t=50'}, None),
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
        ("Rate limit reached for m on requests per min: Limit 5. Please try again in 20s.", 20),
        ("please slow down and try again after 51.81557421875 seconds.", 51.81557421875),
        ("Try again in 2 minutes", 120),
        ("Please try again in 1m30s. Visit", 90),
        ("Please try again in 500ms.", 0.5),
        ("Please try again in 7m12.5s.", 432.5),
        ("rate limit of your current S0 pricing tier. Please retry after 60 seconds. Please go here", 60),
        ("Please retry in 37.123s.", 37.123),
        ("Rate limit of 50 per 86400s exceeded. Please wait 5000 seconds before retrying.", 5000),
        ("Request was throttled. Expected available in 20 seconds.", 20),
        ("Your rate limit resets in ~30s.", 30),
        ("Your quota will reset after 5h59m59s.", 21_599),
        ("try again later", None),
        ("try again in 20 apples", None),
        ("a limit of 5 seconds", None),
        (json.dumps(GEMINI), 37),
        (json.dumps(PROXIED), 37),
        (json.dumps(OPENROUTER), MINUTE),
        (json.dumps({"detail": "throttled", "status": 429, "retry_after": 30}), 30),
        (json.dumps({"retryAfter": "3s"}), 3),
        (json.dumps({"metadata": {"retry_after_seconds": 2.5}}), 2.5),
        (json.dumps({"retry_after": None}), None),
        (json.dumps({"detail": [{"msg": "busy", "input": "Sale! Available in 3 days"}]}), None),
        (json.dumps({"detail": [{"msg": "busy", "input": {"retry_after": 30, "prompt": "try again in 5 s"}}]}), None),
        (json.dumps({"error": "busy", "prompt": "Sale! Available in 3 days"}), None),
        ("<html><title>Busy</title><body>Available in 3 days</body></html>", None),
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
