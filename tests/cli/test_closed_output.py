"""Closed, full or broken output streams do not change results or exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import COMMAND, ForkedProgram
from toys import Toy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="uses a shell")]
RUN = ("run", "suite.yaml", "--trust-suite", "--run-id", "r", "--junit", "j.xml")


def test_closed_pipe_changes_neither_exit_code_nor_report(toy: Toy) -> None:
    toy.write({})
    program = ForkedProgram(*RUN, cwd=toy.folder)
    program.stdout.close()
    with Path(os.devnull).open(encoding="utf-8") as program.stdout:
        _, errors = program.communicate(timeout=120)
    assert (program.returncode, "Traceback" in errors) == (0, False), errors
    assert (toy.folder / "j.xml").is_file()


def test_other_commands_exit_as_shells_expect(toy: Toy) -> None:
    paths = os.pathsep.join(filter(None, sys.path))
    line = f"{sys.executable} -m visioneval schema 2>errors | true; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(["bash", "-c", line], cwd=toy.folder, env=environment, capture_output=True, check=False)
    assert (done.stdout, (toy.folder / "errors").read_text()) == (b"141\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_output_loses_no_report(toy: Toy) -> None:
    toy.write({})
    code = f"import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); {COMMAND}"
    program = ForkedProgram(*RUN, cwd=toy.folder, code=code)
    _, errors = program.communicate(timeout=120)
    assert (program.returncode, "No space left" in errors) == (3, True), errors
    assert (toy.folder / "j.xml").is_file()


@pytest.mark.parametrize(("number", "name"), [(1, "stdout"), (2, "stderr")])
def test_closed_output_is_ignored(toy: Toy, number: int, name: str) -> None:
    """As an interpreter has it that was started with a closed stream."""
    toy.write({})
    program = ForkedProgram(
        *RUN, cwd=toy.folder, code=f"import os, sys; os.close({number}); sys.{name} = None; {COMMAND}"
    )
    texts = program.communicate(timeout=120)
    assert (program.returncode, "Traceback" in "".join(texts)) == (0, False), texts
    assert (toy.folder / "runs/r/summary.json").is_file()


def test_rejects_resume_of_another_suite(toy: Toy) -> None:
    toy.write({})
    assert toy("run", "suite.yaml", "--trust-suite", "--run-id", "r").exit_code == 0
    toy.write({"id": "else"}, name="other.yaml")
    (toy.folder / "other.yaml").write_text((toy.folder / "other.yaml").read_text().replace('"toy"', '"other"', 1))
    before = (toy.folder / "runs/r/results.jsonl").read_bytes()
    done = toy("run", "other.yaml", "--trust-suite", "--resume", "r")
    assert (done.exit_code, "is a run of the suite 'toy', not of 'other'" in done.stderr) == (2, True), done.output
    assert (toy.folder / "runs/r/results.jsonl").read_bytes() == before
