"""Runs that are killed or interrupted during paid calls, and then resumed."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from api_runs import ApiRun, wait_until
from fake_api import FakeAPI
from fork_server import ForkedProgram

from visioneval import read_info

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("local_api"),
    pytest.mark.skipif(os.name != "posix", reason="sends signals"),
]
AT_ONCE = 4
IN_PROGRESS = 2 * AT_ONCE
"""The most calls that a kill can lose: a worker has one under way, and there are two for each generation at once."""
SLOWLY = {"images": (0.02, 0.08), "judge": (0.02, 0.08)}


def results(api_run: ApiRun) -> int:
    path = api_run.run_folder / "results.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def test_killed_and_resumed_run_completes_and_pays_once(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, 40)
    api.latency.update(SLOWLY)
    moments: list[Callable[[], bool]] = [
        (api_run.run_folder / "run.json").is_file,
        lambda: api_run.generated >= 5,
        lambda: api_run.judged >= 12,
        lambda: results(api_run) >= 25,
    ]
    for at, moment in enumerate(moments):
        program = api_run.program("--max-concurrency", str(AT_ONCE), resume=at > 0)
        wait_until(moment, program)
        program.kill()
        program.communicate(timeout=60)
        assert read_info(api_run.run_folder).state == "running"
        for record in api_run.records:
            api_run.check(record)
    assert 25 <= results(api_run) < 40
    result = api_run.run("--max-concurrency", str(AT_ONCE), resume=True)
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert api_run.generated + api_run.judged <= 80 + IN_PROGRESS * len(moments)
    assert len(api.paid_by_digest) == 80


def test_run_killed_at_start_can_be_resumed(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, 8)
    api.latency["images"] = 60
    program = api_run.program("--max-concurrency", str(AT_ONCE))
    wait_until(lambda: len(api.requests) == AT_ONCE, program)
    program.kill()
    program.communicate(timeout=60)
    api.latency.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    assert "to generate: 8 (8 not done yet); to grade again: 0; unchanged: 0" in result.stderr
    api_run.check_complete()
    assert (api_run.generated, api_run.judged) == (8, 8)


def interrupt(program: ForkedProgram) -> None:
    """Sends the first interrupt and waits until the program confirms it."""
    program.send_signal(signal.SIGINT)
    while "stopping: waiting" not in program.stderr.readline():
        assert program.poll() is None


def test_first_interrupt_finishes_paid_calls_and_stops_generating(tmp_path: Path, api: FakeAPI) -> None:
    api_run = ApiRun(tmp_path, api, 20)
    api.latency.update({"images": 1.0, "judge": 0.2})
    program = api_run.program("--max-concurrency", str(AT_ONCE))
    wait_until(lambda: len(api.requests) == AT_ONCE, program)
    interrupt(program)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    assert "Traceback" not in errors
    assert "interrupted: 4 of 20 cells recorded" in errors
    assert (api_run.generated, api_run.judged, len(api_run.records)) == (AT_ONCE, AT_ONCE, AT_ONCE)
    for record in api_run.records:
        api_run.check(record)
    message = re.search(r"to resume: visioneval (run --resume \S+)", errors)
    assert (tmp_path / message[1].split()[-1]).samefile(api_run.run_folder)
    api.latency.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    api_run.check_complete()
    assert (api_run.generated, api_run.judged, api_run.repeated_calls) == (20, 20, 0)


def test_second_interrupt_waits_for_no_call(tmp_path: Path, api: FakeAPI) -> None:
    """Of Gemini; of OpenAI, see ``test_calls_in_flight.py``."""
    api_run = ApiRun(tmp_path, api, 8, "gemini")
    api.latency["gemini"] = 600
    program = api_run.program("--max-concurrency", str(AT_ONCE))
    wait_until(lambda: len(api.requests) == AT_ONCE, program)
    interrupt(program)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    assert "Traceback" not in errors
    assert read_info(api_run.run_folder).state == "interrupted"
    assert (api_run.generated, api_run.records) == (0, [])
    api.latency.clear()
    result = api_run.run(resume=True)
    assert result.exit_code == 0, result.output
    api_run.check_complete()


def test_interrupt_does_not_wait_for_rate_limit(tmp_path: Path, api: FakeAPI) -> None:
    """With a rate of two generations a minute, the first few start immediately; the others would start minutes later."""
    api_run = ApiRun(tmp_path, api, 20, limits={"openai": {"images_per_minute": 2}})
    program = api_run.program("--max-concurrency", str(AT_ONCE))
    wait_until(lambda: results(api_run) >= 1, program)
    interrupt(program)
    _, errors = program.communicate(timeout=25)
    assert program.returncode == 130, errors
    assert api_run.generated == api_run.judged == len(api_run.records) < 5
