"""Two thousand cells of which one call in five fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from api_runs import FIFTH, Paid
from fake_api import FakeAPI

from visioneval.engine.calls import limiters

CELLS = 2000


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_two_thousand_cells_with_a_fifth_of_the_calls_failing(
    tmp_path: Path,
    api: FakeAPI,
    monkeypatch: pytest.MonkeyPatch,
    told: Callable[[str], None],
    provider: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(limiters, "BACKOFF_S", 0.02)
    api.faults.random(FIFTH, seed=2)
    limits = {provider: {"max_attempts": 12, "timeout_s": 3}}
    paid = Paid(tmp_path, api, CELLS, provider, limits=limits)  # type: ignore[arg-type]
    start = time.monotonic()
    result = paid.run("--max-concurrency", "32")
    told(
        f"{provider}: {CELLS} cells in {time.monotonic() - start:.0f} s: {len(api.requests)} requests,"
        f" {len(api.faults.generated)} of them failed, {paid.generated} generations and {paid.judged} judgements paid,"
        f" {paid.paid_again} again"
    )
    assert result.exit_code == 0, result.output[-2000:]
    paid.check_whole()
    assert (paid.generated, paid.judged, paid.paid_again) == (CELLS, CELLS, 0)
