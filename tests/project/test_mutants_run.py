"""``make mutants`` on a small project: what counts as killed, and what does not."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import run_mutants
from tests.mutants.copies import Copy
from tests.mutants.entries import FOLDER, Mutant
from tests.mutants.results import last_line, table

pytestmark = pytest.mark.slow

CODE = """\
def double(number):
    return number * 2
"""
TESTS = """\
from visioneval.numbers import double


def test_two():
    assert double(2) == 4


def test_three():
    assert double(3) > 4


def test_broken():
    raise AssertionError
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with a package of the same name as the one that is installed."""
    root = tmp_path / "project"
    for name, text in {
        "visioneval/__init__.py": "",
        "visioneval/numbers.py": CODE,
        "tests/test_numbers.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copytree(FOLDER, root / "tests" / "mutants", ignore=shutil.ignore_patterns("__pycache__", "*.yaml"))
    subprocess.run(["git", "init", "--quiet", root], check=True)
    return root


def bug(find: str, replace: str, *names: str) -> Mutant:
    tests = tuple(f"tests/test_numbers.py::{name}" for name in names)
    return Mutant("numbers:1", f"{find} is {replace}", "visioneval/numbers.py", find, replace, tests)


def test_only_a_test_that_fails_kills(project: Path) -> None:
    mutants = [
        bug("number * 2", "number * 3", "test_three", "test_two"),
        bug("number * 2", "number + 2", "test_three", "test_two"),  # as long as the bug before
        bug("number * 2", "numbers * 2", "test_three", "test_two"),
        bug("triple", "double", "test_three", "test_two"),
    ]
    lines: list[str] = []
    results = run_mutants(project, mutants, 1, lines.append)
    assert [(result.status, result.detail) for result in results] == [
        ("killed", "by tests/test_numbers.py::test_two"),
        ("survived", "all tests passed"),
        ("error", "the program does not even start: NameError: name 'numbers' is not defined"),
        ("error", "visioneval/numbers.py: the text to find occurs 0 times, not once"),
    ]
    assert lines == [*map(str, results)]
    assert table(results).splitlines() == [
        "package     killed  survived  error",
        "numbers.py       1         1      2",
        "",
        "4 planted, 1 killed, 1 survived, 2 invalid",
    ]
    assert (project / "visioneval" / "numbers.py").read_text() == CODE


def test_tests_that_fail_without_a_bug_are_an_error_of_their_bugs_alone(project: Path) -> None:
    shutil.copyfile(project / "tests" / "test_numbers.py", project / "tests" / "test_more.py")
    mutants = [
        replace(bug("number * 2", "number * 3"), tests=(f"tests/{test}",))
        for test in ("test_numbers.py::test_broken", "test_more.py::test_two")
    ]
    lines: list[str] = []
    broken, found = run_mutants(project, mutants, 1, lines.append)
    problem = "fails without any bug: by tests/test_numbers.py::test_broken"
    assert (broken.status, broken.detail) == ("error", problem)
    assert (found.status, found.detail) == ("killed", "by tests/test_more.py::test_two")
    assert lines == [str(broken), str(found)]


def test_what_is_raised_after_the_last_test_is_shown(project: Path, tmp_path: Path) -> None:
    hook = "def pytest_unconfigure():\n    raise ResourceWarning('a socket is open')\n"
    (project / "conftest.py").write_text(hook)
    with Copy(project, tmp_path / "copy") as copy:
        run = copy.run(["tests/test_numbers.py::test_two"], timeout_s=60)
    assert run.code == 3
    assert "1 passed" in run.output
    assert last_line(run.output) == "ResourceWarning: a socket is open"


def test_a_run_that_takes_too_long_is_killed(project: Path, tmp_path: Path) -> None:
    with Copy(project, tmp_path / "copy") as copy:
        assert copy.run(["tests"], timeout_s=0.01).code is None
