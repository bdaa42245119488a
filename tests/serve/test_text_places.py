"""Where text was read: cut from the output beside each line that is not as it should be, and marked on the output."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image, ImageDraw
from record_factory import record
from report_runs import LABELS, grader, image, report, run_info, save_run

from visioneval.graders.text import TextGrader
from visioneval.graders.text.check import check
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.reasons import details
from visioneval.suite.case import ExpectText

if TYPE_CHECKING:
    from browser import OpenPage
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

RED, BLUE = (220, 30, 30), (30, 60, 160)
CONFIG = TextGrader(type="text", key="look")
CELL = f"#cell?case=flyer&at={LABELS[0]}&sample=0"


def reading(text: str, left: float, top: float, width: float, height: float, angle: float = 0) -> Reading:
    """A text, turned by degrees clockwise around its top left corner."""
    turn = complex(math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    corners = [complex(left, top) + turn * complex(x, y) for x, y in ((0, 0), (width, 0), (width, height), (0, height))]
    first, second, third, fourth = ((round(c.real, 1), round(c.imag, 1)) for c in corners)
    return Reading(text, 0.99, (first, second, third, fourth))


def read(readings: list[Reading], **expected: Any) -> dict[str, Any]:
    wanted = ExpectText.model_validate(expected)
    return details(CONFIG, readings, check(readings, wanted, fold=True, min_confidence=0.5), "ocr")


def patches(size: tuple[int, int], readings: list[Reading], ground: tuple[int, ...] = BLUE) -> bytes:
    """An image with a red patch where each text was read."""
    output = Image.new("RGBA" if len(ground) == 4 else "RGB", size, ground)
    for item in readings:
        assert item.corners is not None
        ImageDraw.Draw(output).polygon(item.corners, fill=RED)
    buffer = io.BytesIO()
    output.save(buffer, "PNG")
    return buffer.getvalue()


def run_with(root: Path, found: dict[str, Any], output: bytes | None, size: tuple[int, int]) -> Path:
    run = save_run(root / "runs", run_info(root, {"flyer": {}}), ())
    path = "artifacts/flyer.png" if output is None else image(run, "flyer.png", output)
    width, height = size
    entry = record(
        test_id="flyer", model_label=LABELS[0], run_id="demo-run", verdict="FAIL", failed_rules=["look"],
        scores={"look": False}, graders=[grader(**found)], artifact_path=path, mime="image/png", width=width, height=height,
    )  # fmt: skip
    (run / "results.jsonl").write_text(entry.model_dump_json() + "\n", encoding="utf-8")
    return run


def shown(page: Page, number: int = 0) -> Image.Image:
    page.locator("svg.place").nth(number).scroll_into_view_if_needed()
    page.wait_for_timeout(200)  # an image in an SVG has no event that comes after it was drawn
    return Image.open(io.BytesIO(page.locator("svg.place").nth(number).screenshot())).convert("RGB")


def is_near(color: Any, other: tuple[int, int, int]) -> bool:
    return max(abs(a - b) for a, b in zip(color, other, strict=True)) < 40


def check_patch(crop: Image.Image, box: tuple[float, float]) -> None:
    """That the crop is the patch, upright, with a margin of half its smaller side."""
    margin = min(box) / 2
    scale = crop.width / (box[0] + 2 * margin)
    assert crop.height == pytest.approx((box[1] + 2 * margin) * scale, abs=2)

    def at(x: float, y: float) -> Any:
        return crop.getpixel((round((margin + x) * scale), round((margin + y) * scale)))

    inside = min(box) / 5
    for x in (inside, box[0] / 2, box[0] - inside):
        for y in (inside, box[1] - inside):
            assert is_near(at(x, y), RED), (x, y)
    for x, y in (
        (-inside, box[1] / 2),
        (box[0] + inside, box[1] / 2),
        (box[0] / 2, -inside),
        (box[0] / 2, box[1] + inside),
    ):
        assert is_near(at(x, y), BLUE), (x, y)


@pytest.mark.parametrize(
    ("size", "place", "single_file"),
    [
        ((400, 300), (60, 80, 120, 20, 0), False),
        ((400, 300), (150, 60, 120, 24, 33), False),
        ((400, 300), (200, 280, 120, 24, -90), False),
        ((400, 300), (360, 200, 160, 24, 180), False),
        ((1500, 1000), (900, 600, 250, 45, 12), True),  # made smaller
    ],
)
def test_the_place_of_a_wrong_line_is_beside_it(
    tmp_path: Path, open_page: OpenPage, size: tuple[int, int], place: tuple[float, ...], single_file: bool
) -> None:
    readings = [reading("OPEN DAYLY", *place)]
    found = read(readings, required=["OPEN DAILY"])
    run = run_with(tmp_path, found, patches(size, readings), size)
    page = open_page(report(run, single_file=single_file).as_uri() + CELL)
    row = page.locator("tr", has=page.locator("svg.place"))
    assert row.locator("td").all_inner_texts()[1:3] == ["OPEN DAILY", "OPEN DAYLY"]
    check_patch(shown(page), (place[2], place[3]))


def test_every_kind_of_line_has_its_place_and_is_marked(tmp_path: Path, open_page: OpenPage) -> None:
    readings = [
        reading("PROTEIN", 10, 10, 80, 20),
        reading("Low fat", 150, 100, 60, 20),
        reading("12g", 300, 10, 40, 20),
        reading("SOLD OUT", 10, 200, 90, 20),
        reading("20% 0FF", 200, 200, 60, 20),
        reading("三", 300, 250, 20, 20),
    ]
    expected = {"required": ["12g PROTEIN", "20% OFF"], "forbidden": ["SOLD OUT"], "extra": "forbid"}
    found = read(readings, **expected)
    page = open_page(report(run_with(tmp_path, found, patches((400, 300), readings), (400, 300))).as_uri() + CELL)
    page.wait_for_selector(".cell-body")
    terms = page.locator(".grader > dl.details > dt")
    tables = {
        terms.nth(at).inner_text(): page.locator(".grader > dl.details > dd").nth(at).locator("svg.place").count()
        for at in range(terms.count())
    }
    wanted = {"missing": 2, "forbidden": 1, "extra": 1, "unsettled": 1, "doubtful extra": 1}
    assert {name: count for name, count in tables.items() if count} == wanted
    page.get_by_role("button", name="Text").click()
    assert page.locator(".frame polygon.read").count() == 6
    titles = page.locator(".frame polygon.spot title").all_text_contents()
    assert sorted(titles) == [
        "doubtful extra: 三", "extra: Low fat", "forbidden: SOLD OUT", "missing: 12g", "missing: PROTEIN", "unsettled: 20% OFF",
    ]  # fmt: skip
    assert page.locator(".frame polygon.spot").last.get_attribute("points") in {
        " ".join(f"{x:g},{y:g}" for x, y in item.corners or ()) for item in readings
    }


def test_what_a_judge_read_has_no_place_and_that_of_ocr_has(tmp_path: Path, open_page: OpenPage) -> None:
    readings = [reading("OPEN DAYLY", 10, 10, 100, 20)]
    judged = [Reading("OPEN DAILY")]
    wanted = ExpectText(required=("OPEN DAILY",))
    found = details(CONFIG, judged, check(judged, wanted, fold=False), "judge")
    found["ocr"] = read(readings, required=["OPEN DAILY"])
    page = open_page(report(run_with(tmp_path, found, patches((400, 300), readings), (400, 300))).as_uri() + CELL)
    page.wait_for_selector(".cell-body")
    assert page.locator("svg.place").count() == 1, "in the table of what OCR missed, not in that of its lines"
    page.get_by_role("button", name="Text").click()
    assert page.locator(".frame polygon.read").count() == 1
    assert page.locator(".frame polygon.spot").count() == 0, "the judge decided"


def test_a_transparent_output_has_squares_behind_the_place(tmp_path: Path, open_page: OpenPage) -> None:
    readings = [reading("LAGO", 100, 100, 80, 40)]
    found = read(readings, required=["LOGO"])
    run = run_with(tmp_path, found, patches((400, 300), readings, (0, 0, 0, 0)), (400, 300))
    page = open_page(report(run).as_uri() + CELL, color_scheme="dark")
    page.wait_for_selector("svg.place")
    colors = {color for _, color in shown(page).getcolors(100_000) or []}
    assert {(160, 160, 160), (220, 220, 220)} <= colors
    assert RED in colors


@pytest.mark.parametrize("is_there_at_first", [False, True])
def test_without_its_output_a_place_says_so(tmp_path: Path, open_page: OpenPage, is_there_at_first: bool) -> None:
    readings = [reading("LAGO", 100, 100, 80, 40)]
    output = patches((400, 300), readings) if is_there_at_first else None
    run = run_with(tmp_path, read(readings, required=["LOGO"]), output, (400, 300))
    page = open_page(report(run).as_uri() + CELL)
    page.wait_for_selector(".cell-body")
    if is_there_at_first:  # an image that is gone would be an error in the console
        page.locator("svg.place image").dispatch_event("error")
    assert page.locator("svg.place").count() == 0
    assert page.locator("td", has_text="the file is missing" if is_there_at_first else "no image").count() == 1


def test_odd_boxes_break_nothing(tmp_path: Path, open_page: OpenPage) -> None:
    boxes = ["javascript:alert(1)", [[0, 0], [1, "x"], [2, 2]], [[0, 0]], [1, 2, 3, 4], [[0, 0]] * 4]
    found = {
        "missing": [*({"line": f"LOGO {at}", "nearest": "LAGO", "box": box} for at, box in enumerate(boxes)), None],
        "lines": [*({"text": "a", "box": box} for box in boxes), 7],
    }
    page = open_page(report(run_with(tmp_path, found, patches((40, 30), []), (40, 30))).as_uri() + CELL)
    page.wait_for_selector(".cell-body")
    assert "LOGO 4" in page.inner_text("#view-cell")
