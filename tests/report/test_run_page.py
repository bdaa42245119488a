"""The page of a run, as a person reads it: why a cell failed is what is seen first, in any window."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import PHONE, wait_until
from record_factory import record
from report_runs import LABELS, grader, image, png, report, run_info, save_run

from visioneval import Metric

if TYPE_CHECKING:
    from browser import OpenPage

pytestmark = pytest.mark.slow

STEADY, HASTY = LABELS
REASON = f"The sign is green. {'The letters are even. ' * 12}So the window is covered."
LINES = [{"text": "BUTER", "confidence": 0.9, "box": [[8, 8], [60, 8], [60, 20], [8, 20]]}]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two cases: on ``hasty``, ``sign`` misses a limit and ``flyer`` a line; ``steady`` passes both, with a tag on one."""
    root = tmp_path_factory.mktemp("report")
    info = run_info(root, {"sign": {}, "flyer": {}})
    run = save_run(root / "runs", info, ())
    cells = [cell(run, "sign", STEADY, 4.5, failure_tags=["bad_text"]), cell(run, "flyer", STEADY, 5)]
    cells += [
        cell(run, "sign", HASTY, 1, failed_rules=["look.score >= 3"], failure_tags=["spill"]),
        cell(run, "flyer", HASTY, 4, failed_rules=["look"], lines=LINES, missing=[{**LINES[0], "line": "BUTTER"}]),
    ]
    (run / "results.jsonl").write_text("".join(f"{entry.model_dump_json()}\n" for entry in cells), encoding="utf-8")
    return report(run).as_uri()


def cell(run: Path, case: str, label: str, score: float, lines: Any = LINES, missing: Any = (), **fields: Any) -> Any:
    is_good = not fields.get("failed_rules")
    return record(
        test_id=case, model_label=label, run_id="demo-run", verdict="PASS" if is_good else "FAIL",
        scores={"look": is_good, "look.score": score}, reasons={"look.score": REASON},
        graders=[grader(lines=lines, missing=list(missing))], mime="image/png", width=96, height=64,
        artifact_path=image(run, f"{case}/{LABELS.index(label)}/0.png", png("teal")), **fields,
    )  # fmt: skip


def cell_address(address: str, case: str, label: str) -> str:
    return f"{address}#cell?case={case}&at={label.replace(',', '%2C').replace('=', '%3D')}&sample=0"


def test_cards_and_banner_show_the_score_the_limit_and_the_conclusion(address: str, open_page: OpenPage) -> None:
    page = open_page(address)
    (card,) = [text for text in page.locator(".worst li").all_inner_texts() if text.startswith("sign")]
    assert "look.score 1 < 3" in card
    assert "The sign is green." in card
    assert " ... " in card
    assert card.endswith("So the window is covered.")
    page.goto(cell_address(address, "sign", HASTY))
    page.wait_for_selector(".cell-body")
    assert page.inner_text(".verdict-block code") == "look.score 1 < 3"
    assert page.inner_text(".scores .broken td.number") == "1 of 5"


def test_the_bar_of_a_score_has_the_color_of_what_it_means(tmp_path: Path, open_page: OpenPage) -> None:
    """The color of the page where more is better, gray where it is not, and red where a rule failed."""
    info = run_info(tmp_path, {"sign": {}})
    noise = Metric(type="number", range=(0, 5), better="lower")
    info = info.model_copy(update={"metrics": {**info.metrics, "look.noise": noise}})
    run = save_run(tmp_path / "runs", info, ())
    cells = [
        cell(run, "sign", STEADY, 5),
        cell(run, "sign", HASTY, 5, failed_rules=["look.noise <= 2"]),
    ]
    cells = [entry.model_copy(update={"scores": {**entry.scores, "look.noise": 4}}) for entry in cells]
    (run / "results.jsonl").write_text("".join(f"{entry.model_dump_json()}\n" for entry in cells), encoding="utf-8")
    page_address = report(run).as_uri()
    fill = "[...document.querySelectorAll('.scores .bar')].map((one) => getComputedStyle(one).fill)"
    fills = []
    for label in (STEADY, HASTY):
        page = open_page(cell_address(page_address, "sign", label))
        page.wait_for_selector(".scores .bar")
        fills.append(page.evaluate(fill))
    (good, neutral), (good_too, bad) = fills
    assert good == good_too
    assert len({good, neutral, bad}) == 3


