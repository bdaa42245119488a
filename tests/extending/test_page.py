"""The examples of docs/how_to/write_a_grader.md run as the page says, and so does its unit test."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from toys import Toy

import visioneval as ve

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "how_to" / "write_a_grader.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "docs" / "examples" / "acme_circles"
COMMANDS = re.compile(r"^visioneval (.*)$", re.MULTILINE)


@pytest.fixture
def folder(toy: Toy) -> Path:
    """The files of the example, in the working directory."""
    shutil.copytree(EXAMPLE, toy.folder, dirs_exist_ok=True)
    sys.modules.pop("acme_circles", None)
    return toy.folder


def test_the_page_shows_the_files_of_the_example() -> None:
    files = "".join(path.read_text(encoding="utf-8") for path in EXAMPLE.iterdir() if path.is_file())
    blocks = re.findall(r"^```(?:python|yaml|toml)\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)
    shown = [part.strip() for block in blocks for part in block.split("\n\n\n")]
    assert len(shown) == 5
    assert [part for part in shown if part not in files] == []


def test_the_documented_examples_run(toy: Toy, folder: Path) -> None:
    commands = COMMANDS.findall(DOCS)
    assert [command.split()[0] for command in commands] == ["validate", "run", "show", "plugins"]
    for command in commands[:3]:
        result = toy(*command.split())
        assert result.exit_code == 0, result.output
    three, other = toy.records["three"], toy.records["any"]
    assert three.scores["count"] is True
    assert three.scores["count.counted"] == 3
    assert "count" not in other.scores
    assert (three.width, three.height) == (192, 64)
    fingerprint = three.graders[0].fingerprint
    assert (fingerprint.version, fingerprint.judge_model) == ("1", "fixed")


def test_the_page_shows_the_error_that_a_misspelt_option_gives(toy: Toy, folder: Path) -> None:
    suite = folder / "suite.yaml"
    suite.write_text(suite.read_text().replace("tolerance", "tolerence"))
    result = toy("validate", "suite.yaml", "--trust-suite")
    assert result.exit_code == 2
    assert result.stderr.strip() in DOCS


def test_the_documented_unit_test_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop("test_circles", None)
    import_module("test_circles").test_a_wrong_count_fails(folder)
    sys.modules.pop("test_circles")


def context_of(folder: Path, **more: Any) -> Any:
    Image.new("RGB", (8, 6)).save(folder / "image.png")
    return ve.grading_context(folder / "image.png", **more)


def test_a_context_for_tests_describes_the_image_and_the_case(tmp_path: Path) -> None:
    context = context_of(tmp_path, prompt="a tree", metadata={"count": 3}, variables={"brand": "Alder"})
    assert (context.generated.width, context.generated.height, context.generated.mime) == (8, 6, "image/png")
    assert (context.prompt, context.case.metadata, context.variables) == ("a tree", {"count": 3}, {"brand": "Alder"})
    assert context.save("map.png", b"") == "map.png"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (None, "this grader has no judge"),
        ({}, "no answer for 'n': add it to 'answers' of grading_context"),
        ({"n": "many"}, "the judge's answer does not match the schema: n: 'many' is not of the type integer"),
    ],
)
def test_a_context_for_tests_answers_only_what_was_given(
    tmp_path: Path, answers: dict[str, Any] | None, message: str
) -> None:
    context = context_of(tmp_path, answers=answers)
    with pytest.raises(ve.GraderError, match=message):
        asyncio.run(context.ask("How many?", {"n": {"type": "integer"}}))
