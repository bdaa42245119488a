"""Pinned questions: every problem is reported with its position before any call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite_text import suite

from visioneval.graders.gecko.config import GeckoGrader
from visioneval.records.questions import PromptQuestions, prompt_sha256
from visioneval.report.questions import pinned_yaml
from visioneval.suite.cases.questions import GeckoQuestion
from visioneval.suite.load import LoadedSuite

Problems = Callable[..., list[str]]
JUDGE = "judges: {eye: {provider: gemini, model: g}}"
RECORDED_JUDGE = "judges: {eye: {provider: recorded, path: a.csv}}"
ANSWERS = {"a.csv": "case,question,answer\none,q1,yes\n"}


def gecko(case: str, options: str = "", judge: str = JUDGE, **changes: str) -> str:
    return suite(
        judge,
        cases=f"cases: [{{id: one, prompt: a tree, {case}}}]",
        graders=f"graders: [{{key: gecko, type: gecko, judge: eye{options}}}]",
        **{"verdict": "verdict: [gecko >= 0.5]", **changes},
    )


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("questions: []", "2:46: must not be empty; remove the key to have questions generated"),
        ("questions: [{id: a}]", "2:47: the key 'question' is missing"),
        ("questions: [{id: a, question: Q, choices: [x]}]", "2:77: choices: add at least two"),
        ("questions: [{id: a, question: Q, answer: maybe}]",
         "2:47: answer: 'maybe' is not one of the choices (yes, no)"),
        ("questions: [{id: a, question: Q, choices: [x, y, X.]}]", "2:77: choices: 'X.' is listed twice"),
        ("questions: [{id: a, question: Q}, {id: a, question: R}]", "2:74: two questions have the ID 'a'"),
        ("questions: [{id: a, question: Q}], add_questions: [{id: a, question: R}]",
         "2:91: two questions have the ID 'a'"),
        ("questions: [{id: a, question: Q, depends_on: [b]}]",
         "2:80: 'a' depends on 'b', but there is no such question"),
        ("questions: [{id: a, question: Q, depends_on: [a]}]", "2:80: 'a' depends on itself"),
        ("questions: [{id: a, question: Q, depends_on: b}, {id: b, question: R, depends_on: [a]}]",
         "2:80: the questions depend on each other in a cycle: a -> b -> a"),
        ("add_questions: [{id: a, question: Q, depends_on: [b]}]",
         "2:84: 'a' depends on 'b', but there is no such question"),
        ("questions: [{id: a, question: Q, weight: 2}]", "2:68: unknown key 'weight'"),
        ("questions: [{id: a, question: Q, type: it's}]", "2:74: type: \"it's\" contains a quote: remove it, since rules must be able to name the type"),
    ],
)  # fmt: skip
def test_bad_questions(problems: Problems, case: str, message: str) -> None:
    (line,) = problems(gecko(case))
    assert line.startswith(f"suite.yaml:{message}"), line


def test_over_a_hundred_questions(problems: Problems) -> None:
    many = ", ".join(f"{{id: q{at}, question: Is {at} there?}}" for at in range(300))
    (line,) = problems(gecko(f"questions: [{many}]"))
    assert line == "suite.yaml:2:46: questions: must have at most 100 items"


def test_bad_dependencies_may_be_dropped(problems: Problems) -> None:
    bad = "questions: [{id: 1, question: Q, depends_on: [1]}, {id: 2, question: R, depends_on: [9]}]"
    assert problems(gecko(bad, ", on_bad_dependency: drop")) == []
    assert problems(gecko(bad, ", on_bad_dependency: drop_all")) == []
    assert problems(gecko(bad, ", on_bad_dependency: all"))[0].endswith("'all' is not one of error, drop, drop_all")


def test_a_recorded_judge_generates_no_questions(problems: Problems) -> None:
    (line,) = problems(gecko("tags: [a]", judge=RECORDED_JUDGE), ANSWERS)
    assert line == "suite.yaml:2:9: the judge 'eye' replays recorded answers: add 'questions:' to the case"
    assert problems(gecko("questions: [{id: q1, question: Q}]", judge=RECORDED_JUDGE), ANSWERS) == []


def test_cells_without_an_image_are_for_recorded_judges(problems: Problems) -> None:
    blind = "models: [{provider: files, outputs: none, label: m}]"
    case = "cases: [{id: one, questions: [{id: q1, question: Q}]}]"
    assert (
        problems(
            gecko("", judge=RECORDED_JUDGE, models=blind).replace(
                "prompt: a tree, ", "questions: [{id: q1, question: Q}]"
            ),
            ANSWERS,
        )
        == []
    )
    two = "graders: [{key: gecko, type: gecko, judge: eye}, {key: image, type: properties}]"
    message = problems(
        suite(RECORDED_JUDGE, cases=case, models=blind, graders=two, verdict="verdict: [gecko >= 0]"), ANSWERS
    )
    assert message == [
        "suite.yaml:3:37: the grader 'image' needs images, but this model has none (outputs: none): use only gecko or rubric graders with a recorded judge"
    ]
    live = suite(JUDGE, cases=case, models=blind, graders="graders: [{key: gecko, type: gecko, judge: eye}]",
                 verdict="verdict: [gecko >= 0]")  # fmt: skip
    assert problems(live) == [
        "suite.yaml:3:37: the grader 'gecko' needs images, but this model has none (outputs: none): use only gecko or rubric graders with a recorded judge"
    ]
    both = "models: [{provider: files, outputs: none, label: m}, {provider: mock}]"
    message = problems(suite(RECORDED_JUDGE, cases=case, models=both, graders="graders: [{key: gecko, type: gecko, judge: eye}]",
                          verdict="verdict: [gecko >= 0]"), ANSWERS)  # fmt: skip
    assert message == ["suite.yaml:2:9: the key 'prompt' is missing"]
    message = problems(gecko("", models="models: [{provider: files, outputs: none, path: a.png}]"))
    assert message == ["suite.yaml:3:10: files takes one source of outputs, not path and outputs"]


FILE = """\
- prompt: a tree
  questions:
    - {id: q1, question: Is there a tree?, type: plant}
    - {id: 2, question: Is it green?, depends_on: q1, type: color}
