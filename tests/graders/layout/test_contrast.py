"""The grader ``contrast``: the ratio of WCAG 2 of each required line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grading
import numpy as np
import pytest
from drawn_lines import DrawnLines, ink_box
from PIL import Image, ImageDraw, ImageFont

from visioneval import Grade, TestCase
from visioneval.graders.layout import ContrastGrader
from visioneval.graders.layout.ink import contrast_ratio, ink_of

CONFIG = ContrastGrader(type="contrast", key="seen")


def graded(folder: Path, page: DrawnLines, *required: str, **options: Any) -> Grade:
    """The grade of a page; its lines are required if no others are."""
    lines = list(required or dict.fromkeys(reading.text for reading in page.readings))
    expect = {"text": {"required": lines}}
    config = CONFIG.model_copy(update=options)
    grade = grading.grade(config, page.save(folder / "page.png"), measure=page.measure, expect=expect)
    assert set(grade.scores) == set(
        config.metrics(TestCase.model_validate({"id": "c", "prompt": "p", "expect": expect}))
    )
    assert (grade.error is not None) == (None in grade.scores.values())
    return grade


def on(paper: str, ink: str, px: int = 40) -> DrawnLines:
    """A page with one line in two colors."""
    return DrawnLines.on(paper).write("Members save 20%", (40, 100), px, ink)


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [("#000000", "#ffffff", 21), ("#767676", "#ffffff", 4.54), ("#777777", "#ffffff", 4.48), ("#ff0000", "#ff0000", 1)],
)
def test_the_ratio_is_that_of_wcag(first: str, second: str, ratio: float) -> None:
    colors = [tuple(bytes.fromhex(color[1:])) for color in (first, second)]
    assert contrast_ratio(*colors) == contrast_ratio(*colors[::-1]) == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize(
    ("paper", "ink", "ratio"),
    [("white", "black", 21), ("white", "#767676", 4.54), ("#1a3a6a", "white", 11.3), ("#202020", "#2c2c2c", 1.17)],
)
@pytest.mark.parametrize("px", [24, 60])
def test_the_ratio_of_a_line(tmp_path: Path, paper: str, ink: str, ratio: float, px: int) -> None:
    grade = graded(tmp_path, on(paper, ink, px))
    assert grade.scores["seen.lowest"] == pytest.approx(ratio, rel=0.06)
    assert grade.scores["seen"] is (ratio >= 3)


def test_a_line_that_nobody_can_read_fails_with_its_colors_and_limit(tmp_path: Path) -> None:
    grade = graded(tmp_path, on("#202020", "#2c2c2c"))
    assert grade.reasons["seen"] == '"Members save 20%" has 1.16:1 (#2C2C2C on #202020 at 42 px), needs 3:1'
    (line,) = grade.details["contrast"]
    assert (line["ratio"], line["holds"], line["needs"]) == (1.16, False, 3)
    assert [part["line"] for part in line["parts"]] == ["Members save 20%"]
    assert graded(tmp_path, on("white", "black")).reasons["seen"] == "the lowest contrast is 21.00:1"


@pytest.mark.parametrize(
    ("px", "large_px", "passes"), [(40, 24, True), (40, 60, False), (18, 30, False), (24, 12, True)]
)
def test_large_letters_need_less(tmp_path: Path, px: int, large_px: float, passes: bool) -> None:
    assert graded(tmp_path, on("white", "#8c8c8c", px), large_px=large_px).scores["seen"] is passes


def test_a_size_near_the_limit_is_undecided_if_it_decides(tmp_path: Path) -> None:
    for color, answer in (("#898989", None), ("#555555", True), ("#cccccc", False)):  # 3.5, 7.5 and 1.6
        assert graded(tmp_path, on("white", color, 40), large_px=40).scores["seen"] is answer


@pytest.mark.parametrize(("color", "answer"), [("#767676", True), ("#7b7b7b", None), ("#8a8a8a", False)])
def test_a_ratio_just_below_the_limit_is_undecided(tmp_path: Path, color: str, answer: bool | None) -> None:
    assert graded(tmp_path, on("white", color, 60), min_ratio_large=4.5).scores["seen"] is answer


@pytest.mark.parametrize(("color", "ratio", "answer"), [("#949494", 3.03, True), ("#959595", 2.99, None)])
def test_a_ratio_is_not_rounded_up_to_its_limit(tmp_path: Path, color: str, ratio: float, answer: bool | None) -> None:
    """That of #959595 is 2.995."""
    scores = graded(tmp_path, on("white", color, 60)).scores
    assert scores == {"seen": answer, "seen.lowest": ratio}


def test_the_lowest_line_counts(tmp_path: Path) -> None:
    page = DrawnLines.on().write("Grand opening", (40, 40), 40).write("Small print", (40, 200), 40, "#cccccc")
    grade = graded(tmp_path, page)
    assert grade.scores["seen"] is False
    assert grade.scores["seen.lowest"] == pytest.approx(1.61, abs=0.05)
    assert "Grand" not in grade.reasons["seen"]


