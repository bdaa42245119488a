"""The commands of the README and of the tutorial run as they stand, in the order of the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from visioneval.cli import app

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(r"^(?:[^\n]*`([\w./-]+\.(?:yaml|csv|py))`:\n\n)?```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_page(page: Path, folder: Path) -> list[tuple[str, int]]:
    """Writes the files that a page names before a block, runs its ``$ visioneval`` lines, and returns their exit codes.

    A line that ends in ``# exits N`` must exit with N; every other line with 0.
    """
    ran = []
    for name, language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        for line in text.splitlines() if language == "console" else ():
            command, _, comment = line.partition(" # ")
            if not command.startswith("$ "):
                continue
            arguments = shlex.split(command.removeprefix("$ "))
            assert arguments[0] == "visioneval", line
            result = CliRunner().invoke(app, arguments[1:])
            expected = int(match[1]) if (match := re.search(r"exits (\d+)", comment)) else 0
            assert result.exit_code == expected, f"{line}\n{result.output}"
            ran.append((arguments[1], result.exit_code))
    return ran


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded_readings: None) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [command for command, _ in run_page(ROOT / "README.md", tmp_path)]
    assert commands[:3] == ["init", "run", "validate"]
    assert {"show", "report", "export", "compare", "baseline"} <= set(commands)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded_readings: None) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_page(ROOT / "docs" / "tutorial.md", tmp_path)
    assert ("compare", 1) in ran
    assert {"init", "plan", "label", "agreement", "baseline", "report"} <= {command for command, _ in ran}
