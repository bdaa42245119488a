"""The programs that tests fork are as separate as any process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from fork_server import ForkedProgram

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="forks")]

SPEAKS = (
    "import os, sys; print(os.getcwd(), sys.argv[1:], os.environ['MOOD']); print('ill', file=sys.stderr); sys.exit(7)"
)


def test_it_has_its_own_arguments_folder_environment_and_streams(tmp_path: Path) -> None:
    programs = [
        ForkedProgram(name, "é", cwd=tmp_path, environment={"MOOD": name}, code=SPEAKS, is_merged=name == "c")
        for name in "abc"
    ]
    ended = [(*program.communicate(timeout=60), program.returncode) for program in programs]
    said = [f"{tmp_path} ['{name}', 'é'] {name}\n" for name in "abc"]
    assert ended[:2] == [(said[0], "ill\n", 7), (said[1], "ill\n", 7)]
    assert sorted(ended[2][0].splitlines()) == sorted([said[2].strip(), "ill"])
    assert ended[2][1:] == ("", 7)
    assert "MOOD" not in os.environ


def test_it_can_be_killed() -> None:
    program = ForkedProgram(code="import time; print('here', flush=True); time.sleep(600)")
    assert program.stdout.readline() == "here\n"
    assert program.poll() is None
    program.kill()
    assert program.communicate(timeout=60) == ("", "")
    assert program.returncode == -signal.SIGKILL
    program.kill()
