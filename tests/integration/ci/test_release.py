"""What is released: the wheel and the sdist pass twine, hold what they should, and run where no extra is installed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from machine import ROOT

JUNK = ("__pycache__", "node_modules", "runs", ".venv", ".integration", ".mypy_cache", ".hypothesis", "build", "dist")


def succeed(*command: str | Path) -> str:
    """What a command prints. Raises ``AssertionError`` if it fails."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bare(released: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    succeed(sys.executable, "-m", "venv", folder)
    succeed(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", released[1])
    return folder


def test_both_are_what_the_index_accepts(released: tuple[Path, Path]) -> None:
    printed = succeed(sys.executable, "-m", "twine", "check", "--strict", *released)
    assert printed.count("PASSED") == 2


def test_the_sdist_has_the_sources_and_no_junk(released: tuple[Path, Path]) -> None:
    with tarfile.open(released[0]) as archive:
        paths = [Path(*Path(name).parts[1:]) for name in archive.getnames()]
    assert not [path for path in paths if set(path.parts) & set(JUNK) or path.suffix in (".pyc", ".so")]
    tops = {path.parts[0] for path in paths}
    assert tops >= {
        "visioneval",
        "prompts",
        "suites",
        "tests",
        "docs",
        "pyproject.toml",
        "Makefile",
        "LICENSE",
        "README.md",
    }
    assert Path("tests/conftest.py") in paths
    shipped = {path.relative_to(ROOT) for path in ROOT.glob("suites/*/suite.yaml")}
    assert shipped
    assert shipped <= set(paths)


def test_a_bare_install_runs_what_needs_no_extra(bare: Path, tmp_path: Path) -> None:
    visioneval = bare / "bin" / "visioneval"
    succeed(visioneval, "init", tmp_path / "first")
    options = ("--model", "*none", "--grader", "place", "--grader", "file", "--runs", tmp_path / "runs")
    assert "3 PASS" in succeed(visioneval, "run", tmp_path / "first" / "suite.yaml", *options)


def test_a_bare_install_says_in_one_line_what_the_quickstart_needs(
    bare: Path, released: tuple[Path, Path], tmp_path: Path
) -> None:
    visioneval = bare / "bin" / "visioneval"
    succeed(visioneval, "init", tmp_path / "first")
    command = [
        str(visioneval),
        "run",
        str(tmp_path / "first" / "suite.yaml"),
        "--model",
        "*none",
        "--runs",
        str(tmp_path),
    ]
    done = subprocess.run(command, env={"COLUMNS": "200"}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stderr  # before any generation is paid for
    address = released[1].as_uri()
    assert f"reading text needs RapidOCR: run pip install 'visioneval[ocr] @ {address}'\n" in done.stderr
    assert "Traceback" not in done.stderr
