"""Closed, full or broken output streams do not change results or exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toys import Toy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="uses a shell")]


def shell(toy: Toy, line: str) -> subprocess.CompletedProcess[str]:
    """Runs a shell line in which ``$V`` is the command; the exit codes of a pipe are in its output."""
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "V": f"{sys.executable} -m visioneval"}
    return subprocess.run(
        ["bash", "-c", line], cwd=toy.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def suite(toy: Toy) -> Path:
    return toy.write({})


def test_closed_pipe_changes_neither_exit_code_nor_report(toy: Toy, suite: Path) -> None:
    done = shell(toy, "$V run suite.yaml --trust-suite --junit j.xml 2>errors | true; echo ${PIPESTATUS[0]}")
    assert done.stdout == "0\n", (toy.folder / "errors").read_text()
    assert (toy.folder / "j.xml").is_file()
    assert "Traceback" not in (toy.folder / "errors").read_text()


def test_other_commands_exit_as_shells_expect(toy: Toy) -> None:
    done = shell(toy, "$V schema 2>errors | true; echo ${PIPESTATUS[0]}")
    assert done.stdout == "141\n"
    assert (toy.folder / "errors").read_text() == ""


def test_full_output_loses_no_report(toy: Toy, suite: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    done = shell(toy, "$V run suite.yaml --trust-suite --junit j.xml > /dev/full")
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert (toy.folder / "j.xml").is_file()


@pytest.mark.parametrize("closed", ["2>&-", ">&-"])
def test_closed_output_is_ignored(toy: Toy, suite: Path, closed: str) -> None:
    done = shell(toy, f"$V run suite.yaml --trust-suite --run-id r {closed}")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert (toy.folder / "runs/r/summary.json").is_file()


def test_rejects_resume_of_another_suite(toy: Toy, suite: Path) -> None:
    assert toy("run", "suite.yaml", "--trust-suite", "--run-id", "r").exit_code == 0
    toy.write({"id": "else"}, name="other.yaml")
    (toy.folder / "other.yaml").write_text((toy.folder / "other.yaml").read_text().replace('"toy"', '"other"', 1))
    before = (toy.folder / "runs/r/results.jsonl").read_bytes()
    done = toy("run", "other.yaml", "--trust-suite", "--resume", "r")
    assert done.exit_code == 2
    assert "is a run of the suite 'toy', not of 'other'" in done.stderr
    assert (toy.folder / "runs/r/results.jsonl").read_bytes() == before
