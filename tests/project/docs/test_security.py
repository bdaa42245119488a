"""SECURITY.md: every promise names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROMISES = [
    line
    for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "cannot" not in line
]


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_names_its_test(promise: str) -> None:
    match = re.search(r"`(tests/[\w/.]+\.py)(?:::(\w+))?` \|$", promise)
    assert match is not None
    text = (ROOT / match[1]).read_text(encoding="utf-8")
    assert f"def {match[2] or 'test_'}" in text


def test_there_are_promises() -> None:
    assert len(PROMISES) > 20
