"""The comparison page in a browser: broken cells, both images, filters and escaping."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import PHONE, wait_until
from compare_factory import side, verdicts
from compared_runs import compared_run, page_of

from visioneval.analysis.compare.compare import compare
from visioneval.analysis.compare.gates import check_gates, parse_fail_on
from visioneval.analysis.sides import Side
from visioneval.report.html.compare import comparison_page

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage

MARKUP = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script><b>bold</b>"


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("compare")
    return page_of(root, compared_run(root, "before", "PPFF", "teal"), compared_run(root, "after", "PFPF", "crimson"))


def test_shows_broken_cells_and_both_images(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url)
    assert "50 %" not in page.inner_text("main"), "statistics of four cases are folded"
    page.click("#view-overview details summary")
    text = page.inner_text("main")
    assert text.index("Broken (passed in A, fails in B): 1") < text.index("Fixed (failed in A, passes in B): 1")
    for fact in ("A gate failed", "1 of 4 cells broke", "look: it looks crimson", "pass_rate", "50 %", "p Holm"):
        assert fact in text
    assert page.locator(".pair h3").all_text_contents() == ["broke", "repaired"]
    assert page.locator(".regressions article").count() == 1
    assert page.locator(".regressions figcaption").all_inner_texts() == ["A: PASS", "B: FAIL"]
    assert page.locator(".regressions img").count() == 2
    assert text.index("Broken") < text.index("Gates")
    page.locator(".pair").first.scroll_into_view_if_needed()
    wait_until(
        page,
        "[...document.querySelector('.pair').querySelectorAll('img')].filter((one) => one.naturalWidth === 96).length === 2",
    )
    assert page.locator(".pair").first.locator("figcaption").all_text_contents() == ["A: PASS", "B: FAIL"]
    page.locator(".pair").first.get_by_text("Slider").click()
    assert page.locator(".pair").first.locator("input[type=range]").count() == 1


def test_pairs_are_filtered_by_change_and_text(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url)
    page.click("[data-change=still_failing]")
    page.click("[data-change=broken]")
    page.click("[data-change=fixed]")
    assert page.locator(".pair h3").all_text_contents() == ["poor"]
    page.click("[data-change=still_failing]")
    page.fill("input[name=q]", "SAME tree")
    wait_until(page, "document.getElementById('result').textContent === '1 of 4 pairs'")
    second = open_page(page.url)
    assert second.locator(".pair h3").all_text_contents() == ["same"]
    second.fill("input[name=q]", "nowhere")
    second.wait_for_selector("text=No pairs match")


def test_broken_case_links_to_its_images(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url)
    page.click(".regressions a >> text=broke")
    wait_until(page, "document.querySelectorAll('.pair').length === 1")
    wait_until(page, "document.querySelector('.pair h3')?.innerText === 'broke'")


def test_each_case_is_a_point_of_a_plot(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url)
    plot = page.locator("svg.cases")
    assert plot.get_attribute("aria-label") == "4 cases: 1 higher in B, 1 lower in B"
    page.select_option("#cases select", "look.score")
    titles = page.locator("svg.cases title").all_text_contents()
    assert sorted(titles) == [
        "broke: 4 in A, 1 in B",
        "poor: 1 in A, 1 in B",
        "repaired: 1 in A, 4 in B",
        "same: 4 in A, 4 in B",
    ]
    assert page.locator(".by-case tbody th").all_inner_texts() == ["broke", "repaired"]
    page.locator("svg.cases circle", has_text="poor").click()
    wait_until(page, "document.querySelector('.pair h3')?.innerText === 'poor'")


def test_untrusted_text_is_not_markup(tmp_path: Path, open_page: OpenPage) -> None:
    odd: dict[str, Any] = {"prompt": MARKUP, "model_label": MARKUP, "tags": [MARKUP]}
    odd |= {"reasons": {MARKUP: MARKUP}, "scores": {MARKUP: False, "look": False}}
    a = compared_run(tmp_path, "before", "PPPP", "teal", model_label=MARKUP)
    b = compared_run(tmp_path, "after", "FFFF", "crimson", **odd)
    page = open_page(page_of(tmp_path, a, b))
    assert MARKUP in page.inner_text("#view-overview")
    assert MARKUP in (page.text_content(".pair") or "")
    assert "owned" not in page.title()
    assert page.evaluate("document.querySelectorAll('main b, main script, [onerror]').length") == 0


def test_missing_images_are_marked(tmp_path: Path, open_page: OpenPage) -> None:
    a, b = compared_run(tmp_path, "before", "PPPP", "teal"), compared_run(tmp_path, "after", "FFFF", "red")
    assert b.folder is not None
    for path in (b.folder / "artifacts").glob("*.png"):
        path.unlink()
    page = open_page(page_of(tmp_path, a, b))
    assert "there is no such file" in (page.text_content(".pair .missing") or "")
    assert page.locator(".pair").first.get_by_text("Slider").count() == 0


def test_side_without_images_is_marked(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(page_of(tmp_path, side(verdicts("PF"), "baseline"), side(verdicts("FP"), "now")))
    assert "baseline has no images" in (page.text_content(".pair .missing") or "")


COMPLETE = side(verdicts("PP"), "a")
SAME = side([replace(cell, artifact_sha256="x") for cell in verdicts("PP")], "b")


@pytest.mark.parametrize(
    ("a", "b", "headline"),
    [
        (COMPLETE, SAME, 'pass">\n<h1>All gates passed</h1>'),
        (COMPLETE, replace(SAME, state="interrupted"), 'error">\n<h1>B is incomplete</h1>'),
        (replace(COMPLETE, is_partial=True), SAME, 'plain">\n<h1>All gates passed, but A is incomplete</h1>'),
        (COMPLETE, side(verdicts("PF"), "b"), 'plain">\n<h1>All gates passed, but 1 cell broke</h1>'),
        (COMPLETE, side(verdicts("P"), "b"), 'plain">\n<h1>All gates passed, but B lacks measurements that A'),
    ],
)
def test_green_only_where_nothing_broke_and_nothing_is_missing(a: Side, b: Side, headline: str) -> None:
    result = compare(a, b)
    page = comparison_page(result, check_gates(result, parse_fail_on(["must_pass"])))
    assert f'<div class="headline {headline}' in page


def test_changes_by_tag_link_to_their_pairs(tmp_path: Path, open_page: OpenPage) -> None:
    a, b = (
        compared_run(tmp_path, "before", "PPFF", "teal"),
        compared_run(tmp_path, "after", "PFPF", "red", tags=["a&b"]),
    )
    page = open_page(page_of(tmp_path, a, b))
    page.click("#view-overview details summary")
    row = page.locator("tr", has_text="a&b")
    assert row.locator("td").all_inner_texts()[-2:] == ["1 / 1", "cannot tell: too few cases"]
    assert row.locator("td.number").all_inner_texts()[:2] == ["50 %", "50 %"]
    row.locator("a").click()
    wait_until(page, "document.querySelector('[name=tag]').value === 'a&b'")
    assert page.locator(".pair h3").all_text_contents() == ["broke", "repaired"]


def test_model_runs_have_a_table_where_there_are_several() -> None:
    cells = [item for label in ("first", "second") for item in verdicts("PF", model_label=label)]
    result = compare(side(cells, "a"), side(cells, "b"))
    page = comparison_page(result, ())
    assert "Pass rate by model run" in page
    assert page.index("Pass rate by model run") < page.index("second", page.index("Pass rate by model run"))
    alone = compare(side(verdicts("PF"), "a"), side(verdicts("PF"), "b"))
    assert "Pass rate by model run" not in comparison_page(alone, ())


def test_no_horizontal_scrolling_on_a_phone(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url, viewport=PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
