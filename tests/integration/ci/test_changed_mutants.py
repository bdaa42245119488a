"""``make mutants-changed`` on a small project: which mutations it lists, and with which tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.mutants.changed import main
from tests.mutants.entries import read_mutants

OLD = """\
def double(number):
    return number + number


def is_large(number):
    return number > 9
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two modules, one of which a file of tests names."""
    for name, text in {
        "visioneval/numbers.py": OLD,
        "visioneval/untested/new.py": OLD,
        "tests/unit/test_numbers.py": "from visioneval.numbers import double\n",
        "tests/unit/test_other.py": "",
        "tests/soak/test_numbers.py": "from visioneval.numbers import double\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "old"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_only_changed_lines_are_mutated(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("numbers", "untested/new"):
        path = project / "visioneval" / f"{name}.py"
        path.write_text(OLD.replace("number > 9", "number >= 10"))
    main("HEAD", "build/changed.yaml")
    mutants = read_mutants(folder=project / "build")
    assert {mutant.bug for mutant in mutants} == {
        f"visioneval/numbers.py:6 return number >= 10 -> return number {planted}"
        for planted in ("> 10", ">= 9", ">= 11")
    }
    for mutant in mutants:
        mutant.planted(project)
        assert mutant.tests == ("tests/unit/test_numbers.py",)
    out, err = capfd.readouterr()
    assert out == "3 bugs in 1 file\n"
    assert "no tests are known for visioneval/untested/new.py\n" in err


def test_without_a_change_there_is_nothing_to_plant(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main("HEAD", "build/changed.yaml")
    assert read_mutants(folder=project / "build") == []
    assert capfd.readouterr().out == "0 bugs in 0 files\n"
