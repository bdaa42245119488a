"""Claims on runs in a store: how long one keeps other writers out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from visioneval.records.stores.claims import ClaimBody, ClaimState

RENEWED = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
BODY = ClaimBody(writer="process 1 on a", nonce="n", since="2026-01-01T11:00:00+00:00", expiry_s=60)


@pytest.mark.parametrize(
    ("seconds", "is_released", "is_live"),
    [(0, False, True), (60, False, True), (61, False, False), (86_400, False, False), (0, True, False)],
)
def test_a_claim_is_live_until_its_writer_is_silent_or_releases_it(
    seconds: float, is_released: bool, is_live: bool
) -> None:
    body = BODY.model_copy(update={"state": "released"}) if is_released else BODY
    assert ClaimState(1, body, RENEWED).is_live(RENEWED + timedelta(seconds=seconds)) is is_live
