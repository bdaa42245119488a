from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from scripted_judge import ScriptedAnswer, ScriptedJudge, context

from visioneval import Grade, ProviderError, Reply
from visioneval.graders.text import TextGrader, ocr, second_look
from visioneval.graders.text.grader import Text
from visioneval.graders.text.layout import Reading

SALE = {"required": ["SPRING SALE", "10\u201320 % OFF"]}
BOTH = ["SPRING SALE", "10\u201320 % OFF"]


def graded(
    folder: Path,
    *output: ScriptedAnswer,
    text: dict[str, Any] = SALE,
    case: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Grade, ScriptedJudge]:
    judge = ScriptedJudge(*output)
    config = TextGrader.model_validate({"type": "text", "key": "copy", "extract": "judge", **options})
    cell = context(folder, judge, {"expect": {"text": text}, **(case or {})}, judge=config.judge)
    return asyncio.run(Text(config).grade(cell)), judge


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the output of OCR, which has its own tests; a second look finds nothing else."""
    monkeypatch.setattr(second_look, "look_again", lambda images, readings, expected, limit: readings)

    def set_readings(*lines: str, confidence: float = 0.99) -> None:
        monkeypatch.setattr(ocr, "read_flat", lambda image: [Reading(line, confidence) for line in lines])

    return set_readings


def test_a_judge_reads_line_by_line_without_seeing_the_expected_text(tmp_path: Path) -> None:
    grade, judge = graded(tmp_path, {"lines": BOTH}, judge="reader")
    assert grade.scores == {"copy": True, "copy.recall": 1.0, "copy.cer": 0.0}
    assert (grade.details["extract"], grade.details["judge"]) == ("judge", "judge-1")
    assert [line["text"] for line in grade.details["lines"]] == BOTH
    assert grade.judge_model == "judge-1"
    assert grade.template_sha256
    assert grade.schema_sha256
    assert grade.tool_versions == {}, "no OCR had a part in it"
    assert judge.names == ["reader"]
    assert len(judge.images()) == 1
    assert "SPRING" not in "".join(judge.words())
    assert judge.questions[0].schema is not None
    assert judge.questions[0].schema["required"] == ["lines"]


@pytest.mark.parametrize("read", ["10-20 % OFF", "10\u201420 % OFF", "10\u201320 % off", "1O\u201320 % OFF"])
def test_judge_readings_are_not_folded(read: str, tmp_path: Path) -> None:
    grade, _ = graded(tmp_path, {"lines": ["SPRING SALE", read]})
    assert grade.scores["copy"] is False
    assert grade.scores["copy.recall"] == 0.5
    assert f'the nearest text is "{read[:7]}' in grade.reasons["copy"]
    assert grade.details["folded"] == {}


def test_a_judge_reads_signs_that_ocr_cannot(tmp_path: Path, reads: Any) -> None:
    reads()
    text = {"required": ["\u0928\u092e\u0938\u094d\u0924\u0947"]}
    assert graded(tmp_path, {"lines": text["required"]}, text=text)[0].scores["copy"] is True
    first, judge = graded(tmp_path, {"lines": text["required"]}, text=text, extract=["ocr", "judge"])
    assert first.scores["copy"] is True
    assert len(judge.questions) == 1


def test_multi_line_and_blank_items_are_split_into_lines(tmp_path: Path) -> None:
    grade, _ = graded(tmp_path, {"lines": ["\n".join(BOTH), "", "  "]}, text={**SALE, "extra": "forbid"})
    assert grade.scores["copy"] is True
    assert len(grade.details["lines"]) == 2


def test_after_ocr_the_judge_is_asked_only_on_a_miss(tmp_path: Path, reads: Any) -> None:
    reads("SPRING SALE")
    text = {"required": ["SPRING SALE"]}
    grade, judge = graded(tmp_path, {"lines": []}, text=text, extract=["ocr", "judge"])
    assert grade.scores["copy"] is True
    assert judge.questions == []
    assert (grade.details["extract"], grade.judge_model) == ("ocr", None)
    assert "rapidocr" in grade.tool_versions

    reads("SPRNG SALE")
    grade, judge = graded(tmp_path, {"lines": ["SPRING SALE"]}, text=text, extract=["ocr", "judge"])
    assert grade.scores["copy"] is True
    assert len(judge.questions) == 1
    assert grade.details["extract"] == "judge"
    assert grade.details["ocr"]["extract"] == "ocr"
    assert grade.details["ocr"]["missing"][0]["nearest"] == "SPRNG SALE"
    assert "rapidocr" in grade.tool_versions


def test_the_judge_decides_look_alikes(tmp_path: Path, reads: Any) -> None:
    reads("BILL")
    text = {"required": ["BlLL"]}
    assert graded(tmp_path, "", text=text, extract="ocr")[0].scores["copy"] is None
    grade, _ = graded(tmp_path, {"lines": ["BlLL"]}, text=text, extract=["ocr", "judge"])
    assert (grade.scores["copy"], grade.error) == (True, None)


@pytest.mark.parametrize(("read", "confidence", "doubt"), [("SALE", 0.3, "faint"), ("Qxzv", 0.4, "unread")])
@pytest.mark.parametrize(("judged", "passed"), [("SALE", True), ("SAIE", False)])
def test_the_judge_decides_what_ocr_leaves_open(
    tmp_path: Path, reads: Any, read: str, confidence: float, doubt: str, judged: str, passed: bool
) -> None:
    reads(read, confidence=confidence)
    text = {"required": ["SALE"]}
    alone, judge = graded(tmp_path, "", text=text, extract="ocr")
    assert (alone.scores["copy"], judge.questions) == (None, [])
    grade, judge = graded(tmp_path, {"lines": [judged]}, text=text, extract=["ocr", "judge"])
    assert (grade.scores["copy"], grade.error, len(judge.questions)) == (passed, None, 1)
    assert [pair["line"] for pair in grade.details["ocr"]["unsettled"]] == ["SALE"], doubt


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (ProviderError("503: overloaded", kind="transient"), "503: overloaded"),
        ("I see a sale.", "the judge's answer does not match the schema: not JSON: it contains no JSON object"),
        ({"lines": "SPRING SALE"}, "the judge's answer does not match the schema: 'lines' is not a list of strings"),
        ({"lines": [1]}, "the judge's answer does not match the schema: 'lines' is not a list of strings"),
        ({"text": []}, "the judge's answer does not match the schema: the key 'lines' is missing"),
        ([], "the judge's answer does not match the schema: the answer is not a JSON object"),
    ],
)
def test_an_unanswered_judge_is_null_and_ocr_readings_are_recorded(
    output: Any, error: str, tmp_path: Path, reads: Any
) -> None:
    reads("SPRING")
    grade, _ = graded(tmp_path, output, text={"required": ["SPRING SALE"]}, extract=["ocr", "judge"])
    assert grade.scores == {"copy": None, "copy.recall": None, "copy.cer": None}
    assert grade.error == error
    assert grade.details["ocr"]["lines"][0]["text"] == "SPRING"
    assert len(grade.details["replies"]) == (0 if isinstance(output, ProviderError) else 2)


CRITERIA = {"criteria": "A red lamp."}
CHECKED = {"lines": BOTH, "criteria_met": True, "reason": "the lamp is red"}


def test_by_way_of_a_description_the_second_call_has_no_image(tmp_path: Path) -> None:
    seen = 'A red lamp. "SPRING SALE"'
    grade, judge = graded(tmp_path, {"description": seen}, CHECKED, describe=True, case=CRITERIA)
    assert grade.scores["copy"] is True
    assert [len(judge.images(at)) for at in (0, 1)] == [1, 0]
    assert judge.questions[0].schema is not None
    assert judge.questions[0].schema["required"] == ["description"]
    assert "A red lamp" not in judge.words(0)[0], "a description that knows what is wanted finds it"
    assert "SPRING" not in judge.words(0)[0]
    assert f'"""\n{seen}\n"""' in judge.words(1)[0]
    assert "these criteria:\n\nA red lamp.\n" in judge.words(1)[0]
    assert judge.questions[1].names == ("lines", "criteria_met", "reason")
    assert grade.details["description"] == seen
    plain, _ = graded(tmp_path, {"lines": BOTH})
    assert grade.template_sha256 != plain.template_sha256


def test_criteria_that_are_not_met_fail_with_their_reason(tmp_path: Path) -> None:
    unmet = {**CHECKED, "criteria_met": False, "reason": "the lamp is blue"}
    grade, _ = graded(tmp_path, {"description": "A blue lamp."}, unmet, describe=True, case=CRITERIA)
    assert grade.scores == {"copy": False, "copy.recall": 1.0, "copy.cer": 0.0}
    assert grade.reasons["copy"].endswith("criteria not met: the lamp is blue")
    without, judge = graded(tmp_path, {"description": "A blue lamp."}, unmet, describe=True)
    assert without.scores["copy"] is True, "a case without criteria has none to miss"
    assert '"criteria_met": true.' in judge.words(1)[0]


@pytest.mark.parametrize(
    ("described", "error"),
    [
        (Reply("A lamp, and the wor", "m", stopped="max_tokens"), "the answer was cut off (max_tokens)"),
        (Reply('{"description": "A lamp, and the wor', "m"), "the JSON is incomplete: the answer was cut off"),
        (Reply('{"description": " "}', "m"), "'description' is not text or is empty"),
        (Reply(" ", "m"), "the answer was empty"),
    ],
)
def test_a_partial_description_leaves_all_scores_null(described: Reply, error: str, tmp_path: Path) -> None:
    grade, judge = graded(tmp_path, described, describe=True)
    assert set(grade.scores.values()) == {None}
    assert grade.error == f"the judge's answer does not match the schema: {error}"
    assert grade.details["replies"] == [described.text] * 2
    assert len(judge.questions) == 2


def test_a_second_call_off_the_schema_records_all_replies(tmp_path: Path) -> None:
    output = {"description": "A lamp."}
    grade, _ = graded(tmp_path, output, {**CHECKED, "lines": 5}, describe=True)
    assert grade.error == "the judge's answer does not match the schema: 'lines' is not a list of strings"
    assert grade.details["replies"][0] == '{"description": "A lamp."}'
    assert len(grade.details["replies"]) == 3


def test_describing_is_for_judges() -> None:
    with pytest.raises(ValidationError, match="describe needs a judge"):
        TextGrader(type="text", key="copy", describe=True)
    assert TextGrader(type="text", key="copy").judge_names == ()
    assert TextGrader(type="text", key="copy", extract=("ocr", "judge")).judge_names == ("default",)


def test_a_repaired_description_is_recorded(tmp_path: Path) -> None:
    broken, checked = '{"description": "A sign.",}', {"lines": BOTH, "criteria_met": True, "reason": "r"}
    grade, _ = graded(tmp_path, broken, broken, checked, describe=True)
    assert grade.details["read"] == ["repaired"]
    grade, _ = graded(tmp_path, {"description": "A sign."}, checked, describe=True)
    assert "read" not in grade.details


@pytest.mark.parametrize(
    ("line", "spaces", "passes"),
    [("SPRINGSALE", "exact", False), ("SPR ING SALE", "exact", False), ("SPRINGSALE", "loose", True)],
)
def test_the_spaces_of_a_judges_text_count(tmp_path: Path, line: str, spaces: str, passes: bool) -> None:
    grade, _ = graded(tmp_path, {"lines": [line]}, text={"required": ["SPRING SALE"]}, spaces=spaces)
    assert grade.scores == {"copy": passes, "copy.recall": float(passes), "copy.cer": 0.0}
    assert grade.error is None
    assert ("SPRING" in grade.reasons["copy"]) is True


@pytest.mark.parametrize("lines", [["SPRING", "SALE"], ["SPRING SALE NOW"], ["S P R I N G S A L E"]])
def test_lines_and_letter_spacing_of_a_judge_are_layout(tmp_path: Path, lines: list[str]) -> None:
    grade, _ = graded(tmp_path, {"lines": lines}, text={"required": ["SPRING SALE"]})
    assert grade.scores["copy"] is True
