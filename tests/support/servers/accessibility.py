"""axe-core in a page: which rules of accessibility it breaks, light and dark, wide and narrow.

It is installed for development only, by ``npm ci --prefix tests/support/axe``, as ``make test`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Path(__file__).parents[1] / "axe" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = (1280, 390)
_RUN = """(rules) => axe.run({resultTypes: ["violations"], preload: false, ...(rules && {runOnly: rules})}).then((result) => result.violations.flatMap((broken) => broken.nodes.map(
  (node) => `${broken.id}: ${node.target.join(" ")}: ${[...node.any, ...node.all, ...node.none].map((check) => check.message).join("; ")}`)))"""


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core; the test is skipped where it is not installed."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed (npm ci --prefix tests/support/axe)")
    return AXE.read_text(encoding="utf-8")


def violations(page: Page, axe: str, widths: Sequence[int] = WIDTHS) -> Iterator[str]:
    """Every broken rule of what the page shows now, in each color scheme and width. The page keeps the last of them.

    A run of axe-core takes 0.1 s of CPU, or 0.2 s.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe)
    for width in widths:
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_timeout(150)  # the pages lay out again, some of them after a pause
        for scheme, rules in (("light", None), ("dark", ["color-contrast"])):  # no other rule reads colors
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            yield from (f"{scheme}, {width}: {text}" for text in page.evaluate(_RUN, rules))
