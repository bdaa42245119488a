"""The pages on GitHub's jobs: the inputs and outputs of ``action.yml`` are all there, and examples use only these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "reference" / "action.md").read_text(encoding="utf-8")
BLOCKS = [
    (page.name, block)
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for block in re.findall(
        r"^```yaml\n(.*?)^```|^((?:    [^\n]*\n)+)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if "uses: OWNER/visioneval" in "".join(block)
]


def test_the_table_of_inputs_is_that_of_the_action() -> None:
    rows = [
        (
            name,
            "required" if entry.get("required") else entry["default"] and f"`{entry['default']}`",
            entry["description"],
        )
        for name, entry in ACTION["inputs"].items()
    ]
    written = re.findall(r"^\| `([\w-]+)` \| (.*?) ?\| (.*) \|$", PAGE.partition("## Outputs")[0], re.MULTILINE)
    assert written == rows


def test_the_table_of_outputs_is_that_of_the_action() -> None:
    rows = [(name, entry["description"]) for name, entry in ACTION["outputs"].items()]
    assert re.findall(r"^\| `([\w-]+)` \| (.*) \|$", PAGE.partition("## Outputs")[2], re.MULTILINE) == rows


def uses(value: Any) -> Iterator[dict[str, Any]]:
    """The inputs of each use of the action in a document."""
    if isinstance(value, dict) and str(value.get("uses", "")).startswith("OWNER/visioneval@"):
        yield value.get("with", {})
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from uses(inner)


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=lambda value: value if isinstance(value, str) else "")
def test_examples_use_inputs_that_exist(page: str, block: tuple[str, str]) -> None:
    given = list(uses(yaml.safe_load("".join(block))))
    assert given, page
    assert all("suites" in inputs and inputs.keys() <= ACTION["inputs"].keys() for inputs in given)


def test_pages_have_examples() -> None:
    assert [page for page, _ in BLOCKS] == ["nightly.md", "action.md"]
