"""The hook of this repository, as pre-commit installs and runs it in a project with suites."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from machine import ADDRESS, Machine, git

SUITE = """\
name: shop
cases:
  - {id: one, prompt: a tree}
models:
  - {provider: mock}
graders:
  - {key: file, type: properties}
verdict: [file]
"""


@pytest.fixture
def project(machine: Machine, tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    hooks = "hooks: [{id: visioneval-validate}]"
    config = f"repos:\n  - repo: {ADDRESS}\n    rev: {machine.commit}\n    {hooks}\n"
    (tmp_path / ".pre-commit-config.yaml").write_text(config)
    return tmp_path


def run_hook(machine: Machine, project: Path) -> tuple[int, str]:
    git(project, "add", "--all")
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"]
    done = subprocess.run(
        command, cwd=project, env=machine.environment, capture_output=True, text=True, timeout=900, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_only_suites_are_checked(machine: Machine, project: Path) -> None:
    (project / "cases.yaml").write_text("- {id: two}\n")
    code, printed = run_hook(machine, project)
    assert (code, "(no files to check)Skipped" in printed) == (0, True), printed
    for path in (project / "suite.yaml", project / "evals" / "logos" / "suite.yml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SUITE)
    code, printed = run_hook(machine, project)
    assert (code, printed.rstrip().endswith("Passed")) == (0, True), printed


def test_an_invalid_suite_is_refused_with_its_line(machine: Machine, project: Path) -> None:
    (project / "suite.yaml").write_text(SUITE)
    (project / "evals").mkdir()
    (project / "evals" / "suite.yaml").write_text(SUITE.replace("prompt", "promt"))
    code, printed = run_hook(machine, project)
    assert code == 1
    assert "evals/suite.yaml:3:15: " in printed, printed
    assert "'promt'" in printed
