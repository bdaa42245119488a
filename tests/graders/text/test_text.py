from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grading
import pytest
from PIL import Image, ImageDraw, ImageFont

from visioneval import Grade, TestCase
from visioneval.graders.text import TextGrader

pytest.importorskip("rapidocr")


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("recorded_readings")]


def graded(path: Path, expected: dict[str, Any] | None, **options: Any) -> Grade:
    expect = {"text": expected} if expected else {}
    return grading.grade(TextGrader(type="text", key="copy", **options), path, expect=expect)


@pytest.fixture
def sign(tmp_path: Path) -> Any:
    def make_sign(*lines: str, mode: str = "RGB") -> Path:
        image = Image.new("RGB", (700, 120 * len(lines) + 40), "white")
        pen = ImageDraw.Draw(image)
        for row, line in enumerate(lines):
            pen.text((40, 30 + 120 * row), line, font=ImageFont.load_default(size=56), fill="black")
        path = tmp_path / ("sign.tif" if mode == "CMYK" else "sign.png")
        image.convert(mode).save(path)
        return path

    return make_sign


@pytest.mark.parametrize(("name", "passes"), [("poster_output.jpg", True), ("poster_input.jpg", False)])
def test_the_real_poster(shared_data: Path, name: str, passes: bool) -> None:
    poster = shared_data / "edits" / name
    grade = graded(poster, {"required": ["PLANE", "SNOW", "THE"], "forbidden": ["TRAIN"]})
    assert grade.scores["copy"] is passes
    assert grade.scores["copy.recall"] == (1 if passes else 2 / 3)
    both = {"required": ["THE", "SNOW", "in NEW ENGLAND!", "MAINE RAILROAD"]}
    assert graded(poster, both).scores["copy"] is True


def test_a_real_image_without_text(shared_data: Path) -> None:
    grade = graded(shared_data / "edits" / "pendant_output.jpg", {"required": ["FOR RENT"]})
    assert grade.scores == {"copy": False, "copy.recall": 0.0, "copy.cer": 1.0}


def test_exact_copy_passes_and_all_details_are_recorded(sign: Any) -> None:
    grade = graded(sign("BUTTER & FLOUR", "20% OFF"), {"required": ["BUTTER & FLOUR", "20% OFF"], "extra": "forbid"})
    assert grade.scores == {"copy": True, "copy.recall": 1.0, "copy.cer": 0.0, "copy.doubtful_extra": 0}
    assert grade.reasons == {"copy": "all 2 required lines found, nothing extra"}
    assert grade.error is None
    assert grade.tool_versions.keys() == {"rapidocr", "onnxruntime", "model"}
    details = json.loads(json.dumps(grade.details))
    assert [line["text"] for line in details["lines"]] == ["BUTTER & FLOUR", "20% OFF"]
    assert all(len(line["box"]) == 4 and line["confidence"] > 0.9 and line["counted"] for line in details["lines"])
    assert details["found"][0] == {"line": "BUTTER & FLOUR", "read": "BUTTER & FLOUR", "readings": [0]}


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ("Fresh bread from 7 am", "required line found"),
        ("Freshbread from 7 am", '"Fresh bread from 7 am": the space between "Fresh" and "bread" is missing'),
        ("Fresh br ead from 7 am", '"Fresh bread from 7 am": a space stands within "bread"'),
    ],
)
def test_the_gaps_between_glyphs_decide_on_spaces(sign: Any, shown: str, reason: str) -> None:
    expected = {"required": ["Fresh bread from 7 am"]}
    grade = graded(sign(shown), expected, spaces="exact")
    assert (grade.scores["copy"], grade.reasons["copy"]) == (reason == "required line found", reason)
    assert graded(sign(shown), expected).scores["copy"] is True


@pytest.mark.parametrize("mode", ["CMYK", "L", "RGBA", "P"])
def test_any_kind_of_image_is_read(sign: Any, mode: str) -> None:
    assert graded(sign("GRAND OPENING", mode=mode), {"required": ["GRAND OPENING"]}).scores["copy"] is True