def test_a_line_that_was_not_read_is_not_measured_and_others_fail(tmp_path: Path) -> None:
    grade = graded(tmp_path, on("white", "black"), "Members save 20%", "Offer ends")
    assert grade.scores == {"seen": None, "seen.lowest": None}
    assert grade.error == 'cannot be decided: "Offer ends" was not read'
    grade = graded(tmp_path, on("white", "#eeeeee"), "Members save 20%", "Offer ends")
    assert grade.scores == {"seen": False, "seen.lowest": None}


def test_of_a_line_that_is_there_twice_the_fainter_one_counts(tmp_path: Path) -> None:
    page = DrawnLines.on().write("Sale", (40, 40), 40).write("Sale", (40, 200), 40, "#dddddd")
    assert graded(tmp_path, page).scores["seen"] is False


def test_the_worst_part_of_a_line_on_a_gradient_counts(tmp_path: Path) -> None:
    shades = np.tile(np.linspace(20, 250, 600)[None, :, None], (400, 1, 3)).astype(np.uint8)
    page = DrawnLines(Image.fromarray(shades)).write("White words from left to right", (20, 100), 38, "white")
    assert graded(tmp_path, page).scores["seen"] is False
    dark = DrawnLines(Image.fromarray(shades)).write("White words", (20, 100), 38, "white")
    assert graded(tmp_path, dark).scores["seen"] is True, "there the background is dark"


def test_an_outline_counts_as_what_is_around_the_letters(tmp_path: Path) -> None:
    page = DrawnLines.on("#eeeeee")
    plain = graded(tmp_path, page.write("SALE", (40, 60), 90, "white"))
    assert plain.scores["seen"] is False
    outlined = DrawnLines.on("#eeeeee").write("SALE", (40, 60), 90, "white")
    font = ImageFont.load_default(90)
    left, top, _, _ = ImageDraw.Draw(outlined.image).textbbox((0, 0), "SALE", font=font)
    pen = ImageDraw.Draw(outlined.image)
    pen.text((40 - left, 60 - top), "SALE", "white", font, stroke_width=14, stroke_fill="black")
    assert graded(tmp_path, outlined).scores["seen.lowest"] > 10


def test_a_dark_outline_on_a_dark_background_is_no_faint_letter(tmp_path: Path) -> None:
    page = DrawnLines.on("#a52b04").write("OFFER", (60, 60), 100, "#f0b030")
    font = ImageFont.load_default(100)
    left, top, _, _ = ink_box("OFFER", font)
    pen = ImageDraw.Draw(page.image)
    pen.text((60 - left, 60 - top), "OFFER", "#f0b030", font, stroke_width=6, stroke_fill="#18110b")
    assert graded(tmp_path, page).scores["seen.lowest"] > 4


def test_what_is_no_text_is_not_measured() -> None:
    box = ((0, 0), (60, 0), (60, 20), (0, 20))
    assert ink_of(Image.new("RGB", (60, 20), "red"), "x", box) is None
    assert ink_of(Image.new("RGB", (60, 3), "red"), "x", ((0, 0), (60, 0), (60, 3), (0, 3))) is None


@pytest.mark.parametrize(("ink", "lowest"), [("black", 21), ("white", 21), ("#777777", 4.5)])
def test_text_on_transparency_is_measured_where_ocr_sees_it(tmp_path: Path, ink: str, lowest: float) -> None:
    page = DrawnLines.on((0, 0, 0, 0), mode="RGBA").write("Blue Harbor", (40, 100), 50, ink)
    assert graded(tmp_path, page).scores["seen.lowest"] == pytest.approx(lowest, rel=0.06)


def test_a_slanted_line_is_measured(tmp_path: Path) -> None:
    page = on("white", "#999999", 40)
    turned = page.image.rotate(30, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
    ink = np.argwhere(np.asarray(turned.convert("L")) < 200)
    low, high = ink[ink[:, 1].argmin()], ink[ink[:, 1].argmax()]
    along = np.array([high[1] - low[1], high[0] - low[0]], float)
    along /= np.linalg.norm(along)
    down = np.array([-along[1], along[0]])
    start, end = np.array([low[1], low[0]], float), np.array([high[1], high[0]], float)
    corners = tuple(tuple(point) for point in (start - 30 * down, end - 30 * down, end + 30 * down, start + 30 * down))
    reading = page.readings[0]
    slanted = DrawnLines(turned, [type(reading)(reading.text, 0.99, corners)])  # type: ignore[arg-type]
    assert graded(tmp_path, slanted).scores["seen.lowest"] == pytest.approx(2.85, rel=0.1)


def test_a_case_without_required_lines_or_about_a_video_has_no_metrics() -> None:
    for case in (
        {"expect": {"text": {"forbidden": ["A"]}}},
        {"expect": {}},
        {"task": "video_generation", "expect": {"text": {"required": ["A"]}}},
    ):
        assert CONFIG.metrics(TestCase.model_validate({"id": "c", "prompt": "p", **case})) == {}
