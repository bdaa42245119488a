"""A corpus of suites, nearly all bad: each file in ``bad`` is a subject, with all lines that each suite is refused with.

An entry begins with ``=== what it is about``. Its files follow, each after ``--- NAME`` (``as JSON`` if its ends of lines
or its signs are unusual, ``as base64`` if it is no text), and after ``>>>`` the problems, or else the warnings. One that ends in ``...`` goes on
as Python or Pillow words it. To add an entry, write its files; ``UPDATE_GOLDEN=1`` writes its problems.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode
from pathlib import Path

import pytest
from suite_text import forget_modules, suite_problems

BAD = sorted((Path(__file__).parent / "bad").glob("*.txt"))
TRUST = " --trust-suite"


@pytest.mark.parametrize("corpus", BAD, ids=lambda path: path.stem)
def test_problems(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = corpus.read_text(encoding="utf-8")
    entries = re.split(r"^=== ", text, flags=re.MULTILINE)[1:]
    found = []
    for number, entry in enumerate(entries):
        head, _, expected = entry.rpartition(">>>\n")
        title, *parts = re.split(r"^--- ", head, flags=re.MULTILINE)
        files = dict(file_of(part) for part in parts)
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        with forget_modules():
            is_trusted = title.rstrip().endswith(TRUST)
            problems = suite_problems(files.pop("suite.yaml"), files, with_warnings=True, trust=is_trusted)
        lines = [worded(*pair) for pair in zip(problems, [*expected.splitlines(), *problems], strict=False)]
        found.append("=== " + head + ">>>\n" + "".join(f"{line}\n" for line in lines))
    result = "\n".join(found)
    if os.environ.get("UPDATE_GOLDEN"):
        corpus.write_text(result, encoding="utf-8")
    assert len({entry.partition("\n")[0] for entry in entries}) == len(entries), "two entries have one title"
    assert result == text


def file_of(part: str) -> tuple[str, str | bytes]:
    """Name and content of a file of an entry."""
    title, _, content = part.partition("\n")
    name, _, form = title.partition(" as ")
    return name, json.loads(content) if form == "JSON" else b64decode(content) if form == "base64" else content


def worded(found: str, expected: str) -> str:
    """A problem as the corpus has it."""
    return expected if expected.endswith("...") and found.startswith(expected.removesuffix("...")) else found


def test_each_file_has_entries() -> None:
    assert len(BAD) > 10
    assert all(path.read_text(encoding="utf-8").startswith("=== ") for path in BAD)
