"""The machine of all jobs, and the projects whose workflows are executed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from github_jobs import SELF
from machine import ROOT, Machine, git, new_machine


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return new_machine(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def new_project(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``new_project("github")``: a repository with a suite, its cache and a baseline, as the how-tos set it up."""

    def make(ci: str) -> Path:
        project = tmp_path_factory.mktemp(ci)
        git(project, "init", "--quiet", "--initial-branch=main")
        machine.visioneval(project, "init", "--template", "editing", "--ci", ci)
        suite = project / "suite.yaml"
        suite.write_text(suite.read_text().replace("tags: [word]", "tags: [word, must_pass]", 1))
        machine.visioneval(project, "run", "suite.yaml", "--cache", "visioneval-cache")
        machine.visioneval(project, "baseline", "set", "latest", "--name", "suite")
        for workflow in (project / ".github" / "workflows").glob("*.yml"):
            text = workflow.read_text(encoding="utf-8")
            workflow.write_text(text.replace("OWNER/visioneval@v0", f"{SELF}@{machine.commit}"), encoding="utf-8")
        git(project, "add", "--all")
        git(project, "commit", "--quiet", "--message", "A suite")
        return project

    return make


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[Path], Path]:
    """``changed(project)``: a copy of it with a commit that breaks the case tagged ``must_pass``."""

    def change(project: Path) -> Path:
        copy = tmp_path / "changed"
        git(tmp_path, "clone", "--quiet", str(project), str(copy))
        suite = copy / "suite.yaml"
        suite.write_text(suite.read_text().replace("required: [RYE]", "required: [WHEAT]", 1))
        git(copy, "commit", "--quiet", "--all", "--message", "Another word")
        return copy

    return change
