"""Where built-in suites and prompts are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from visioneval import installation


@pytest.mark.parametrize(
    ("folders", "place"),
    [
        (["_builtin/suites"], "visioneval/_builtin/suites"),
        (["_builtin/suites", "../suites"], "visioneval/_builtin/suites"),
        (["../suites"], "suites"),
    ],
    ids=["wheel", "wheel beside another package's suites", "checkout"],
)
def test_suites_are_those_of_the_wheel_or_of_the_checkout(
    folders: list[str], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "visioneval"
    package.mkdir()
    for folder in folders:
        (package / folder / "first").mkdir(parents=True)
        (package / folder / "first" / "suite.yaml").touch()
    monkeypatch.setattr(installation, "__file__", str(package / "installation.py"))
    assert installation.builtin("suites") == tmp_path / place
    assert installation.suite_folders() == {"first": tmp_path / place / "first"}
