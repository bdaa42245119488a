"""The report in a real browser: filters, address, slider, keys, narrow screens, and text that is markup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import PHONE, wait_until
from record_factory import record, run_of
from report_runs import LABELS, METRICS, demo, grader, png, report, run_info, save_run

from visioneval import CellError, Metric

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from browser import OpenPage
    from playwright.sync_api import Browser, Page

CELL = "#cell?case=sign&at=hasty%2Cquality%3Dlow&sample=0"
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script></script><b>bold</b>"


def tiles(page: Page) -> list[str]:
    page.wait_for_selector("#canvas a.cell, #nothing:not([hidden])")
    return [str(tile.get_attribute("aria-label")) for tile in page.query_selector_all("#canvas a.cell")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def page_url(folder: Path) -> str:
    return report(demo(folder)).as_uri()


def test_overview_shows_facts_and_links_to_the_gallery(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url)
    text = page.text_content("#view-overview")
    for fact in (" failed", "4 of 4 cells", "100 % [34.2, 100] n=2", "demo-run", "look.score", "spill", "2 min 3 s"):
        assert fact in " ".join(text.split())
    page.click("a.tally.fail")
    wait_until(page, "document.getElementById('result')?.textContent === '2 of 4 cells'")
    assert page.url.endswith("#gallery?verdict=FAIL")


def test_filters_select_cells_and_update_the_url(page_url: str, open_page: OpenPage) -> None:
    page = open_page(f"{page_url}#gallery")
    assert len(tiles(page)) == 4
    page.select_option("select[name=tag]", "edit")
    assert tiles(page) == ["sign, steady: PASS", "sign, hasty,quality=low: FAIL look, spill (1 failure tag)"]
    page.click("[data-verdict=FAIL]")
    assert tiles(page) == ["sign, hasty,quality=low: FAIL look, spill (1 failure tag)"]
    assert page.get_attribute("[data-verdict=FAIL]", "aria-pressed") == "true"
    page.click("#clear")
    page.select_option("select[name=metric]", "look.score")
    page.fill("input[name=min]", "2")
    wait_until(page, "document.getElementById('result').textContent === '2 of 4 cells'")
    second = open_page(page.url)
    assert tiles(second) == ["sign, steady: PASS", "flyer, steady: PASS"]
    assert second.input_value("input[name=min]") == "2"
    assert second.input_value("select[name=metric]") == "look.score"


def test_url_selects_the_view(page_url: str, open_page: OpenPage) -> None:
    """A page is opened once, and the rest are links within it: a page of its own takes a second."""
    counts = {
        "q=BAKERY": "2 of 4 cells",
        "q=spills+butter": "1 of 4 cells",
        "q=nowhere": "0 of 4 cells",
        "failure=spill": "1 of 4 cells",
        "rule=look": "2 of 4 cells",
        "metric=look.cer": "4 cells",
        "model=steady": "2 of 4 cells",
        "verdict=PASS%2CFAIL": "4 cells",
        "metric=look.cer&max=1": "2 of 4 cells",
        "metric=no_such&min=0": "0 of 4 cells",
        "verdict=PASS": "2 of 4 cells",
        "verdict=ERROR": "0 of 4 cells",
        "": "4 cells",
        "tag=unheard": "0 of 4 cells",
    }
    page = open_page(f"{page_url}#gallery?q=BAKERY")
    for state, expected in counts.items():
        page.goto(f"{page_url}#gallery?{state}")
        wait_until(page, f"document.getElementById('result')?.textContent === {expected!r}")
    second = open_page(f"{page_url}#gallery?q=spills+butter&verdict=FAIL")
    wait_until(second, "document.getElementById('result')?.textContent === '1 of 4 cells'")


def test_cell_view_shows_all_details(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url + CELL)
    page.wait_for_selector(".cell-body")
    text = page.inner_text("#view-cell")
    for fact in (
        "sign",
        "hasty,quality=low",
        "it spills over the window",
        "Change the sign to BUTTER",
        "Calm.",
        "spill",
    ):
        assert fact in text
    for fact in (
        "Autumn Bread",
        "0.97",
        "confidence too low, not counted",
        "Is it green?",
        "look.score",
        "not measured",
    ):
        assert fact in text
    assert page.inner_text("pre.command").endswith("suite.yaml --case sign --model hasty,quality=low")
    assert "Is it green?" in page.inner_text("tr.wrong")
    words = page.locator("tr.wrong", has_text="Which color?").locator("td").all_inner_texts()
    assert words[1:3] == ["blue", "red"]
    names = [button.inner_text() for button in page.query_selector_all(".mode")]
    assert names == ["Output", "Slider", "Side by side", "Mask", "Difference", "Text", "Input"]
    for at, name in enumerate(names, 1):
        page.keyboard.press(str(at))
        assert page.inner_text(".mode[aria-pressed=true]") == name
        wait_until(
            page, "[...document.querySelectorAll('.frame img')].every((one) => one.complete && one.naturalWidth > 0)"
        )
        assert page.query_selector(".frame img")
    page.keyboard.press("6")
    assert page.query_selector_all(".frame polygon.weak")


@pytest.mark.parametrize(
    ("scores", "place"),
    [
        ({"worst_window": 0.4, "isolated_change": 30}, "8,4 32,4 32,28 8,28"),
        ({"worst_window": 0.1, "isolated_change": 30}, "40,20 64,20 64,44 40,44"),
        ({"worst_window": 0.1, "isolated_change": 3}, None),
    ],
)
def test_a_change_outside_the_mask_is_marked_on_the_output(
    tmp_path: Path, open_page: OpenPage, scores: dict[str, float], place: str | None
) -> None:
    run = demo(tmp_path)
    records = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    for entry in records:
        entry["graders"][0]["type"] = "locality"
        entry["graders"][0]["details"] |= {
            "base_size": "96x64",
            "limits": {"max_changed_outside": 0.01, "max_worst_window": 0.15, "max_isolated_change": 5},
            "window": {"left": 8, "top": 4, "width": 24, "height": 24},
            "isolated_window": {"left": 40, "top": 20, "width": 24, "height": 24},
        }
        entry["scores"] |= {"look.changed_outside": 0.001, **{f"look.{name}": value for name, value in scores.items()}}
    (run / "results.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in records))
    page = open_page(report(run).as_uri() + CELL)
    page.wait_for_selector(".cell-body")
    assert page.locator(".mode", has_text="Failure").count() == (place is not None)
    assert page.inner_text(".mode[aria-pressed=true]") == ("Failure" if place else "Difference"), "the cell failed"
    if place is not None:
        assert page.locator(".frame polygon.spot").get_attribute("points") == place
    page.goto(f"{page.url.partition('#')[0]}{CELL.replace('hasty%2Cquality%3Dlow', 'steady')}")
    page.wait_for_selector(".cell-head .badge.pass")
    assert page.inner_text(".mode[aria-pressed=true]") == "Output", "the cell passed"


def test_the_slider_moves_by_mouse_and_by_keys(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url + CELL)
    page.click("text=Slider")
    box = page.locator(".divide").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 0.2, box["y"] + box["height"] / 2)
    assert 10 < float(page.input_value(".divide")) < 30
    before = float(page.input_value(".divide"))
    page.keyboard.press("ArrowRight")
    after = float(page.input_value(".divide"))
    assert after > before
    assert page.eval_on_selector(".above", "(node) => node.style.clipPath") == f"inset(0px {100 - after:g}% 0px 0px)"


def test_keyboard_navigation(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url)
    page.keyboard.press("g")
    assert len(tiles(page)) == 4
    page.locator("#canvas a[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused == "flyer, hasty,quality=low: FAIL look"
    page.keyboard.press("Enter")
    page.wait_for_selector(".cell-body")
    assert page.evaluate("document.activeElement.textContent") == "flyer"
    page.keyboard.press("k")
    wait_until(page, "document.querySelector('.cell-head h1 + .model').textContent === 'steady'")
    page.keyboard.press("Escape")
    page.wait_for_selector("#scroller")
    wait_until(page, "document.activeElement.getAttribute('aria-label') === 'flyer, steady: PASS'")
    page.keyboard.press("/")
    wait_until(page, "document.activeElement.name === 'q'")
    page.keyboard.type("gok")  # letters are words here, not keys
    wait_until(page, "document.getElementById('result').textContent === '0 of 4 cells'")


def test_the_grid_has_roles_and_names(page_url: str, open_page: OpenPage) -> None:
    page = open_page(f"{page_url}#gallery")
    tiles(page)
    assert page.get_by_role("grid", name="Cells").get_attribute("aria-rowcount") == "3"
    assert page.get_by_role("columnheader").all_inner_texts() == ["case", *LABELS]
    assert page.get_by_role("gridcell").count() == 4
    assert len(page.query_selector_all("#canvas a[tabindex='0']")) == 1
    assert page.get_by_role("status").all_inner_texts() == ["4 cells"]
    unnamed = "[...document.querySelectorAll('button, select, input, a')].filter((one) => !one.textContent.trim() && !one.ariaLabel && !one.labels?.length).length"
    assert page.evaluate(unnamed) == 0


def test_single_file_is_self_contained(folder: Path, tmp_path: Path, open_page: OpenPage) -> None:
    created = report(demo(tmp_path), single_file=True)
    alone = tmp_path / "elsewhere" / "sent.html"
    alone.parent.mkdir()
    created.rename(alone)
    page = open_page(alone.as_uri() + CELL)
    page.keyboard.press("5")
    wait_until(page, "document.querySelector('.frame img')?.naturalWidth > 0")
    page.goto(f"{alone.as_uri()}#gallery?q=bakery")
    wait_until(page, "document.getElementById('result')?.textContent === '2 of 4 cells'")
    wait_until(page, "document.querySelector('#canvas img')?.naturalWidth > 0")


def test_report_outside_the_run_copies_images(tmp_path: Path, open_page: OpenPage) -> None:
    run = demo(tmp_path)
    created = report(run, out=tmp_path / "sent")
    run.rename(tmp_path / "gone")
    page = open_page(created.as_uri() + CELL)
    wait_until(page, "document.querySelector('.frame img')?.naturalWidth === 96")
    page.keyboard.press("5")
    wait_until(page, "document.querySelector('.frame img')?.naturalWidth === 96")


def hostile(root: Path) -> Path:
    cases: dict[str, dict[str, Any]] = {"odd": {"criteria": MARKUP, "region": MARKUP}}
    metrics = {MARKUP: Metric(), "look": Metric()}
    info = run_info(root, cases, note=MARKUP, command_line=("run", MARKUP)).model_copy(update={"metrics": metrics})
    run = save_run(root / "runs", info, ())
    path = run / "artifacts" / "a.png"
    path.write_bytes(png())
    lines = [{"text": MARKUP, "confidence": 0.5, "box": [[0, 0], [9, 0], [9, 9], [0, 9]], MARKUP: MARKUP}]
    item = record(
        test_id="odd",
        model_label=MARKUP,
        prompt=MARKUP,
        tags=[MARKUP],
        verdict="FAIL",
        failed_rules=["look"],
        failure_tags=[MARKUP],
        scores={"look": False, MARKUP: False},
        reasons={"look": MARKUP},
        metadata={MARKUP: MARKUP},
        run_params={"model": MARKUP},
        graders=[
            grader(MARKUP, lines=lines, replies=[MARKUP], judge_verdict=MARKUP, difference_map="javascript:alert(1)")
        ],
        error=CellError(stage="grade", kind=MARKUP, message=MARKUP),
        artifact_path="artifacts/a.png",
    )
    two = item.model_copy(update={"artifact_path": "artifacts/<b>.svg", "sample_index": 1})
    (run / "artifacts" / "<b>.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    (run / "results.jsonl").write_text("".join(entry.model_dump_json() + "\n" for entry in (item, two)))
    return run


def test_the_name_of_a_case_in_the_grid_links_to_its_first_cell(page_url: str, open_page: OpenPage) -> None:
    page = open_page(f"{page_url}#gallery")
    page.wait_for_selector("#canvas a.cell")
    name = page.locator("#canvas .row-head a").first
    case = name.inner_text()
    assert name.get_attribute("href") == page.locator("#canvas a.cell").first.get_attribute("href")
    name.click()
    page.wait_for_selector(".cell-body")
    assert page.inner_text(".cell-head h1") == case


@pytest.mark.parametrize("single_file", [False, True])
def test_untrusted_text_is_not_markup(tmp_path: Path, open_page: OpenPage, single_file: bool) -> None:
    created = report(hostile(tmp_path), single_file=single_file)
    page = open_page(created.as_uri())
    assert MARKUP in page.inner_text("#view-overview")
    page.goto(f"{created.as_uri()}#gallery")
    assert MARKUP in tiles(page)[0]
    page.select_option("select[name=failure]", MARKUP)
    page.click("#canvas a.cell")
    page.wait_for_selector(".cell-body")
    assert MARKUP in page.inner_text(".cell-head")
    assert page.inner_text("#view-cell").count("<b>bold</b>") > 8
    for key in "123456":
        page.keyboard.press(key)
    page.keyboard.press("j")
    wait_until(
        page, "document.querySelector('.missing')", 180
    )  # Chromium may take minutes to find that a file is missing
    for view in ("overview", "gallery?layout=list", f"gallery?q={'%3Cb'}"):
        page.goto(f"{created.as_uri()}#{view}")
        page.wait_for_timeout(100)
    assert "owned" not in page.title()
    assert (
        page.evaluate("document.querySelectorAll('main b:not(.tally b), main script, [onerror], [onload]').length") == 0
    )


def test_content_policy_blocks_injected_markup(page_url: str, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(page_url)
    expected = page.evaluate(
        """() => { try { document.body.innerHTML += '<b>x</b>'; return 'in' } catch (error) { return error.name } }"""
    )
    assert expected == "TypeError"
    policy = page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content") or ""
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    page.close()


def test_missing_images_are_marked(tmp_path: Path, open_page: OpenPage) -> None:
    run = demo(tmp_path)
    (run / "artifacts/sign/1/0.png").unlink()
    (run / "artifacts/flyer/0/0.png").write_bytes(b"no image at all")
    (tmp_path / "assets/base.png").unlink()
    created = report(run)
    (run / "artifacts/flyer/1/0.png").unlink()
    page = open_page(f"{created.as_uri()}#gallery")
    tiles(page)
    assert page.locator("#canvas .thumb .none").count() == 2
    page.goto(created.as_uri() + CELL)
    page.wait_for_selector(".cell-body")
    assert "there is no such file" in page.inner_text(".frame .missing")
    page.click("text=Input")
    assert "assets/base.png" in page.inner_text(".frame .missing")
    page.goto(f"{created.as_uri()}#cell?case=flyer&at=no+such&sample=0")
    page.wait_for_selector("text=This run does not contain this cell")


def test_image_deleted_after_the_report(tmp_path: Path, browser: Browser) -> None:
    created = report(run := demo(tmp_path))
    (run / "artifacts/flyer/1/0.png").unlink()
    page = browser.new_page()
    page.goto(f"{created.as_uri()}#cell?case=flyer&at=hasty%2Cquality%3Dlow&sample=0")
    page.wait_for_selector("text=the file is missing")
    page.close()


@pytest.mark.parametrize("view", ["", "#gallery", CELL])
def test_no_horizontal_scrolling_on_a_phone(page_url: str, open_page: OpenPage, view: str) -> None:
    page = open_page(page_url + view, viewport=PHONE, has_touch=True)
    page.wait_for_selector("section.view:not([hidden])")
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    sizes = "[...document.querySelectorAll('main p, main td, main dd, main .words span')].map((one) => parseFloat(getComputedStyle(one).fontSize))"
    assert min(page.evaluate(sizes)) >= 11
    if view == "#gallery":
        assert len(tiles(page)) == 4
        wait_until(page, "[...document.querySelectorAll('.why')].some((one) => one.textContent.includes('spills'))")


def test_dark_mode_is_dark(page_url: str, open_page: OpenPage) -> None:
    page = open_page(page_url, color_scheme="dark")
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert max(red, green, blue) < 64


def test_many_cells_render_on_scroll(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(f"{report(demo(tmp_path, samples=150)).as_uri()}#gallery")
    generated = len(tiles(page))
    assert 4 < generated < 100
    page.locator("#canvas a[tabindex='0']").focus()
    page.keyboard.press("End")
    wait_until(page, "document.activeElement.getAttribute('aria-label') === 'flyer, steady, sample 149: PASS'")
    assert len(tiles(page)) < 100
    page.keyboard.press("PageUp")
    rows = page.evaluate("[...document.querySelectorAll('#canvas .row')].map((row) => Number(row.ariaRowIndex))")
    assert rows == sorted(rows)
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.wait_for_selector(".cell-head >> text=sample 149")


def wide(root: Path, columns: int = 30) -> Path:
    """Three cases, without images, by more model runs than fit in a window."""
    labels = [f"m{number}" for number in range(columns)]
    info = run_of({name: {} for name in "abc"}, labels, [], METRICS, run_id="wide", state="running")
    records = [record(test_id=name, model_label=label, run_id="wide") for name in "abc" for label in labels]
    return save_run(root / "runs", info, records)


def test_many_model_runs_render_on_scroll(tmp_path: Path, open_page: OpenPage) -> None:
    page = open_page(f"{report(wide(tmp_path)).as_uri()}#gallery")
    assert len(tiles(page)) < 45
    grid = page.get_by_role("grid", name="Cells")
    assert (grid.get_attribute("aria-rowcount"), grid.get_attribute("aria-colcount")) == ("4", "31")
    page.locator("#canvas a[tabindex='0']").focus()
    for _ in range(29):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "b, m29: no image PASS"
    assert page.evaluate("document.activeElement.parentElement.getAttribute('aria-colindex')") == "31"
    assert page.evaluate("document.activeElement.closest('[role=row]').getAttribute('aria-rowindex')") == "3"
    inside = "document.activeElement.getBoundingClientRect().right <= innerWidth && document.activeElement.getBoundingClientRect().left > 188"
    assert page.evaluate(inside)
    wait_until(page, "document.querySelectorAll('#canvas a.cell').length < 45")
    order = "[...document.querySelectorAll('#canvas .row')].map((row) => [...row.querySelectorAll('.box')].map((box) => Number(box.ariaColIndex)))"
    assert all(item == sorted(item) for item in page.evaluate(order))
    for _ in range(29):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 188
    assert all(item == sorted(item) for item in page.evaluate(order))
