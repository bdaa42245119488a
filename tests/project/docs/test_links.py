"""Every link between pages leads to a file and a heading that exist, and pages stay short."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from test_docs_defaults import ROOT, reference

PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "suites/**/*.md", "prompts/**/*.md", "examples/**/*.md", ".github/**/*.md")
    for page in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")
MAX_WORDS = 1800


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles)
    return frozenset(re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts)


def broken(page: Path, text: str) -> list[str]:
    """The links of a page's text that lead nowhere."""

    def leads(link: str) -> bool:
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        return target.exists() and (not heading or (target.suffix == ".md" and heading in headings(target)))

    return [link for link in LINK.findall(BLOCK.sub("", text)) if not leads(link)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("docs/tutorial.md", False),
        ("docs/nothing.md", True),
        ("docs/reference/suite/limits.md#bounds", False),
        ("docs/reference/suite/limits.md#nothing", True),
        ("https://example.com/nothing#at-all", False),
    ],
)
def test_the_check_of_links_can_fail(link: str, *, is_broken: bool) -> None:
    assert bool(broken(ROOT / "README.md", f"See [this]({link}).")) is is_broken


def words(page: Path) -> int:
    """The words of a page without what is made from the code, as ``wc -w`` counts them."""
    return len(reference().BLOCK.sub("", page.read_text(encoding="utf-8")).split())


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=name_of)
def test_a_page_is_short(page: Path) -> None:
    assert words(page) <= MAX_WORDS
