"""Lines that OCR did not read as they are and that still do not fail: in parts, on a curve, faint or unread."""

from __future__ import annotations

import math
from typing import Any

import pytest

from visioneval.graders.text import TextGrader
from visioneval.graders.text.check import CopyCheck, check
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.reasons import details, reason
from visioneval.suite.case import ExpectText

CONFIG = TextGrader(type="text", key="copy")


def box(text: str, left: float, top: float, width: float, height: float = 20, **options: Any) -> Reading:
    right, bottom = left + width, top + height
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    return Reading(text, **{"corners": corners, **options})


def tilted(text: str, left: float, top: float, degrees: float, width: float = 60) -> Reading:
    turn = complex(math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))
    ends = [complex(left, top) + turn * end for end in (0, width, complex(width, 20), 20j)]
    first, second, third, fourth = ((end.real, end.imag) for end in ends)
    return Reading(text, 1.0, (first, second, third, fourth))


def compare(read: list[Reading], **expected: Any) -> CopyCheck:
    return check(read, ExpectText.model_validate(expected), fold=True, min_confidence=CONFIG.min_confidence)


def why(read: list[Reading], **expected: Any) -> str:
    return reason(CONFIG, ExpectText.model_validate(expected), read, compare(read, **expected), "ocr")


def doubts(result: CopyCheck) -> list[tuple[str, str | None, tuple[int, ...]]]:
    return [(pair.line, pair.doubt, pair.readings) for pair in result.unsettled]


NUMBER, UNIT = box("12g", 0, 0, 120, 60), box("PROTEIN", 130, 30, 100, 18)
BETWEEN = box("per bar", 130, 2, 100, 18)
"""It is read after the number, so that no reading order has the number and its unit in a row."""


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_parts_that_are_near_each_other_are_one_line(order: tuple[int, ...]) -> None:
    read = [(NUMBER, BETWEEN, UNIT)[index] for index in order]
    result = compare(read, required=["12g PROTEIN"])
    assert (result.passed, result.recall, result.cer) == (True, 1.0, 0.0)
    assert [sorted(pair.readings) for pair in result.matched] == [sorted((read.index(NUMBER), read.index(UNIT)))]
    assert compare(read, required=["12g PROTEIN"], allowed=["per bar"], extra="forbid").passed is True


@pytest.mark.parametrize(
    ("required", "unit"),
    [
        ("12g PROTEIN", box("PROTEIN", 400, 600, 100, 18)),
        ("PROTEIN 12g", UNIT),
        ("12g PROTEIN", box("PROTEIN bar", 130, 30, 150, 18)),
    ],
    ids=["far", "in the other order", "a part of a reading"],
)
def test_other_parts_are_no_line(required: str, unit: Reading) -> None:
    result = compare([NUMBER, BETWEEN, unit], required=[required])
    assert (result.passed, result.matched) == (False, ())
    assert [len(miss.parts) for miss in result.missing] == [2]


def test_parts_are_of_one_line_only() -> None:
    read = [NUMBER, BETWEEN, UNIT]
    result = compare(read, required=["12g PROTEIN", "12g PROTEIN"])
    assert (result.passed, result.recall) == (False, 0.5)
    other = box("FIBER", 130, 52, 100, 18)
    assert compare([*read, other], required=["12g PROTEIN", "12g FIBER"]).passed is False
    further = [box(item.text, item.corners[0][0], item.corners[0][1] + 500, item.corners[1][0] - item.corners[0][0],
                   item.corners[2][1] - item.corners[0][1]) for item in read if item.corners]  # fmt: skip
    assert compare([*read, *further], required=["12g PROTEIN", "12g PROTEIN"]).passed is True


def test_a_forbidden_word_within_parts_of_a_line_is_the_lines() -> None:
    read = [NUMBER, BETWEEN, UNIT]
    assert compare(read, required=["12g PROTEIN"], forbidden=["PROTEIN"]).passed is True
    assert (
        compare([*read, box("PROTEIN", 0, 400, 100)], required=["12g PROTEIN"], forbidden=["PROTEIN"]).passed is False
    )
    assert compare(read, required=["12g PROTEIN"], forbidden=["per bar"]).passed is False


@pytest.mark.parametrize(("degrees", "passed"), [(3, False), (7, False), (9, None), (40, None)])
def test_parts_that_are_tilted_against_each_other_are_undecided(degrees: float, passed: bool | None) -> None:
    read = [tilted("HAPPY", 0, 0, -degrees / 2), tilted("BIRTHDAY", 300, 0, degrees / 2)]
    result = compare(read, required=["BIRTHDAY HAPPY"])
    assert result.passed is passed
    assert [pair[1] for pair in doubts(result)] == ["curved"] * (passed is None)
    read = [tilted("HAPPY", 0, 0, -degrees / 2), tilted("BIRTDAY", 62, 0, degrees / 2)]
    assert compare(read, required=["HAPPY BIRTHDAY"]).passed is passed
    if passed is None:
        assert "in parts that are tilted against each other, as on a curve" in why(read, required=["HAPPY BIRTHDAY"])


