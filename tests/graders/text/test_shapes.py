"""Shapes that OCR reads as signs: reported as doubtful, and no reason to fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grading
import pytest
from PIL import Image, ImageDraw, ImageFont
from suite_text import suite

from visioneval.graders.text import TextGrader
from visioneval.graders.text.check import CopyCheck, check
from visioneval.graders.text.layout import Reading
from visioneval.suite.case import ExpectText

LATIN = ("Grand opening",)


def compare(text: str, confidence: float, required: tuple[str, ...] = LATIN, *, fold: bool = True) -> CopyCheck:
    readings = [*map(Reading, required), Reading(text, confidence)]
    return check(readings, ExpectText(required=required, extra="forbid"), fold=fold, min_confidence=0.5)


@pytest.mark.parametrize(
    ("text", "confidence", "required"),
    [
        ("三", 0.99, LATIN),  # another script
        ("日", 0.99, ("20% 4.50",)),  # digits have no script
        ("Ω", 0.99, LATIN),
        ("B", 0.7, LATIN),  # low confidence
        ("7", 0.7, LATIN),
        ("K7", 0.75, LATIN),
        ("II", 0.99, LATIN),  # a pause button
        ("O", 0.97, LATIN),  # a ring
        ("Q", 0.9994, LATIN),  # a magnifier
        ("V", 0.99, LATIN),
        ("三", 0.95, ("営業中",)),  # a menu icon
        ("O Free", 0.99, ("Free",)),  # before a label
        ("』Free", 0.9, ("Free",)),
        ("Free →", 0.99, ("Free",)),
    ],
)
def test_a_lone_sign_is_doubtful(text: str, confidence: float, required: tuple[str, ...]) -> None:
    readings = [Reading(text, confidence)] + [Reading(line) for line in required if line not in text]
    result = check(readings, ExpectText(required=required, extra="forbid"), fold=True, min_confidence=0.5)
    assert (result.passed, result.extra) == (True, ())
    assert [extra.confidence for extra in result.doubtful_extra] == [confidence] * (not text.endswith("→"))


@pytest.mark.parametrize(
    ("text", "confidence"),
    [("B", 0.99), ("7", 0.99), ("OK", 0.99), ("Lorem", 0.51), ("K7A", 0.6), ("$4", 0.95), ("営業", 0.95), ("?", 0.95)],
)
def test_other_text_fails(text: str, confidence: float) -> None:
    result = compare(text, confidence)
    assert (result.passed, result.doubtful_extra) == (False, ())
    assert [(extra.label, extra.confidence) for extra in result.extra] == [(text, confidence)]


def test_a_sign_of_the_expected_script_is_no_shape() -> None:
    assert compare("営", 0.99, ("営業中",)).passed is False
    assert compare("B", 0.99, ("20%",)).passed is False


def test_a_typo_beside_a_shape_fails() -> None:
    readings = [Reading("Grand openning"), Reading("O", 0.9)]
    result = check(readings, ExpectText(required=LATIN, extra="forbid"), fold=True)
    assert result.passed is False
    assert len(result.doubtful_extra) == 1


def test_nothing_is_doubtful_to_a_judge_or_where_extra_is_allowed() -> None:
    assert compare("O", 1.0, fold=False).passed is False
    allowed = check([Reading("O", 0.6)], ExpectText(forbidden=("X",)), fold=True)
    assert (allowed.extra, allowed.doubtful_extra) == ((), ())


def test_below_min_confidence_nothing_is_reported() -> None:
    assert compare("O", 0.4).doubtful_extra == ()


def copy_suite(extra: str) -> str:
    return suite(
        cases=f"cases: [{{id: one, prompt: a sign, expect: {{text: {{required: [SALE], extra: {extra}}}}}}}]",
        graders="graders: [{key: copy, type: text}]",
        verdict="verdict: [copy, copy.doubtful_extra == 0]",
    )


def test_a_rule_can_fail_doubtful_signs(problems: Callable[..., list[str]]) -> None:
    assert problems(copy_suite("forbid")) == []
    (problem,) = problems(copy_suite("allow"))
    assert "only for cases with expect.text.extra: forbid" in problem


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
    assert all(f"{item['text']} (confidence {item['confidence']:.2f})" in grade.reasons["copy"] for item in items)
    assert grade.details["extra"] == []


@pytest.mark.parametrize("read", ["(Book a table)", "[Book a table]"])
def test_brackets_around_a_whole_line_may_be_the_ends_of_a_button(read: str) -> None:
    expected = ExpectText(required=("Book a table",), extra="forbid")
    result = check([Reading(read, 0.97)], expected, fold=True)
    assert (result.passed, result.extra) == (True, ())
    assert [extra.text for extra in result.doubtful_extra] == [read[0], read[-1]]
    assert check([Reading(read, 0.97)], expected, fold=False).passed is False, "a judge reads no shapes"


@pytest.mark.parametrize(
    "read", ["(Book a table", "Book a table)", "(Book a table]", "(Book a table) now", "((Book a table))"]
)
def test_other_brackets_are_extra_text(read: str) -> None:
    result = check([Reading(read, 0.97)], ExpectText(required=("Book a table",), extra="forbid"), fold=True)
    assert result.passed is False
    assert result.extra
