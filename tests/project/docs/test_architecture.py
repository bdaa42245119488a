"""Checks that every path and make target in the developer documentation exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = ("docs/architecture.md", "CONTRIBUTING.md")
POSIX = re.compile(r"import (?:fcntl|resource|pwd|grp|termios|ctypes)\b|\bkillpg\(|add_signal_handler\(|\bos\.fork\b")
"""What Python has on POSIX only, or what only makes sense there."""
PATHS = re.compile(r"`((?:visioneval|docs|tests|suites|prompts)/[\w./-]*)`|\]\(([\w./-]+)\)")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_exists(name: str) -> None:
    folder = (ROOT / name).parent
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = [ROOT / match[1] if match[1] else folder / match[2] for match in PATHS.finditer(text)]
    assert paths
    assert [path for path in paths if not path.exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_target_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:^    |`)make ([\w-]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


def test_the_page_is_short() -> None:
    assert len((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split()) <= 1200


def test_the_section_about_windows_names_all_that_needs_posix() -> None:
    section = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Windows")[2].partition("\n## ")[0]
    )
    named = {match[1] for match in PATHS.finditer(section)}
    sources = (ROOT / "visioneval").rglob("*.py")
    assert named == {
        path.relative_to(ROOT).as_posix() for path in sources if POSIX.search(path.read_text(encoding="utf-8"))
    }
