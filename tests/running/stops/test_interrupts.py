"""Interrupted and killed runs preserve all finished cells."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from child_process import wait_until
from fork_server import ForkedProgram
from record_factory import info
from toys import Toy

from visioneval import read_info, read_records
from visioneval.records.runs import current_state, missing_cells_hint, resume_command, with_current_state
from visioneval.records.untrusted import list_runs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="sends signals")]

QUICK = [{"id": f"quick{at}"} for at in range(4)]


def slow_cases(seconds: float) -> list[dict[str, object]]:
    return [{"id": f"slow{at}", "metadata": {"wait": seconds}} for at in range(8)]


def results(toy: Toy) -> Path:
    return toy.folder / "runs" / "r" / "results.jsonl"


def start_program(toy: Toy, seconds: float) -> ForkedProgram:
    """A run with four finished and eight slow cells, two of which are running."""
    path = toy.write(*QUICK, *slow_cases(seconds))
    program = toy.program("run", path, "--trust-suite", "--max-concurrency", "2", "--run-id", "r")
    wait_until(lambda: results(toy).is_file() and results(toy).read_bytes().count(b"\n") == len(QUICK), program)
    return program


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_first_interrupt_lets_running_calls_finish(toy: Toy, sent: signal.Signals) -> None:
    program = start_program(toy, 1)
    program.send_signal(sent)
    out, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "stopping: waiting for 2 calls (interrupt again to stop now)" in errors
    assert "Traceback" not in errors
    assert read_info(toy.latest).state == "interrupted"
    records = list(read_records(toy.latest))
    assert {record.test_id for record in records} == {"quick0", "quick1", "quick2", "quick3", "slow0", "slow1"}
    assert {record.verdict for record in records} == {"PASS"}
    assert "6 of 12 cells" in out
    assert "interrupted: 6 of 12 cells recorded" in errors
    assert "to resume: visioneval run --resume runs/r --trust-suite\n" in errors
    shown = toy("show", "r").stderr
    assert shown == "runs/r was interrupted; to resume: visioneval run --resume runs/r\n", (
        "a stranger's run trusts nobody"
    )
    assert json.loads((toy.latest / "summary.json").read_text())["exit_code"] == 130


def test_second_interrupt_stops_now(toy: Toy) -> None:
    program = start_program(toy, 600)
    program.send_signal(signal.SIGINT)
    while "stopping: waiting" not in program.stderr.readline():
        assert program.poll() is None
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "Traceback" not in errors
    assert read_info(toy.latest).state == "interrupted"
    assert len(list(read_records(toy.latest))) == len(QUICK)


STUCK = """
import threading
from pathlib import Path

class Stuck:
    def __init__(self, config): ...
    def grade(self, context):
        Path("stuck").touch()
        threading.Event().wait()
