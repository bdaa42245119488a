"""``labels:`` in a suite: questions, answers, and every problem with its position."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from record_factory import info
from suite_text import suite

from visioneval.suite.labels import LabelQuestion
from visioneval.suite.load import LoadedSuite

RUBRIC = (
    "graders: [{key: look, type: rubric, metrics: {layout: {type: score, scale: [0, 5], description: order}, "
    "right: {type: pass_fail, description: is it right}}}]"
)
JUDGES = "judges: {default: {provider: recorded, path: answers.csv}}"
ANSWERS = {"answers.csv": "case,question,answer\none,layout,3\none,right,yes\n"}


def rubric_suite(*more: str) -> str:
    return suite(JUDGES, *more, graders=RUBRIC, verdict="verdict: [right]")


@pytest.mark.parametrize(
    ("options", "good", "bad"),
    [
        ({"type": "yes_no"}, [True, False, None], [1, "yes", "true", []]),
        ({"type": "scale", "scale": [1, 5]}, [1, 5, 3.0, None], [0, 6, 2.5, True, "3", float("nan")]),
        ({"type": "scale", "scale": [0, 1], "step": 0.1}, [0, 0.1 * 3, 0.7, 1.0], [0.05, 1.1, False]),
        ({"type": "scale", "scale": [0, 1000]}, [0, 777, 1000.0], [1001, -1, 0.5, float("inf"), float("-inf")]),
        ({"type": "scale", "scale": [0, 1], "step": 0.001}, [0.123, 0.999], [0.1235, 1.001]),
        ({"type": "one_of", "choices": ["none", "minor"]}, ["none", None], ["None", "", ["none"], 1]),
        ({"type": "tags", "choices": ["a", "b"]}, [[], ["b", "a"], ("a",), None], ["a", ["c"], ["a", "a"], [1], 1]),
        ({"type": "text"}, ["x", None], ["", "  ", 1, "x" * 10_001]),
    ],
)
def test_answer_types_of_label_questions(options: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    question = LabelQuestion.model_validate({"key": "q", "ask": "?", **options})
    assert [question.answer_problem(answer) for answer in good] == [None] * len(good)
    assert all(question.answer_problem(answer) for answer in bad)


def test_steps_of_a_scale_are_plain_numbers() -> None:
    question = LabelQuestion.model_validate({"key": "q", "ask": "?", "type": "scale", "scale": [0, 1], "step": 0.1})
    assert question.steps == (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
    whole = LabelQuestion.model_validate({"key": "q", "ask": "?", "type": "scale", "scale": [1, 5]})
    assert whole.steps == (1, 2, 3, 4, 5)
    assert all(type(step) is int for step in whole.steps)


def test_default_label_questions_come_from_the_rubrics(load: Callable[..., LoadedSuite], tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text(ANSWERS["answers.csv"])
    result = load(rubric_suite()).suite.resolved_labels
    assert [(item.key, item.type, item.metric) for item in result.questions] == [
        ("usable", "yes_no", "verdict"),
        ("as_asked", "yes_no", None),
        ("layout", "scale", "layout"),
        ("right", "yes_no", "right"),
        ("note", "text", None),
    ]
    assert [pair.key for pair in result.pairs] == ["preferred"]
    assert info().suite.labels is None
    assert [item.key for item in info().suite.resolved_labels.questions] == ["usable", "as_asked", "note"]
