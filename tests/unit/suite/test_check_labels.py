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


def labels_section(*questions: str, more: str = "") -> str:
    lines = "".join(f"\n    - {question}" for question in questions)
    return f"labels:{more}\n  questions:{lines}"


def rubric_suite(*more: str) -> str:
    return suite(JUDGES, *more, graders=RUBRIC, verdict="verdict: [right]")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("{key: a, ask: b, type: yes_no, choices: [x]}", "'choices' needs the type one_of or tags, not yes_no"),
        ("{key: a, ask: b, type: one_of}", "a question of type one_of needs 'choices'"),
        ("{key: a, ask: b, type: one_of, choices: [x]}", "a question of type one_of needs 'choices'"),
        ("{key: a, ask: b, type: tags}", "a question of type tags needs 'choices'"),
        ("{key: a, ask: b, type: tags, choices: [x, x]}", "choices: 'x' is listed twice"),
        ("{key: a, ask: b, type: scale}", "a question of type scale needs 'scale', such as [1, 5]"),
        ("{key: a, ask: b, type: scale, scale: [5, 1]}", "scale: 5 is not less than 1"),
        ("{key: a, ask: b, type: scale, scale: [0, 1001]}", "the scale has more than 1000 steps: use a larger 'step'"),
        ("{key: a, ask: b, type: text, scale: [1, 5]}", "'scale' needs the type scale, not text"),
        ("{key: a, ask: b, type: text, metric: right}", "'metric' needs a question of type yes_no, scale or one_of, not text"),
        ("{key: a, ask: b, type: stars}", "'stars' is not one of yes_no, one_of, scale, tags, text"),
        ("{key: a, type: yes_no}", "the key 'ask' is missing"),
        ("{key: a, ask: b, type: yes_no, metrics: x}", "unknown key 'metrics' (did you mean 'metric'?)"),
        ("{key: a b, ask: b, type: yes_no}", "is not valid"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_asked(problems: Callable[..., list[str]], question: str, message: str) -> None:
    (line,) = problems(rubric_suite(labels_section(question)), ANSWERS)
    assert line.startswith("suite.yaml:9:")
    assert message in line


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("{key: a, ask: b, type: yes_no, metric: rihgt}", "no grader writes 'rihgt' (did you mean 'right'?)"),
        ("{key: a, ask: b, type: yes_no, metric: layout}", "'layout' is a numeric metric: use the type scale"),
        ("{key: a, ask: b, type: scale, scale: [1, 5], metric: right}",
         "'right' is a yes/no metric: use the type yes_no"),
        ("{key: a, ask: b, type: scale, scale: [1, 5], metric: verdict}",
         "the verdict is yes or no: use the type yes_no"),
        ("{key: a, ask: b, type: scale, scale: [1, 10], metric: layout}",
         "the scale from 1 to 10 exceeds the rubric's scale from 0 to 5"),
    ],
)  # fmt: skip
def test_a_metric_that_cannot_be_compared(problems: Callable[..., list[str]], question: str, message: str) -> None:
    (line,) = problems(rubric_suite(labels_section(question)), ANSWERS)
    assert line == f"suite.yaml:9:{question_column(question)}: {message}"


def question_column(question: str) -> int:
    return 8 - 1 + question.index("metric: ") + len("metric: ")


def test_keys_are_unique_and_so_are_reasons(problems: Callable[..., list[str]]) -> None:
    text = labels_section(
        "{key: a, ask: b, type: yes_no}", "{key: a, ask: b, type: yes_no}", "{key: c.why, ask: b, type: text}"
    )
    result = problems(rubric_suite(text, "  pairs: [{key: a, ask: b}, {key: c, ask: b}]"), ANSWERS)
    assert [line.split(": ", 1)[1] for line in result] == [
        "two questions have the key 'a'",
        "two questions have the key 'a'",
        "two questions have the key 'c.why'",
    ]


def test_empty_labels_are_an_error(problems: Callable[..., list[str]]) -> None:
    (line,) = problems(suite("labels: {}"))
    assert "there are no questions" in line


def test_anchors_are_a_file_within_reach(problems: Callable[..., list[str]]) -> None:
    for name, message in (("none.jsonl", "none.jsonl: there is no such file"), ("/etc/passwd", "is outside")):
        (line,) = problems(suite(f"labels: {{questions: [{{key: a, ask: b, type: yes_no}}], anchors: {name}}}"))
        assert message in line
    assert problems(
        suite("labels: {questions: [{key: a, ask: b, type: yes_no}], anchors: here.jsonl}"), {"here.jsonl": ""}
    ) == []  # fmt: skip


def test_an_invalid_grader_does_not_hide_other_problems(problems: Callable[..., list[str]]) -> None:
    result = problems(
        suite(labels_section("{key: a, ask: b, type: yes_no, metric: x}"), graders="graders: [{key: i, type: imge}]")
    )
    assert len(result) == 1
    assert "imge" in result[0]


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
