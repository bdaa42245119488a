"""The documentation names every key, field, option and command, and none that does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from visioneval.cli import app
from visioneval.expressions import FUNCTIONS
from visioneval.plugins import GRADERS, PROVIDERS
from visioneval.rules import COUNTING, MEASURING
from visioneval.suite.loading.tables import SUFFIXES
from visioneval.suite.metrics import BUILT_IN

ROOT = Path(__file__).parents[3]


def rows_of(document: str, title: str) -> dict[str, str]:
    """The rows of the tables under a heading, by their first column."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    body = re.split(r"^#+ ", text.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `([^`]+)` \|(.*)$", body, flags=re.MULTILINE))


def _section(document: str, title: str) -> set[str]:
    """The first column of the tables under a heading."""
    return set(rows_of(document, title))


def test_the_tables_of_functions_and_built_in_metrics_are_complete() -> None:
    page = "reference/suite/rules.md"
    assert sorted(form.partition("(")[0] for form in _section(page, "Expressions")) == sorted(FUNCTIONS)
    assert _section(page, "Built-in metrics") == set(BUILT_IN)
    in_gates = {form.partition("(")[0] for form in rows_of(page, "Gates")}
    assert in_gates >= {*COUNTING, *(name for name in MEASURING if not name[1:].isdigit()), "p1"}


def test_the_table_of_formats_of_datasets_is_complete() -> None:
    forms = "".join(_section("reference/suite/datasets.md", "Formats"))
    assert [suffix for suffix in SUFFIXES if suffix not in forms] == []


def test_every_grader_and_every_provider_has_a_page() -> None:
    for name in GRADERS:
        assert (ROOT / f"docs/reference/graders/{name}.md").is_file()
    for name in PROVIDERS:
        assert (ROOT / f"docs/reference/providers/{name}.md").is_file()


def test_the_readme_leads_to_every_command() -> None:
    path = "docs/reference/commands.md"
    assert f"({path})" in (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / path).read_text(encoding="utf-8")
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]
        assert f"visioneval {name}" in page, name


def test_the_readme_leads_to_the_pages_that_teach_and_explain() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page for folder in ("how_to", "explanation") for page in (ROOT / "docs" / folder).glob("*.md")]
    assert [page.name for page in pages if f"({page.relative_to(ROOT)})" not in readme] == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f": {page}\n" not in navigation] == []


HOW_TOS = sorted((ROOT / "docs" / "how_to").glob("*.md"))


@pytest.mark.parametrize("page", HOW_TOS, ids=lambda page: page.stem)
def test_a_how_to_answers_the_question_that_is_its_title_in_the_site(page: Path) -> None:
    title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    assert title.endswith("?")
    navigation = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    assert f"- {title}: how_to/{page.name}\n" in navigation


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_commands_are_in_blocks(page: Path) -> None:
    """A line of a command that is not in a block is text, and runs into the next line."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^(?:\$ )?(?:visioneval|pip|python|ray) [a-z-]+ .*(?:  #|\n    ).*", prose, re.MULTILINE) == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_suite_on_a_page_does_not_scroll(page: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 100] == []