"""


def test_second_interrupt_waits_for_no_thread(toy: Toy) -> None:
    """Nothing can stop a thread, in native code or in a grader that waits forever."""
    (toy.folder / "stuck.py").write_text(STUCK)
    look = {"key": "look", "type": "stuck:Stuck", "writes": {"fine": {"type": "bool"}}}
    program = toy.program("run", toy.write({}, graders=[look]), "--trust-suite")
    wait_until((toy.folder / "stuck").exists, program)
    program.send_signal(signal.SIGINT)
    while "stopping: waiting for what has begun" not in program.stderr.readline():
        assert program.poll() is None
    program.send_signal(signal.SIGINT)
    out, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert "interrupted: 0 of 1 cell recorded" in errors
    assert "to resume: " in errors
    assert read_info(toy.latest).state == "interrupted"
    assert out.splitlines()[0].split()[1:4] == ["0", "of", "1"]
    assert "Gates" not in out, "there is nothing to show in tables"
    assert "Metrics" not in out
    assert "next: " not in out


def test_interrupt_also_skips_remaining_suites(toy: Toy) -> None:
    first, second = toy.write(*QUICK, *slow_cases(1), name="a.yaml"), toy.write({}, name="b.yaml")
    program = toy.program("run", first, second, "--trust-suite", "--max-concurrency", "2")
    wait_until(lambda: bool(list(toy.folder.glob("runs/*/results.jsonl"))), program)
    wait_until(lambda: next(toy.folder.glob("runs/*/results.jsonl")).read_bytes().count(b"\n") == len(QUICK), program)
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)
    assert program.returncode == 130
    assert [info["state"] for _, info in list_runs(toy.folder / "runs")] == ["interrupted"]


def test_command_provider_process_ends_with_second_interrupt(toy: Toy) -> None:
    (toy.folder / "generate.py").write_text(
        "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    )
    path = toy.write({}, models=[{"provider": "command", "argv": [sys.executable, "generate.py"]}])
    program = toy.program("run", path, "--trust-suite")
    wait_until(lambda: (toy.folder / "pid").is_file() and bool((toy.folder / "pid").read_text()), program)
    program.send_signal(signal.SIGINT)
    while "stopping: waiting" not in program.stderr.readline():
        assert program.poll() is None
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=60)
    assert program.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int((toy.folder / "pid").read_text()), 0)


def test_kill_loses_no_finished_cell(toy: Toy) -> None:
    program = start_program(toy, 600)
    shown, listed = toy("show", "latest"), toy("runs")
    program.kill()
    program.communicate(timeout=60)
    assert ("running" in shown.stdout, "running" in listed.stdout) == (True, True)
    assert "to resume" not in shown.stderr + listed.stderr
    assert read_info(toy.latest).state == "running"
    assert {record.verdict for record in read_records(toy.latest)} == {"PASS"}
    assert len(list(read_records(toy.latest))) == len(QUICK)
    shown = toy("show", "latest")
    assert shown.exit_code == 0
    assert "4 of 12 cells" in shown.stdout
    assert "stopped" in shown.stdout
    assert "running" not in shown.stdout
    assert f"was killed; to resume: visioneval run --resume {toy.latest.relative_to(toy.folder)}" in shown.stderr
    listed = toy("runs")
    assert "stopped" in listed.stdout
    assert "to resume: visioneval run --resume runs/r" in listed.stderr
    refused = toy("baseline", "set", "latest")
    assert refused.exit_code == 2
    assert "the run is stopped: a baseline needs a complete run" in refused.stderr
    assert toy("report", "latest").exit_code == 0
    assert "Stopped before completion" in (toy.latest / "report" / "index.html").read_text()


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("run s.yaml --limit 3 --quiet", "visioneval run --resume 'my runs/r'"),
        ("run s.yaml --trust-suite --offline --cache kept", "run --resume 'my runs/r' --trust-suite --offline --cache kept"),
        ("--env-file .env run s.yaml --cache=kept", "visioneval --env-file .env run --resume 'my runs/r' --cache kept"),
        ("run s.yaml --reuse all --budget=5 --seed 1", "run --resume 'my runs/r' --reuse all --budget 5"),
        ("run s.yaml --cache", "run --resume 'my runs/r' --cache ''"),
    ],
)  # fmt: skip
def test_resume_command_includes_needed_flags(typed: str, line: str) -> None:
    assert resume_command(Path("my runs/r"), typed.split()).endswith(line)


@pytest.mark.parametrize(
    ("typed", "names_cache"),
    [("run s.yaml --cache mine", True), ("run s.yaml --cache=mine", True), ("run s.yaml --offline", False)],
)
def test_the_hint_for_a_stored_run_names_its_cache_but_no_folder_of_it(typed: str, names_cache: bool) -> None:
    """The run may be a stranger's, whose arguments are never to be pasted."""
    hint = missing_cells_hint(Path("runs/r"), info(command_line=tuple(typed.split())))
    assert hint.startswith("to resume: visioneval run --resume runs/r")
    assert ("--cache" in hint) is names_cache
    assert "mine" not in hint


def test_run_that_ends_during_check_is_not_reported_as_killed(toy: Toy) -> None:
    assert toy.run({}).exit_code == 0
    ended = read_info(toy.latest)
    seen = ended.model_copy(update={"state": "running", "ended_at": None})
    assert with_current_state(toy.latest, seen) == ended
    assert current_state(toy.latest, "running") == "complete"


@pytest.mark.parametrize("delay", [0.0, 0.1])
def test_kill_at_any_moment_leaves_readable_records(toy: Toy, delay: float) -> None:
    path = toy.write(*[{} for _ in range(200)], samples=5)
    program = toy.program("run", path, "--trust-suite", "--run-id", "r")
    wait_until(lambda: results(toy).is_file() and results(toy).stat().st_size > 0, program)
    time.sleep(delay)
    program.kill()
    program.communicate(timeout=60)
    for record in read_records(toy.latest):
        assert record.verdict == "PASS"
        assert (toy.latest / str(record.artifact_path)).read_bytes().startswith(b"\x89PNG")
    assert toy("export", "latest").exit_code == 0
