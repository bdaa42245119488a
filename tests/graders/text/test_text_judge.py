from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from scripted_judge import ScriptedAnswer, ScriptedJudge, context

from visioneval import Grade
from visioneval.graders.text import TextGrader
from visioneval.graders.text.grader import Text

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


def test_describing_is_for_judges() -> None:
    with pytest.raises(ValidationError, match="describe needs a judge"):
        TextGrader(type="text", key="copy", describe=True)
    assert TextGrader(type="text", key="copy").judge_names == ()
    assert TextGrader(type="text", key="copy", extract=("ocr", "judge")).judge_names == ("default",)
