"""How a report is looked at in a browser: zoom, what the address keeps, order, columns, and samples side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import wait_until
from report_runs import demo, report

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage
    from playwright.sync_api import Page

CELL = "#cell?case=sign&at=hasty%2Cquality%3Dlow&sample=0"
SCALES = "[...document.querySelectorAll('.frame .pane > *')].map((one) => new DOMMatrix(getComputedStyle(one).transform)).map((one) => [one.a, one.e <= 0])"


def shown_cells(page: Page) -> int:
    page.wait_for_selector("#canvas a.cell")
    return page.locator("#canvas a.cell").count()


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report(demo(tmp_path_factory.mktemp("report"))).as_uri()


def test_zoom_is_shared_by_all_images_and_kept_in_the_address(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url + CELL)
    page.wait_for_selector(".cell-body")
    page.keyboard.press("3")
    page.keyboard.press("+")
    assert page.evaluate(SCALES) == [[1.5, True], [1.5, True]]
    page.keyboard.press("0")
    box = page.locator(".frame .pane").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 5)
    page.mouse.wheel(0, -400)
    wait_until(page, f"{SCALES}.every(([scale, moved]) => scale > 2 && scale < 2.4 && moved)")
    page.mouse.dblclick(box["x"] + 5, box["y"] + 5)
    assert page.evaluate(SCALES) == [[1, True], [1, True]]
    page.mouse.dblclick(box["x"] + 5, box["y"] + 5)
    assert page.evaluate(SCALES) == [[2.5, True], [2.5, True]]
    page.keyboard.press("2")
    assert page.evaluate(SCALES) == [[2.5, True]]
    page.fill(".divide", "20")
    wait_until(page, "location.hash.includes('divide=20')")
    second = open_page(page.url)
    second.wait_for_selector(".divide")
    assert second.inner_text(".mode[aria-pressed=true]") == "Slider"
    assert second.input_value(".divide") == "20"
    assert second.evaluate(SCALES) == [[2.5, True]]
    assert second.inner_text(".percent").endswith(" %")
    second.keyboard.press("j")
    wait_until(second, "document.querySelector('.cell-head h1').textContent === 'flyer'")
    assert "zoom=" not in second.url


def test_sorting_and_columns(page_url: str, open_page: OpenPage) -> None:
    page = open_page(f"{page_url}#gallery?layout=list")
    assert shown_cells(page) == 4
    cells = "[...document.querySelectorAll('#canvas .row')].map((row) => row.querySelector('strong').textContent + ' ' + row.querySelector('.badge').textContent)"
    assert page.evaluate(cells) == ["sign PASS", "sign FAIL", "flyer PASS", "flyer FAIL"]
    page.select_option("select[name=sort]", "verdict")
    assert page.evaluate(cells) == ["sign FAIL", "flyer FAIL", "sign PASS", "flyer PASS"]
    page.select_option("select[name=sort]", "metric:look.score")
    assert page.evaluate(cells) == ["sign FAIL", "flyer FAIL", "sign PASS", "flyer PASS"]
    page.select_option("select[name=sort]", "case")
    assert page.evaluate(cells) == ["flyer PASS", "flyer FAIL", "sign PASS", "sign FAIL"]
    page.click("summary >> text=Columns")
    page.check("input[value='look.score']")
    page.check("input[value='look.cer']")
    assert page.locator(".measures").first.inner_text().split() == ["look.score", "4.5", "of", "5", "look.cer", "0.25"]
    second = open_page(page.url)
    assert shown_cells(second) == 4
    assert second.locator(".measures").count() == 4
    second.locator("#canvas a.cell").first.click()
    second.wait_for_selector(".steps >> text=1 of 4")


def test_samples_leave_no_blank_cells(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(f"{report(demo(tmp_path, samples=3)).as_uri()}#gallery?model=steady")
    assert shown_cells(page) == 6
    assert page.locator("#canvas .row").count() == 2, "the samples of one model run are side by side"
    assert page.locator("#canvas .row").first.locator(".caption .note").all_inner_texts() == ["#0", "#1", "#2"]
    page.goto(f"{page.url.partition('#')[0]}#gallery")
    wait_until(page, "document.querySelectorAll('#canvas .row').length === 6")
    assert page.locator(".box[aria-label='not shown']").count() == 0
