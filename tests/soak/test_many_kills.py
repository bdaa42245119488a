"""A run that is killed at fifty random moments and gone on with each time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_api import FakeAPI
from paid import Paid

from visioneval.records import read_info

CELLS = 200
KILLS = 50
AT_ONCE = 8
SEED = 20


def paid_for(api: FakeAPI) -> int:
    return api.paid_by_digest.total()


def going(api: FakeAPI) -> int:
    """Calls that the server has not answered yet."""
    return sum(entry.status == 0 and entry.fault is None for entry in list(api.requests))


def killed(paid: Paid, moment: float) -> int:
    """Starts the run, or goes on with it, and kills it so many seconds after its first call; the calls under way then."""
    before, open_before = len(paid.api.requests), going(paid.api)
    program = paid.program("--max-concurrency", str(AT_ONCE), resume=(paid.run_folder / "run.json").is_file())
    end = time.monotonic() + 60
    while len(paid.api.requests) == before and program.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
    time.sleep(moment)
    assert program.poll() is None, program.communicate()
    program.kill()
    under_way = going(paid.api) - open_before
    program.communicate(timeout=60)
    return under_way


def test_fifty_kills_of_two_hundred_cells(
    tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch, told: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    api.latency.update({"images": (0.2, 1.2), "judge": (0.1, 0.6)})
    paid = Paid(tmp_path, api, CELLS)
    chance = random.Random(SEED)
    under_way = 0
    start = time.monotonic()
    for _ in range(KILLS):
        under_way += killed(paid, chance.uniform(0, 0.9))
        assert read_info(paid.run_folder).state == "running"
        for record in paid.records:
            paid.check(record)
    left = CELLS - len(paid.records)
    api.latency.clear()
    result = paid.run(resume=True)
    assert result.exit_code == 0, result.output
    paid.check_whole()
    again = paid.paid_again
    told(
        f"{KILLS} kills of {CELLS} cells in {time.monotonic() - start:.0f} s: {left} cells were left after the last;"
        f" {len(api.paid_by_digest)} distinct calls, {paid_for(api)} paid, {again} of them again;"
        f" {under_way} were under way at the kills"
    )
    assert len(api.paid_by_digest) == 2 * CELLS
    assert left > 0
    assert again <= under_way
