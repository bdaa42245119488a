"""The folder of a suite in place of its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toys import Toy

import visioneval as ve


@pytest.fixture
def demo(toy: Toy) -> Path:
    """A folder with a suite, and the files that it names, below the working directory."""
    (toy.folder / "demo").mkdir()
    (toy.folder / "mine.py").rename(toy.folder / "demo" / "mine.py")
    toy.write({"id": "a"}, name="demo/suite.yaml")
    return Path("demo")


def test_a_folder_stands_for_its_suite(toy: Toy, demo: Path) -> None:
    assert toy("validate", demo, "--trust-suite").stdout.startswith("demo/suite.yaml: valid: 1 case,")
    assert toy("plan", demo, "--trust-suite").stdout == toy("plan", demo / "suite.yaml", "--trust-suite").stdout
    result = toy("run", demo, "--trust-suite", "--run-id", "r")
    assert result.exit_code == 0, result.output
    assert Path(toy.info.suite_path).name == "suite.yaml"
    assert toy("run", demo, "--resume", "r", "--trust-suite").exit_code == 0
    assert toy("grade", "r", "--suite", demo, "--trust-suite").exit_code == 0
    assert ve.validate("demo", trust_suite=True).path == "demo/suite.yaml"


def test_problems_name_the_file(toy: Toy, demo: Path) -> None:
    (demo / "suite.yaml").write_text(json.dumps({"name": "x", "casse": []}))
    assert toy("validate", demo).stderr.startswith("demo/suite.yaml:1:")
    assert "demo/suite.yaml" in toy("validate", demo, "--format", "json").stdout


def test_a_folder_without_a_suite(toy: Toy) -> None:
    (toy.folder / "empty").mkdir()
    for command in ("run", "validate", "plan"):
        result = toy(command, "empty")
        assert (result.exit_code, result.stderr) == (2, "empty/suite.yaml: no such file or directory\n")


def test_a_folder_named_like_a_file_is_no_suite_of_cases(toy: Toy) -> None:
    """Only a suite may be named by its folder."""
    (toy.folder / "cases").mkdir()
    (toy.folder / "cases" / "suite.yaml").write_text("[]")
    path = toy.write({})
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "cases": [{"file": "cases"}]}))
    assert "is a folder: name a file in it" in toy("validate", path).stderr
