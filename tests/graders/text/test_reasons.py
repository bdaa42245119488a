"""What the reason and the details of a `text` grader say about lines that are not as they should be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from visioneval.graders.text import TextGrader
from visioneval.graders.text.check import CopyCheck, check
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.reasons import MAX_QUOTED, details, quoted, reason
from visioneval.suite.case import ExpectText

CONFIG = TextGrader(type="text", key="copy")


def compared(read: list[Reading], expected: ExpectText, reader: str = "ocr") -> CopyCheck:
    fold = reader == "ocr"
    return check(read, expected, fold=fold, min_confidence=CONFIG.min_confidence if fold else 0.0)


def why(read: list[str] | list[Reading], required: list[str], reader: str = "ocr", **expected: Any) -> str:
    readings = [item if isinstance(item, Reading) else Reading(item) for item in read]
    wanted = ExpectText(required=tuple(required), **expected)
    return reason(CONFIG, wanted, readings, compared(readings, wanted, reader), reader)


def recorded(read: list[Reading], **expected: Any) -> dict[str, Any]:
    wanted = ExpectText.model_validate(expected)
    return details(CONFIG, read, compared(read, wanted), "ocr")


def reading(text: str, left: float, top: float, width: float, angle: float = 0, confidence: float = 1.0) -> Reading:
    """Text of 20 pixels in height, turned by degrees clockwise around its top left corner."""
    turn = complex(math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    corners = [complex(left, top) + turn * complex(x, y) for x, y in ((0, 0), (width, 0), (width, 20), (0, 20))]
    first, second, third, fourth = ((round(c.real, 1), round(c.imag, 1)) for c in corners)
    return Reading(text, confidence, (first, second, third, fourth))


@pytest.mark.parametrize(
    ("required", "read", "cause"),
    [
        ("BOSTON AND MAINE", "Boston and Maine", "differs only in case"),
        ("weiß", "WEIẞ", "differs only in case"),
        ("Straße", "strAße", "differs only in case"),
        ("Ready?", "Ready!", "differs only in the mark at the end: missing ? at 6"),
        ("Ready", "Rea,dy", "differs only in punctuation: extra , at 4"),
        ("Ready?", "Reody?", "o instead of a at 3"),
        ("Ready?", "reody?", "r instead of R at 1, o instead of a at 3"),
    ],
)
def test_the_kind_of_difference_is_named(required: str, read: str, cause: str) -> None:
    text = why(["Open daily", read], [required])
    assert text.startswith(f'missing "{required}": the nearest text is "')
    assert text.endswith(f'" ({cause})')


def test_the_same_text_in_another_case_is_not_extra() -> None:
    text = why(["boston", "HELLO"], ["BOSTON"], extra="forbid")
    assert 'the nearest text is "boston"' in text
    assert "extra text: HELLO" in text
    assert "extra text: boston" not in text


def test_the_reading_of_another_line_in_another_case_is_not_named() -> None:
    assert why(["Sale"], ["Sale", "SALE"]) == 'missing "SALE": nothing similar was read in 1 line of text'


def test_a_line_that_stands_too_seldom() -> None:
    assert why(["Sale"], ["Sale", "Sale"]) == 'missing "Sale" (1 of 2 found): nothing else that was read is similar'
    assert (
        why(["Hello"], ["Sale", "Sale"]) == 'missing "Sale" (0 of 2 found): nothing similar was read in 1 line of text'
    )


def test_parts_that_are_the_whole_line_are_listed() -> None:
    text = why(["PROTEIN bar", "GLUTEN FREE", "12g"], ["12g PROTEIN"])
    assert text == 'missing "12g PROTEIN": read in parts: "12g" and "PROTEIN"'
    text = why(["love", "people you", "made for"], ["made for people you love"])
    assert text.endswith('read in parts: "made for", "people you" and "love"')


@pytest.mark.parametrize("read", [["PROTEIN", "x", "12"], ["PROTEIN", "x"]])
def test_a_line_with_a_part_that_was_not_read_is_not_in_parts(read: list[str]) -> None:
    assert 'the nearest text is "PROTEIN"' in why(read, ["12g PROTEIN"])


def test_a_text_is_a_part_only_once() -> None:
    assert "parts" not in why(["NOW BUY"], ["BUY NOW BUY"])
    assert "parts" not in why(["12g", "x", "PROTEIN"], ["12g PROTEIN", "12g"]), "one is of the other line"


def test_parts_are_not_extra() -> None:
    text = why(["PROTEIN", "GLUTEN", "12g"], ["12g PROTEIN"], extra="forbid")
    assert [part for part in text.split("; ") if part.startswith("extra")] == ["extra text: GLUTEN (confidence 1.00)"]


@pytest.mark.parametrize(
    ("read", "reader", "cause"),
    [
        ([], "ocr", "no text was found on the image (curved, a logo, or a script that OCR cannot read?)"),
        ([], "judge", "the judge read no text"),
        (["XYZ"], "ocr", "nothing similar was read in 1 line of text"),
        (["XYZ", "UVW"], "judge", "nothing similar was read in 2 lines of text"),
        ([Reading("XY", 0.3)], "ocr", "nothing was read at a confidence of at least 0.5"),
        ([Reading("XY", 0.3), Reading("UVW", 0.9)], "ocr", "nothing similar was read in 1 line of text"),
    ],
)
def test_lines_without_a_similar_reading_share_a_reason(read: Any, reader: str, cause: str) -> None:
    assert why(read, ["BUTTER", "FLOUR"], reader) == f'missing "BUTTER", "FLOUR": {cause}'


def test_long_texts_are_one_line_and_cut_in_the_middle() -> None:
    line = f"{'word ' * 40}end."
    assert quoted(line).startswith('"word word')
    assert quoted(line).endswith('end."')
    assert " \u2026 " in quoted(line)
    assert len(quoted(line)) <= MAX_QUOTED + 2
    assert quoted("a\n b") == '"a b"'
    assert quoted("x" * MAX_QUOTED) == f'"{"x" * MAX_QUOTED}"'
    assert "\u2026" in why([line.replace("end", "and")], [line])


def test_missing_lines_have_the_place_of_what_was_read() -> None:
    read = [reading("Boston", 10, 10, 60), reading("FLOOR", 10, 50, 50), reading("Faint", 10, 90, 50, confidence=0.2)]
    found = recorded(read, required=["BOSTON", "FLOUR", "Faint", "QQQQ"])
    boxes = [[list(corner) for corner in item.corners or ()] for item in read]
    assert [item.get("box") for item in found["missing"]] == [*boxes[:2], None]
    assert [item["box"] for item in found["unsettled"]] == boxes[2:]


def test_parts_have_places_of_their_own() -> None:
    read = [reading("PROTEIN", 10, 10, 60), reading("GLUTEN FREE", 300, 300, 90), reading("12g", 400, 10, 30)]
    (item,) = recorded(read, required=["12g PROTEIN"])["missing"]
    assert [(part["line"], part["readings"], part["box"][0]) for part in item["parts"]] == [
        ("12g", [2], [400, 10]),
        ("PROTEIN", [0], [10, 10]),
    ]


@pytest.mark.parametrize("angle", [0, 20, -35])
def test_a_place_over_two_readings_is_around_both_in_their_direction(angle: float) -> None:
    turn = complex(math.cos(math.radians(angle)), math.sin(math.radians(angle)))
    below = complex(200, 200) + turn * 24j
    read = [reading("BOSTON", 200, 200, 60, angle), reading("AMD MAINE", below.real, below.imag, 90, angle)]
    (item,) = recorded(read, required=["BOSTON AND MAINE"])["missing"]
    assert item["nearest"] == "BOSTON AMD MAINE"
    wanted = [complex(200, 200) + turn * complex(x, y) for x, y in ((0, 0), (90, 0), (90, 44), (0, 44))]
    assert [complex(*corner) for corner in item["box"]] == [pytest.approx(corner, abs=0.3) for corner in wanted]


def test_forbidden_uncertain_and_extra_text_has_its_place() -> None:
    read = [
        reading("TRAIN", 1, 2, 30),
        reading("0IL", 50, 2, 30),
        reading("20% 0FF", 1, 70, 40),
        reading("Hey", 1, 99, 9),
    ]
    found = recorded(read, required=["20% OFF"], forbidden=["TRAIN", "OIL"], extra="forbid")
    boxes = [[list(corner) for corner in item.corners or ()] for item in read]
    assert [item["box"] for item in found["forbidden"]] == [boxes[0]]
    assert [item["box"] for item in found["unsettled"]] == [boxes[2], boxes[1]]
    assert [(item["text"], item["reading"], item["box"]) for item in found["extra"]] == [("Hey", 3, boxes[3])]


def test_a_text_without_a_place_has_no_box() -> None:
    found = recorded([Reading("FLOOR"), Reading("Hey")], required=["FLOUR"], extra="forbid")
    assert "box" not in found["missing"][0]
    assert "box" not in found["extra"][0]