def test_a_tilted_line_without_a_curve_fails() -> None:
    assert compare([tilted("BIRTDAY", 0, 0, 30)], required=["BIRTHDAY"]).passed is False


def test_a_forbidden_line_in_whole_readings_is_present() -> None:
    above, below = box("12g", 0, 0, 60, 60), box("PROTEIN", 0, 70, 100)
    assert [pair.line for pair in compare([above, below], forbidden=["12g PROTEIN"]).forbidden] == ["12g PROTEIN"]
    assert compare([above, below], forbidden=["PROTEIN 12g"]).passed is True


def test_one_faint_reading_is_one_of_two_required_lines() -> None:
    faint = box("SALE", 0, 0, 60, confidence=0.3)
    again = box("SALE", 0, 200, 60, confidence=0.2)
    assert compare([faint, again], required=["SALE", "SALE"]).passed is None
    result = compare([faint], required=["SALE", "SALE"])
    assert (result.passed, len(result.missing), doubts(result)) == (False, 1, [("SALE", "faint", (0,))])
    sure = box("SALE", 0, 200, 60)
    assert compare([sure, box("Qq", 0, 400, 60, confidence=0.3)], required=["SALE", "SALE"]).passed is False


@pytest.mark.parametrize(
    ("text", "confidence", "passed"),
    [
        ("Qxzv", 0.49, None),
        ("Qxzv", 0.5, False),
        ("Qxzv", 0.2, None),
        ("Qxz", 0.3, None),
        ("Qx", 0.3, False),
        (" Q ", 0.3, False),
    ],
)
def test_text_that_was_not_surely_read_may_be_a_missing_line(text: str, confidence: float, passed: bool | None) -> None:
    read = [box("Bakery", 0, 0, 60), box(text, 0, 90, 60, confidence=confidence)]
    result = compare(read, required=["Bakery", "SUMMER"])
    assert (result.passed, doubts(result)) == (passed, [("SUMMER", "unread", (1,))] * (passed is None))
    if passed is None:
        assert why(read, required=["Bakery", "SUMMER"]).startswith(
            f'"SUMMER" may be text that could not be read (curved, a logo, or too small), such as "{text}"; '
        )


def test_unsure_text_explains_only_lines_that_nothing_is_similar_to() -> None:
    unsure = box("Qxzv", 0, 90, 60, confidence=0.4)
    assert compare([box("SUMER", 0, 0, 60), unsure], required=["SUMMER"]).passed is False
    assert compare([box("Bakery", 0, 0, 60, confidence=0.6)], required=["Bakery", "SUMMER"]).passed is False, (
        "the unsure text is another required line"
    )


@pytest.mark.parametrize(("confidence", "passed"), [(0.3, None), (0.4999, None), (0.5, True)])
def test_a_line_at_a_low_confidence_is_undecided(confidence: float, passed: bool | None) -> None:
    read = [box("SALE", 5, 6, 60, confidence=confidence)]
    result = compare(read, required=["SALE"], extra="forbid")
    assert (result.passed, doubts(result)) == (passed, [("SALE", "faint", (0,))] * (passed is None))
    assert (result.recall, result.cer) == ((None, None) if passed is None else (1.0, 0.0))
    (*_, place) = details(CONFIG, read, result, "ocr")["unsettled"] or [None]
    assert (place is not None and place["box"][0] == [5, 6]) is (passed is None)


def test_a_faint_line_does_not_excuse_another() -> None:
    read = [box("SALE", 0, 0, 60, confidence=0.3), box("NEW", 0, 90, 60)]
    assert compare(read, required=["SALE", "NOW"]).passed is False
    assert compare(read[:1], required=["SALE", "NOW"]).passed is False
    assert "at a confidence that is too low" in why(read, required=["SALE", "NOW"])
    assert compare(read, forbidden=["SALE"]).passed is True, "a reading that does not count is no forbidden line"


def test_a_place_that_may_show_the_line_is_undecided() -> None:
    read = [box("SAIF", 0, 0, 60, possible="SALE"), box("NOW", 0, 90, 60)]
    result = compare(read, required=["SALE", "NOW"], extra="forbid")
    assert (result.passed, doubts(result)) == (None, [("SALE", "weak", (0,))])
    assert '"SALE" was read as "SAIF", and OCR cannot tell the two apart there' in why(read, required=["SALE", "NOW"])
    assert compare(read, required=["SALE", "SALE", "NOW"]).passed is False, "one place is one line"
    assert compare(read, required=["SALE", "OPEN"]).passed is False, "the other line is missing"
    (line, _) = details(CONFIG, read, result, "ocr")["lines"]
    assert (line["text"], line["possible"]) == ("SAIF", "SALE")


def test_a_judges_reading_leaves_no_such_doubt() -> None:
    expected = ExpectText(required=("SALE",))
    for text in ("Qxzv", "SAIE"):
        assert check([Reading(text, 0.1)], expected, fold=False).passed is False
