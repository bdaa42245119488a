"""Where the graders ``layout`` and ``contrast`` found lines, in a real browser: what failed is marked on the output."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grading
import pytest
from drawn_lines import DrawnLines
from report_runs import demo, report

from visioneval.graders.layout import ContrastGrader, LayoutGrader

if TYPE_CHECKING:
    from browser import OpenPage

pytestmark = pytest.mark.slow

CELL = "#cell?case=sign&at=hasty%2Cquality%3Dlow&sample=0"


@pytest.mark.parametrize(
    ("config", "spots", "words"),
    [
        (LayoutGrader(type="layout", key="look"), 2, '"Pay" is below "Total"'),
        (ContrastGrader(type="contrast", key="look"), 1, "#EEEEEE"),
    ],
)
def test_a_failed_cell_opens_with_its_lines(
    tmp_path: Path, open_page: OpenPage, config: Any, spots: int, words: str
) -> None:
    lines = DrawnLines.on("white").write("Total", (40, 40), 40).write("Pay", (40, 200), 40, "#eeeeee")
    expect = {"text": {"required": ["Total", "Pay"]}, "layout": [{"above": ["Pay", "Total"]}]}
    with ThreadPoolExecutor(1) as pool:  # this thread has the event loop of the browser
        path = lines.save(tmp_path / "page.png")
        grade = pool.submit(grading.grade, config, path, measure=lines.measure, expect=expect).result()
    run = demo(tmp_path)
    records = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    for entry in records:
        entry["graders"][0] |= {"type": config.type, "details": grade.details}
    (run / "results.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in records))
    page = open_page(report(run).as_uri() + CELL)
    page.wait_for_selector(".cell-body")
    assert page.inner_text(".mode[aria-pressed=true]") == "Text"
    assert page.locator(".frame polygon.read").count() == 2
    assert page.locator(".frame polygon.spot").count() == spots
    assert words in page.inner_text(".grader .details")
    assert page.locator(".grader tr.wrong").count() >= 1
