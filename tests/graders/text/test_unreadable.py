"""Lines with characters that local OCR cannot read: undecided where the rest was read, and never passed in silence."""

# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import pytest

from visioneval.graders.text.check import CopyCheck, check
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.reasons import doubts_of
from visioneval.suite.case import ExpectText


def compare(read: list[str], *, fold: bool = True, **expected: object) -> CopyCheck:
    readings = [Reading(text) for text in read]
    return check(readings, ExpectText.model_validate(expected), fold=fold, min_confidence=0.5)


@pytest.mark.parametrize(
    ("required", "read", "passed"),
    [
        ("ťava", ["tava"], None),
        ("ťava", ["ťava"], True),
        ("ťava", ["ava"], None),
        ("ťava", ["xyava"], None),
        ("ťava", ["xyzava"], False),
        ("ťava", ["tave"], False),
        ("ťava", ["tavan"], False),
        ("ťava", ["a tava b"], None),
        ("ťava", ["atava"], None),
        ("ťava", ["pretava"], False),
        ("ťava", [], False),
        ("Buď hotový", ["Bud'", "hotový"], None),
        ("Buď hotový", ["Bud'", "hotovy"], False),
        ("Œuvre", ["CEuvre"], None),
        ("ŒUVRE ŤAVA", ["EUVRE TAVA"], None),
        ("Done ✓", ["Done", "V"], None),
        ("Done ✓", ["Done"], None),
        ("Done ✓", ["D0ne"], None),
        ("Done ✓", ["Dane"], False),
        ("A ✓ B", ["A", "B"], None),
        ("Menu › Home", ["Menu Home"], None),
        ("Menu › Home", ["Menu > Home"], True),
        ("„Ahoj“", ["Ahoj“"], None),
        ("„Ahoj“", [',,Ahoj"'], True),
        ("„Ahoj“", ["Ahaj“"], False),
        ("¼ cup", ["½/4 cup"], None),
        ("5°C", ["5℃"], True),
        ("5°C", ["5°℃"], True),
        ("5°C", ["6℃"], False),
        ("✓", ["anything"], None),
        ("Привет", ["npnBet"], None),
        ("Привет", [], None),
        ("Привет 2024", ["Hello 2025"], None),
        ("SALE Привет BUY NOW", ["SALE BUY"], False),
    ],
)
def test_a_required_line(required: str, read: list[str], passed: bool | None) -> None:
    result = compare(read, required=[required])
    assert result.passed is passed
    assert (result.recall is None) is (passed is None)
    assert (result.cer is None) is (passed is None)


def test_another_reader_decides_the_lines_that_it_can_read() -> None:
    expected = ExpectText.model_validate({"required": ["Привет", "ťava"], "forbidden": ["Пока"]})
    readings = [Reading("Прибет"), Reading("tava")]
    assert check(readings, expected, fold=True).passed is None
    result = check(readings, expected, fold=True, legible=frozenset({"Привет", "Пока"}))
    assert [miss.line for miss in result.missing] == ["Привет"]
    assert [pair.line for pair in result.unsettled] == ["ťava"]
    assert result.unsettled_forbidden == ()


def test_each_copy_of_a_line_needs_text_of_its_own() -> None:
    assert compare(["tava"], required=["ťava", "ťava"]).passed is False
    assert compare(["tava", "tava"], required=["ťava", "ťava"]).passed is None
    assert compare(["tava"], required=["tava", "ťava"]).passed is False


def test_a_judge_can_read_everything() -> None:
    assert compare(["tava"], required=["ťava"], fold=False).passed is False
    assert compare(["Привет"], required=["Привет"], fold=False).passed is True
    assert compare(["SALE"], forbidden=["Привет"], fold=False).passed is True


def test_the_reason_names_the_line_what_was_read_and_the_characters() -> None:
    assert list(doubts_of(compare(["tava"], required=["ťava", "Привет"]))) == [
        '"ťava" may be "tava": local OCR cannot read ť',
        '"Привет" may be there: local OCR cannot read П р и в е т',
    ]
    assert list(doubts_of(compare(["lce cold"], required=["Ice cold"]))) == [
        '"Ice cold" was read as "lce cold", which differs only in look-alike characters'
    ]


@pytest.mark.parametrize(
    ("forbidden", "read", "others", "passed"),
    [
        ("ťava", ["tava"], {}, None),
        ("ťava", ["kôň"], {}, True),
        ("ťava", ["ťava"], {}, False),
        ("ťava", ["tava"], {"required": ["tava"]}, None),
        ("ťava", ["moja tava"], {"allowed": ["moja ťava"]}, True),
        ("SALE ✓", ["SALE"], {}, None),
        ("SALE ✓", ["BUY"], {}, True),
        ("Привет", ["SALE"], {}, None),
        ("Привет", [], {}, None),
    ],
)
def test_a_forbidden_line_is_never_passed_in_silence(
    forbidden: str, read: list[str], others: dict[str, list[str]], passed: bool | None
) -> None:
    result = compare(read, forbidden=[forbidden], **others)
    assert result.passed is passed
    reasons = [reason for reason in doubts_of(result) if reason.startswith(f'forbidden "{forbidden}" may be present')]
    assert len(reasons) == (passed is None)
    assert all("local OCR cannot read" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("allowed", "read", "passed"),
    [
        ("Done ✓", ["OK", "Done"], None),
        ("Done ✓", ["OK", "Done V"], None),
        ("Done ✓", ["OK", "Dane"], False),
        ("Done ✓", ["OK"], True),
        ("Привет", ["OK", "npnBet"], None),
        ("Привет", ["OK", "much longer than it"], False),
    ],
)
def test_text_that_may_be_an_allowed_line_is_not_surely_extra(
    allowed: str, read: list[str], passed: bool | None
) -> None:
    result = compare(read, required=["OK"], allowed=[allowed], extra="forbid")
    assert result.passed is passed
    doubts = list(doubts_of(result))
    assert len(doubts) == (passed is None)
    assert all(f'may be the expected "{allowed}": local OCR cannot read' in doubt for doubt in doubts)


def test_text_that_may_be_a_required_line_of_another_script_is_not_surely_extra() -> None:
    assert compare(["npnBet"], required=["Привет"], extra="forbid").passed is None
    assert compare(["npnBet", "a second line of text"], required=["Привет"], extra="forbid").passed is False
