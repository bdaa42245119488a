"""What the targets of the Makefile would run, by ``make -n``: the demo installs little, and nothing is installed twice."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from visioneval.cli import app

ROOT = Path(__file__).parents[2]
LIGHT, WHOLE = '--editable ".[ocr]"', "--group dev"


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., str]:
    """``plan(target, *stamps)``: the commands of a target in a checkout whose environment has these stamps."""
    if shutil.which("make") is None:
        pytest.skip("there is no make on this machine")

    def commands(target: str, *stamps: str) -> str:
        for name in ("Makefile", "pyproject.toml"):
            shutil.copyfile(ROOT / name, tmp_path / name)
        (tmp_path / ".venv").mkdir()
        for stamp in stamps:
            (tmp_path / ".venv" / stamp).touch()
        done = subprocess.run(
            ["make", "--no-print-directory", "-n", target], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return commands


def test_the_demo_installs_only_what_it_uses(plan: Callable[..., str]) -> None:
    commands = plan("demo")
    assert LIGHT in commands
    assert WHOLE not in commands


@pytest.mark.parametrize("stamps", [(".demo",), (".demo", ".ready")])
def test_a_demo_in_an_environment_installs_nothing(plan: Callable[..., str], stamps: tuple[str, ...]) -> None:
    commands = plan("demo", *stamps)
    assert "pip" not in commands
    assert "visioneval run suites/quickstart/suite.yaml" in commands


def test_tests_after_a_demo_install_the_rest(plan: Callable[..., str]) -> None:
    commands = plan("quick", ".demo")
    assert WHOLE in commands
    assert LIGHT not in commands


def test_the_environment_of_tests_is_also_that_of_the_demo(plan: Callable[..., str]) -> None:
    assert "touch .venv/.demo .venv/.ready" in plan("quick")


@pytest.mark.slow
@pytest.mark.usefixtures("reduced_readings", "session_measures")
def test_what_the_demo_says_at_its_end_is_so(
    plan: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = plan("demo", ".demo").splitlines()
    suites = [line.split()[-1] for line in lines if " run " in line]
    assert len(suites) == 2
    failed = []
    for suite in suites:
        result = CliRunner().invoke(app, ["run", str(ROOT / suite), "--runs", "demo-runs"])
        assert result.exit_code == 0, result.output
        match = re.search(r"All gates passed: (\d+) failed, as the gates expect", result.output)
        assert match is not None
        failed.append(match[1])
    assert f"{failed[0]} and {failed[1]} cells had to fail" in lines[-3]
    for line in lines[-2:]:
        words = line.rstrip('"').partition(".venv/bin/visioneval ")[2].removesuffix(" --open").split()
        result = CliRunner().invoke(app, [*words, "--runs", "demo-runs"])
        assert result.exit_code == 0, result.output
