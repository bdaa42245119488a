"""A spent quota, which ends a run, and limits that a wait ends: both sides of each form."""

from __future__ import annotations

from typing import Any

import pytest
from tables import rows_of

from visioneval.providers.error_replies import is_quota_spent, read_error

rows = rows_of(__file__)


DAY, MINUTE = "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "GenerateRequestsPerMinutePerProjectPerModel"


@pytest.mark.parametrize(("status", "body"), rows("a_spent_quota"))
def test_a_spent_quota(status: int, body: Any) -> None:
    assert is_quota_spent(status, read_error(body))


@pytest.mark.parametrize(("status", "body"), rows("what_a_wait_or_another_request_ends"))
def test_what_a_wait_or_another_request_ends(status: int, body: Any) -> None:
    assert not is_quota_spent(status, read_error(body))


PAYMENT = "A shop sign that says: payment required, out of credits"


@pytest.mark.parametrize(("status", "body"), rows("a_prompt_that_is_repeated_is_no_quota"))
def test_a_prompt_that_is_repeated_is_no_quota(status: int, body: Any) -> None:
    assert not is_quota_spent(status, read_error(body))
    assert is_quota_spent(429, read_error({"detail": PAYMENT})), "the same words are a quota where the server says them"