def test_failed_rules_and_tags_look_different(address: str, open_page: OpenPage) -> None:
    page = open_page(f"{address}#gallery")
    page.wait_for_selector("#canvas a.cell")
    marks = {
        str(tile.get_attribute("aria-label")): [
            tile.locator(kind).all_inner_texts() for kind in (".failed-rules", ".tag")
        ]
        for tile in page.locator("#canvas a.cell").all()
    }
    assert marks == {
        f"sign, {STEADY}: PASS bad_text (1 failure tag)": [[], ["bad_text"]],
        f"sign, {HASTY}: FAIL look.score 1 < 3, spill (1 failure tag)": [["look.score 1 < 3"], ["spill"]],
        f"flyer, {STEADY}: PASS": [[], []],
        f"flyer, {HASTY}: FAIL look": [["look"], []],
    }
    looks = "['.failed-rules', '.tag'].map((one) => getComputedStyle(document.querySelector(one))).map((one) => [one.color, one.borderStyle])"
    rule, tag = page.evaluate(looks)
    assert rule[0] != tag[0]
    assert rule[1] != tag[1]


def test_the_list_of_a_phone_shows_the_end_of_a_reason(address: str, open_page: OpenPage) -> None:
    page = open_page(f"{address}#gallery?verdict=FAIL", viewport=PHONE)
    wait_until(page, "document.querySelector('.why .ending')?.textContent.endsWith('the window is covered.')")
    ends = "(span) => [span.getBoundingClientRect().left, span.getBoundingClientRect().right]"
    beginning = page.locator(".why span").first
    first, last = beginning.evaluate(ends)
    assert last - first > 40
    assert beginning.evaluate("(span) => span.scrollWidth > span.clientWidth"), "the middle is cut"
    assert page.locator(".why .ending").first.evaluate(ends)[1] <= PHONE["width"]


def test_a_failing_cell_opens_on_what_failed_until_another_view_is_chosen(address: str, open_page: OpenPage) -> None:
    page = open_page(cell_address(address, "flyer", HASTY))
    page.wait_for_selector(".cell-body")
    chosen = ".mode[aria-pressed=true]"
    assert page.inner_text(chosen) == "Text"
    assert page.locator(".frame polygon.spot title").all_text_contents() == ["missing: BUTTER"]
    assert "show=" not in page.url
    page.keyboard.press("k")
    page.wait_for_selector(".cell-head .badge.pass")
    assert page.inner_text(chosen) == "Output", "nothing failed"
    page.keyboard.press("j")
    page.wait_for_selector(".cell-head .badge.fail")
    assert page.inner_text(chosen) == "Text"
    page.click(".mode >> text=Output")
    wait_until(page, "location.hash.includes('show=Output')")
    page.keyboard.press("k")
    page.wait_for_selector(".cell-head .badge.pass")
    page.keyboard.press("j")
    page.wait_for_selector(".cell-head .badge.fail")
    assert page.inner_text(chosen) == "Output", "as chosen before"


def test_the_overview_fills_a_desktop_and_fits_a_phone(address: str, open_page: OpenPage) -> None:
    page = open_page(address, viewport={"width": 1440, "height": 900})
    lefts = "new Set([...document.querySelectorAll('.columns-of-two > div')].map((one) => Math.round(one.getBoundingClientRect().left))).size"
    assert page.evaluate(lefts) == 2
    assert page.evaluate("document.querySelector('svg.verdicts').getBoundingClientRect().width") > 1300
    scrolled = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"
    assert page.evaluate(scrolled) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(lefts) == 1
    assert page.evaluate("document.scrollingElement.scrollWidth") == 390
    rows = ".gates, .failures"
    assert page.locator(rows).count() == 2
    assert page.evaluate(f"[...document.querySelectorAll('{rows}')].every((one) => one.scrollWidth <= 390)")
