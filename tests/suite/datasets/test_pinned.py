"""Pinned questions: every problem is reported with its position before any call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suite_text import suite

from visioneval.graders.gecko import GeckoGrader
from visioneval.records.questions import PromptQuestions, prompt_sha256
from visioneval.report.judges import pinned_yaml
from visioneval.suite.load import LoadedSuite
from visioneval.suite.questions import GeckoQuestion

Problems = Callable[..., list[str]]
JUDGE = "judges: {eye: {provider: gemini, model: g}}"


def gecko(case: str, options: str = "", judge: str = JUDGE, **changes: str) -> str:
    return suite(
        judge,
        cases=f"cases: [{{id: one, prompt: a tree, {case}}}]",
        graders=f"graders: [{{key: gecko, type: gecko, judge: eye{options}}}]",
        **{"verdict": "verdict: [gecko >= 0.5]", **changes},
    )


def test_over_a_hundred_questions(problems: Problems) -> None:
    many = ", ".join(f"{{id: q{at}, question: Is {at} there?}}" for at in range(300))
    (line,) = problems(gecko(f"questions: [{many}]"))
    assert line == "suite.yaml:2:46: questions: must have at most 100 items"


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
