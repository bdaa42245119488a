"""Two thousand cells of which one call in five fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from api_runs import FIFTH, ApiRun
from fake_api import FakeAPI

from visioneval.running.calls import throttle

CELLS = 2000


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_two_thousand_cells_with_a_fifth_of_the_calls_failing(
    tmp_path: Path,
    api: FakeAPI,
    monkeypatch: pytest.MonkeyPatch,
    report: Callable[[str], None],
    provider: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(throttle, "BACKOFF_S", 0.02)
    api.faults.random(FIFTH, seed=2)
    limits = {provider: {"max_attempts": 12, "timeout_s": 3}}
    api_run = ApiRun(tmp_path, api, CELLS, provider, limits=limits)  # type: ignore[arg-type]
    start = time.monotonic()
    result = api_run.run("--max-concurrency", "32")
    report(
        f"{provider}: {CELLS} cells in {time.monotonic() - start:.0f} s: {len(api.requests)} requests,"
        f" {len(api.faults.generated)} of them failed, {api_run.generated} generations and {api_run.judged} judgements paid,"
        f" {api_run.repeated_calls} again"
    )
    assert result.exit_code == 0, result.output[-2000:]
    api_run.check_complete()
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (CELLS, CELLS, 0)
