"""A metric that is one word of a list, on the report's page: cells are filtered by word and sorted by the choices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import CliRunner

from visioneval.cli import app

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage
    from playwright.sync_api import Page

STYLE = {"type": "one_of", "choices": ["sketch", "flat", "photo"], "description": "The style."}
ANSWERS = {"home": "flat", "user": "photo", "cart": "sketch", "gear": "flat"}
SUITE = {
    "name": "icons",
    "judges": {"default": {"provider": "recorded", "path": "answers.csv"}},
    "cases": [{"id": name, "prompt": f"an icon: {name}"} for name in ANSWERS],
    "models": [{"provider": "mock", "label": "m"}],
    "graders": [{"key": "look", "type": "rubric", "metrics": {"style": STYLE}}],
    "verdict": ['style != "photo"'],
    "gates": ["pass_rate >= 0.5"],
}


def shown(page: Page) -> list[str]:
    page.wait_for_selector("#canvas a.cell")
    names: list[str] = page.evaluate(
        "[...document.querySelectorAll('#canvas a.cell')].map((cell) => cell.href.match(/case=(\\w+)/)[1])"
    )
    return names


def test_cells_are_filtered_and_sorted_by_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_page: OpenPage
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("suite.yaml").write_text(yaml.safe_dump(SUITE))
    rows = [f"{case},style,{word}" for case, word in ANSWERS.items()]
    Path("answers.csv").write_text("\n".join(["case,question,answer", *rows, ""]))
    for command in ("run suite.yaml --run-id a", "report a"):
        assert CliRunner().invoke(app, command.split()).exit_code == 0
    url = (tmp_path / "runs/a/report/index.html").as_uri()
    assert shown(open_page(f"{url}#gallery?metric=style%3A%20flat")) == ["home", "gear"]
    assert shown(open_page(f"{url}#gallery?metric=style")) == list(ANSWERS)
    page = open_page(f"{url}#gallery?sort=metric%3Astyle")
    assert shown(page) == ["cart", "home", "gear", "user"], "in the order of the choices"
    page.select_option("select[name=metric]", "style: photo")
    page.wait_for_function("document.querySelectorAll('#canvas a.cell').length === 1")
    assert shown(page) == ["user"]
    cell = open_page(f"{url}#cell?case=user&at=m&sample=0")
    cell.wait_for_selector("table.scores")
    assert "photo" in cell.inner_text("table.scores")
    assert (
        open_page(url).locator("a", has_text="style: flat").first.get_attribute("href")
        == "#gallery?metric=style%3A+flat"
    )