"""


def test_a_file_pins_the_questions_of_its_prompts(load: Callable[..., LoadedSuite], tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(FILE)
    loaded = load(
        gecko("", ", questions: q.yaml", verdict="verdict: [gecko.color >= 1]").replace(
            "cases: [", "cases: [{id: own, prompt: a tree, questions: [{id: x, question: X, type: color}]}, "
        )
    )
    custom, single = loaded.suite.cases
    assert [question.id for question in custom.questions or ()] == ["x"]
    assert [(q.id, q.depends_on, q.choices) for q in single.questions or ()] == [
        ("q1", (), ("yes", "no")),
        ("2", ("q1",), ("yes", "no")),
    ]
    (grader,) = loaded.suite.graders
    assert list(grader.metrics(single)) == ["gecko", "gecko.plant", "gecko.color"]
    assert grader.omissible(single) == frozenset()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "q.yaml:1:1: a question file must be a list: '- prompt: ...'"),
        ("a: b", "q.yaml:1:1: a question file must be a list: '- prompt: ...'"),
        ("- {prompt: a tree}", "q.yaml:1:3: the key 'questions' is missing"),
        ("- {prompt: a tree, questions: []}", "q.yaml:1:31: questions: must not be empty"),
        ("- {questions: [{id: a, question: Q}]}", "q.yaml:1:3: an entry needs 'questions' and either 'case' or 'prompt'"),
        ("- {prompt: a bush, questions: [{id: a, question: Q}]}", "q.yaml:1:12: no case has this prompt: 'a bush'"),
        ("- {case: won, questions: [{id: a, question: Q}]}",
         "q.yaml:1:10: there is no case 'won' (did you mean 'one'?)"),
        ("- {case: one, questions: [{id: a, question: Q, answr: no}]}",
         "q.yaml:1:48: unknown key 'answr' (did you mean 'answer'?)"),
        ("- {case: one, questions: [{id: a, question: Q}, {id: a, question: R}]}",
         "q.yaml:1:54: two questions have the ID 'a'"),
        ("- {case: one, questions: [{id: a, question: Q, depends_on: [z]}]}",
         "q.yaml:1:60: 'a' depends on 'z', but there is no such question"),
        ("- {prompt: a tree, questions: [{id: a, question: Q}]}\n- {prompt: a tree, questions: [{id: a, question: Q}]}",
         "q.yaml:2:3: an earlier entry already has the questions of 'a tree'"),
        ("- [", "q.yaml:2:1: invalid YAML: "),
    ],
)  # fmt: skip
def test_a_bad_file(problems: Problems, text: str, message: str) -> None:
    (line,) = problems(gecko("", ", questions: q.yaml"), {"q.yaml": text})
    assert line.startswith(message), line


def test_a_missing_or_untrusted_file_is_reported(problems: Problems) -> None:
    (line,) = problems(gecko("", ", questions: q.yaml"))
    assert line == "suite.yaml:4:60: questions: q.yaml: no such file or directory"
    (line,) = problems(gecko("", ", questions: ../../../q.yaml"))
    assert "is outside the suite's folder" in line
    two = gecko("").replace(
        "graders: [", "graders: [{key: a, type: gecko, judge: eye, questions: a.yaml}, {key: b, type: gecko, judge: eye, questions: b.yaml}, "
    )  # fmt: skip
    lines = problems(two, {"a.yaml": FILE, "b.yaml": FILE})
    assert any("a suite can use only one question file, but another grader uses 'a.yaml'" in line for line in lines)


@pytest.mark.parametrize("source", ["generated", "pinned"])
def test_questions_written_by_the_command_can_be_pinned(
    load: Callable[..., LoadedSuite], tmp_path: Path, source: Any
) -> None:
    asked = (
        GeckoQuestion(id="q1", question="Is it: a 'tree'?", type="plant", justification='"tree"'),
        GeckoQuestion(id="q2", question="Which?", choices=("no", "1.10", "on", "oak"), answer="no", depends_on=("q1",)),
    )
    entry = PromptQuestions(prompt_sha256=prompt_sha256("a tree"), source=source, questions=asked)
    text = pinned_yaml([("a tree", ("one",), entry)])
    (tmp_path / "q.yaml").write_text(text, encoding="utf-8")
    assert load(gecko("", ", questions: q.yaml")).suite.cases[0].questions == asked


def test_generated_questions_declare_every_type_of_their_medium(load: Callable[..., LoadedSuite]) -> None:
    loaded = load(gecko("", verdict="verdict: [gecko.color >= 0.5, gecko.counting >= 0.5]"))
    (grader,), (case,) = loaded.suite.graders, loaded.suite.cases
    assert isinstance(grader, GeckoGrader)
    assert len(grader.metrics(case)) == 14
    assert grader.omissible(case) == grader.metrics(case).keys() - {"gecko"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('one,"[{""id"": ""a""}]"', "d.csv:2:1: the key 'question' is missing"),
        ('one,"[{""id"": ""a"""', "d.csv:2:1: questions: not JSON: expecting ',' delimiter"),
        ("one,\"['Is it?'\"", "d.csv:2:1: questions: not JSON: expecting value"),
        ('one,"[{""id"": 1, ""question"": ""Q"", ""depends_on"": [7]}]"',
         "d.csv:2:1: '1' depends on '7', but there is no such question"),
        ('one,"[{""id"": 1, ""question"": ""Q"", ""answer"": ""maybe""}]"',
         "d.csv:2:1: answer: 'maybe' is not one of the choices (yes, no)"),
    ],
)  # fmt: skip
def test_bad_questions_in_a_dataset_are_reported_by_row(problems: Problems, row: str, message: str) -> None:
    text = gecko("").replace(
        "cases: [{id: one, prompt: a tree, }]",
        "cases: [{dataset: {path: d.csv, fields: {id: i, prompt: i, questions: q}}}]",
    )
    (line,) = problems(text, {"d.csv": f"i,q\n{row}\n"})
    assert line.startswith(message), line