def test_forbidden_and_extra_text_is_named(sign: Any) -> None:
    grade = graded(sign("SALE", "TRAINING", "TRAIN"), {"required": ["SALE"], "forbidden": ["TRAIN"], "extra": "forbid"})
    assert grade.reasons["copy"] == (
        'forbidden "TRAIN" is present; extra text: TRAINING (confidence 1.00); '
        "list text that may be there under 'allowed', or raise 'min_confidence' (0.5)"
    )
    assert grade.scores["copy"] is False


def test_a_line_below_the_confidence_is_undecided(sign: Any) -> None:
    grade = graded(sign("SALE"), {"required": ["SALE"]}, min_confidence=1.0)
    assert grade.scores["copy"] is None
    assert '"SALE" was read as "SALE", at a confidence that is too low' in grade.reasons["copy"]
    assert grade.details["lines"][0]["counted"] is False


@pytest.mark.parametrize(
    ("expected", "passed", "reason"),
    [
        ({"required": ["SALE ✓"]}, None, '"SALE ✓" may be "SALE": local OCR cannot read ✓'),
        ({"required": ["SALT ✓"]}, False, 'missing "SALT ✓"'),
        ({"required": ["Жить"]}, None, '"Жить" may be there: local OCR cannot read Ж и т ь'),
        ({"forbidden": ["ŞALE"]}, None, 'forbidden "ŞALE" may be present, read as "SALE": local OCR cannot read Ş'),
        ({"forbidden": ["ŤAVA"]}, True, "nothing forbidden"),
        ({"forbidden": ["Привет"]}, None, 'forbidden "Привет" may be present: local OCR cannot read'),
        ({"allowed": ["SALE ✓"], "extra": "forbid"}, None, 'extra text "SALE" may be the expected "SALE ✓"'),
    ],
)
def test_characters_that_ocr_cannot_read_leave_it_undecided(
    sign: Any, expected: dict[str, Any], passed: bool | None, reason: str
) -> None:
    grade = graded(sign("SALE"), expected)
    assert grade.scores["copy"] is passed
    assert grade.reasons["copy"].startswith(reason)
    assert (grade.error is not None and reason in grade.error) is (passed is None)
    assert any("unreadable" in pair for pair in grade.details["unsettled"]) is (passed is None)


def test_scores_are_the_declared_metrics(sign: Any) -> None:
    for expected in ({"required": ["A"]}, {"forbidden": ["A"]}, {"extra": "forbid"}, None):
        case = TestCase.model_validate({"id": "c", "prompt": "p", "expect": {"text": expected} if expected else {}})
        declared = TextGrader(type="text", key="copy").metrics(case)
        assert graded(sign("SALE"), expected).scores.keys() == declared.keys()


def flyer(path: Path, *lines: str) -> Path:
    """Lines of text, with a ring, a magnifier and a menu icon above them."""
    image = Image.new("RGB", (560, 330), "#fdf6e3")
    pen, ink = ImageDraw.Draw(image), "#202040"
    pen.ellipse((40, 30, 100, 90), outline=ink, width=6)
    pen.ellipse((220, 30, 262, 72), outline=ink, width=6)
    pen.line((256, 66, 280, 90), fill=ink, width=8)
    for top in (30, 40, 50):
        pen.rectangle((420, top, 448, top + 2), fill=ink)
    for row, line in enumerate(lines):
        pen.text((40, 130 + 70 * row), line, font=ImageFont.load_default(size=44), fill=ink)
    image.save(path)
    return path


def test_a_flyer_with_shapes_passes_and_shows_them(tmp_path: Path, recorded_readings: None) -> None:
    expected = {"required": ["GRAND OPENING", "20% OFF"], "extra": "forbid"}
    path = flyer(tmp_path / "flyer.png", "GRAND OPENING", "20% OFF")
    grade = grading.grade(TextGrader(type="text", key="copy"), path, expect={"text": expected})
    assert grade.scores["copy"] is True
    assert grade.error is None
    items = grade.details["doubtful_extra"]
    assert 1 <= len(items) == grade.scores["copy.doubtful_extra"] <= 3
    assert [item["box"] for item in items] == [grade.details["lines"][item["reading"]]["box"] for item in items]
    assert all(f'"{item["text"]}" (confidence {item["confidence"]:.2f})' in grade.reasons["copy"] for item in items)
    assert grade.details["extra"] == []
