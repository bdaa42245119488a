"""Everything that is shipped or printed as an example is read by PyYAML without libyaml too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from visioneval import SuiteError
from visioneval.suite.loading import document

ROOT = Path(__file__).parents[2]
SUITES = sorted((ROOT / "suites").glob("*/suite.yaml"))
DOCUMENTS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "suites").rglob("*.md")])
BLOCKS = [
    (path.name, text)
    for path in DOCUMENTS
    for text in re.findall(r"^```ya?ml\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
]
WITHOUT_LIBYAML = "import yaml; del yaml.CSafeLoader; from visioneval.cli import main; main()"


@pytest.mark.slow
def test_every_shipped_suite_is_valid() -> None:
    assert len(SUITES) > 10
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBYAML, "validate", *map(str, SUITES)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    (missing,) = done.stderr.splitlines()  # its videos are the user's own
    assert "gecko_videos/suite.yaml:" in missing
    assert "outputs that do not exist: videos/kettle.mp4" in missing
    assert (done.returncode, done.stdout.count(": valid: ")) == (2, len(SUITES) - 1)


@pytest.mark.parametrize(("name", "text"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_every_example_loads_the_same_without_libyaml(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = document.read_yaml(text, name)
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    assert document.read_yaml(text, name) == known


@pytest.mark.parametrize("text", ["a: {b: c?, d}", "a: [{b: 1, ]", "a: {b: 1"])
def test_a_problem_with_braces_is_one_line_without_libyaml(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    with pytest.raises(SuiteError, match=r"^suite.yaml:1:\d+: invalid YAML: expected .*$"):
        document.read_yaml(text, "suite.yaml")


def test_there_are_examples() -> None:
    assert len(BLOCKS) > 50
