"""Runs that are killed or interrupted during paid calls, and then resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from api_runs import Paid, scripted, until
from fake_api import FakeAPI

from visioneval.records.model import read_info

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends signals")
AT_ONCE = 4
IN_THE_WORKS = 2 * AT_ONCE
"""The most calls that a kill can lose: a worker has one under way, and there are two for each generation at once."""
SLOWLY = {"images": (0.02, 0.08), "judge": (0.02, 0.08)}


@pytest.fixture
def api() -> Iterator[FakeAPI]:
    with FakeAPI(scripted()) as server:
        yield server


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def results(paid: Paid) -> int:
    path = paid.run_folder / "results.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def test_killed_and_resumed_run_completes_and_pays_once(tmp_path: Path, api: FakeAPI) -> None:
    paid = Paid(tmp_path, api, 60)
    api.latency.update(SLOWLY)
    moments: list[Callable[[], bool]] = [
        (paid.run_folder / "run.json").is_file,
        lambda: paid.generated >= 5,
        lambda: paid.judged >= 12,
        lambda: results(paid) >= 30,
        lambda: results(paid) >= 45,
    ]
    for at, moment in enumerate(moments):
        program = paid.program("--max-concurrency", str(AT_ONCE), resume=at > 0)
        until(moment, program)
        program.kill()
        program.communicate(timeout=60)
        assert read_info(paid.run_folder).state == "running"
        for record in paid.records:
            paid.check(record)
    assert 45 <= results(paid) < 60
    result = paid.run("--max-concurrency", str(AT_ONCE), resume=True)
    assert result.exit_code == 0, result.output
    paid.check_whole()
    assert paid.generated + paid.judged <= 120 + IN_THE_WORKS * len(moments)
    assert len(api.paid_by_digest) == 120


def test_run_killed_at_start_can_be_resumed(tmp_path: Path, api: FakeAPI) -> None:
    paid = Paid(tmp_path, api, 8)
    api.latency["images"] = 60
    program = paid.program("--max-concurrency", str(AT_ONCE))
    until(lambda: len(api.requests) == AT_ONCE, program)
    program.kill()
    program.communicate(timeout=60)
    api.latency.clear()
    result = paid.run(resume=True)
    assert result.exit_code == 0, result.output
    assert "to generate: 8 (8 not done yet); to grade again: 0; unchanged: 0" in result.stderr
    paid.check_whole()
    assert (paid.generated, paid.judged) == (8, 8)


def asked_to_stop(program: subprocess.Popen[str]) -> None:
    """Sends the first interrupt and waits until the program confirms it."""
    program.send_signal(signal.SIGINT)
    assert program.stderr is not None
    while "stopping: waiting" not in program.stderr.readline():
        assert program.poll() is None


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_first_interrupt_finishes_paid_calls_and_stops_generating(tmp_path: Path, api: FakeAPI, provider: str) -> None:
    paid = Paid(tmp_path, api, 20, provider)  # type: ignore[arg-type]
    api.latency.update({"images": 1.5, "judge": 0.2, "gemini": 1.5})
    program = paid.program("--max-concurrency", str(AT_ONCE))
    until(lambda: len(api.requests) == AT_ONCE, program)
    asked_to_stop(program)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    assert "Traceback" not in errors
    assert "interrupted: 4 of 20 cells are recorded" in errors
    assert (paid.generated, paid.judged, len(paid.records)) == (AT_ONCE, AT_ONCE, AT_ONCE)
    for record in paid.records:
        paid.check(record)
    message = re.search(r"to resume: visioneval (run --resume \S+)", errors)
    assert message is not None
    assert (tmp_path / message[1].split()[-1]).samefile(paid.run_folder)
    api.latency.clear()
    result = paid.run(resume=True)
    assert result.exit_code == 0, result.output
    paid.check_whole()
    assert (paid.generated, paid.judged, paid.paid_again) == (20, 20, 0)


@pytest.mark.parametrize("provider", ["openai", "gemini"])
def test_second_interrupt_waits_for_no_call(tmp_path: Path, api: FakeAPI, provider: str) -> None:
    paid = Paid(tmp_path, api, 8, provider)  # type: ignore[arg-type]
    api.latency.update({"images": 600, "gemini": 600})
    program = paid.program("--max-concurrency", str(AT_ONCE))
    until(lambda: len(api.requests) == AT_ONCE, program)
    asked_to_stop(program)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130, errors
    assert "Traceback" not in errors
    assert read_info(paid.run_folder).state == "interrupted"
    assert (paid.generated, paid.records) == (0, [])
    api.latency.clear()
    result = paid.run(resume=True)
    assert result.exit_code == 0, result.output
    paid.check_whole()


def test_interrupt_does_not_wait_for_rate_limit(tmp_path: Path, api: FakeAPI) -> None:
    """Of two generations a minute the first few are made at once; the others would come minutes later."""
    paid = Paid(tmp_path, api, 20, limits={"openai": {"images_per_minute": 2}})
    program = paid.program("--max-concurrency", str(AT_ONCE))
    until(lambda: results(paid) >= 1, program)
    asked_to_stop(program)
    _, errors = program.communicate(timeout=25)
    assert program.returncode == 130, errors
    assert paid.generated == paid.judged == len(paid.records) < 5
