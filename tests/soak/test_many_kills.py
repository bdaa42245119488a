"""A run that is killed at fifty random moments and resumed each time."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from api_runs import ApiRun
from fake_api import FakeAPI

from visioneval import read_info

CELLS = 200
KILLS = 50
AT_ONCE = 8
SEED = 20
SAVE_S = 0.1
"""Seconds that the program may need to save an answer that the server has sent."""


def paid_for(api: FakeAPI) -> int:
    return api.paid_by_digest.total()


def unanswered(api: FakeAPI, since: int) -> set[int]:
    """The requests, by number, that came after the first so many and have no answer yet."""
    return {at for at, entry in enumerate(list(api.requests)) if at >= since and entry.status == 0}


def killed(api_run: ApiRun, moment: float) -> tuple[int, int]:
    """Starts or resumes the run and kills it a number of seconds after its first call.

    Returns how many calls had no answer then, and how many had none, or were not made yet, shortly before.
    """
    api = api_run.api
    before = len(api.requests)
    program = api_run.program("--max-concurrency", str(AT_ONCE), resume=(api_run.run_folder / "run.json").is_file())
    end = time.monotonic() + 60
    while len(api.requests) == before and program.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.002)
    time.sleep(moment)
    lately, seen = unanswered(api, before), len(api.requests)
    time.sleep(SAVE_S)
    assert program.poll() is None, program.communicate(timeout=60)
    program.kill()
    now = unanswered(api, before)
    lately |= set(range(seen, len(api.requests)))
    program.communicate(timeout=60)
    return len(now), len(lately)


def lost_and_doubled(api_run: ApiRun) -> tuple[int, int]:
    """How many cells have no line in ``results.jsonl``, and how many lines are about a cell that has one already."""
    lines = (api_run.run_folder / "results.jsonl").read_text().splitlines()
    cells = {(single["test_id"], single["model_label"], single["sample_index"]) for single in map(json.loads, lines)}
    return CELLS - len(cells), len(lines) - len(cells)


def test_fifty_kills_of_two_hundred_cells(
    tmp_path: Path, api: FakeAPI, monkeypatch: pytest.MonkeyPatch, report: Callable[[str], None]
) -> None:
    monkeypatch.chdir(tmp_path)
    api.latency.update({"images": (0.2, 1.2), "judge": (0.1, 0.6)})
    api_run = ApiRun(tmp_path, api, CELLS)
    chance = random.Random(SEED)
    under_way, lately = 0, 0
    start = time.monotonic()
    for _ in range(KILLS):
        now, before = killed(api_run, chance.uniform(0, 0.9))
        under_way, lately = under_way + now, lately + before
        assert read_info(api_run.run_folder).state == "running"
        for record in api_run.records:
            api_run.check(record)
    left = CELLS - len(api_run.records)
    api.latency.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    again = api_run.repeated_calls
    lost, doubled = lost_and_doubled(api_run)
    report(
        f"{KILLS} kills of {CELLS} cells in {time.monotonic() - start:.0f} s: {left} cells were left after the last;"
        f" {len(api.paid_by_digest)} distinct calls, {paid_for(api)} paid, {again} of them again;"
        f" {under_way} had no answer at the kills, {lately} had none {SAVE_S} s before;"
        f" cells lost: {lost}, doubled: {doubled}"
    )
    assert (lost, doubled) == (0, 0)
    assert len(api.paid_by_digest) == 2 * CELLS
    assert left > 0
    assert again <= lately
