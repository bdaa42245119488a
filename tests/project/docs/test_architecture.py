"""Checks that every path and make target in the developer documentation exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = ("docs/architecture.md", "CONTRIBUTING.md")
PATHS = re.compile(r"`((?:visioneval|docs|tests|suites|prompts)/[\w./-]*)`|\]\(([\w./-]+)\)")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_path_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = [match[1] or match[2] for match in PATHS.finditer(text)]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_target_exists(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"(?:^    |`)make ([\w-]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
