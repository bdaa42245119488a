"""Questions in the forms in which people keep them, in a suite, in a dataset and in files of other programs' runs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from suite_text import suite
from toys import Toy

from visioneval import read_records
from visioneval.suite.load import LoadedSuite
from visioneval.suite.questions import GeckoQuestion, PinnedQuestions, question_list

Load = Callable[..., LoadedSuite]
Problems = Callable[..., list[str]]
JUDGE = "judges: {eye: {provider: gemini, model: g}}"


def gecko(questions: str = "", options: str = "", cases: str = "") -> str:
    case = f"{{id: one, prompt: a tree{questions}}}"
    return suite(
        JUDGE,
        cases=cases or f"cases: [{case}]",
        graders=f"graders: [{{key: gecko, type: gecko, judge: eye{options}}}]",
        verdict="verdict: [gecko >= 0.5]",
    )


def simple(questions: Any) -> list[tuple[str, str, str]]:
    return [(question.id, question.question, question.answer) for question in questions]


Q1, Q2 = ("q1", "Is there a tree?", "yes"), ("q2", "Is it dead?", "no")
FORMS = {
    "texts": "[Is there a tree?, Is it dead?]",
    "one text": "Is there a tree?",
    "pairs": "[[Is there a tree?, 'yes'], [Is it dead?, 'no']]",
    "pairs with booleans": "[[Is there a tree?, true], [Is it dead?, false]]",
    "lists": "{questions: [Is there a tree?, Is it dead?], answers: ['yes', 'no']}",
    "lists with ids": "{id: [q1, q2], question: [Is there a tree?, Is it dead?], answer: ['yes', 'no']}",
    "objects by id": "{q1: Is there a tree?, q2: {question: Is it dead?, answer: 'no', dependencies: [q1]}}",
    "texts and answers by id": "{questions: {q1: Is there a tree?, q2: Is it dead?}, answers: {q2: 'no'}}",
    "gecko": "{qas: [{question_id: q1, question: Is there a tree?, question_type: object, choices: null}, {question_id: q2, question: Is it dead?, answer: 'no'}]}",
    "lines": '"Question: Is there a tree?\\nVerdict: no\\n\\nQuestion: Is it dead?\\nAnswer: no\\nVerdict: yes"',
    "records without ids": "[{question: Is there a tree?}, {id: null, question: Is it dead?, answer: 'no'}]",
    "gecko without ids": "{keywords: '{1}[tree]', qas: [{question: Is there a tree?}, {question: Is it dead?, answer: 'no'}]}",
    "list of gecko": "[{qas: [{question: Is there a tree?}]}, {qas: [{question: Is it dead?, answer: 'no'}]}]",
    "reply of a judge": "{keywords: '{1}[tree]', questions: [{question: Is there a tree?}, {question: Is it dead?, answer: 'no'}]}",
    "verdicts": '"<question>I see one. Question: Is there a tree? Verdict: no</question><question>Question: Is it dead?\\nAnswer: no\\nVerdict: yes"',
    "one record": "{question: Is there a tree?}",
    "rules between": '"Question: Is there a tree?\\nVerdict: no, it is not\\n---\\nQuestion: Is it dead?\\nAnswer: no\\n**"',
    "list of lines": '["Question: Is there a tree? Verdict: yes", "**Question:** Is it dead?\\n**Answer:** no"]',
}
WITHOUT_ANSWERS = {"texts", "one text", "one record"}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_the_same_questions(load: Load, name: str) -> None:
    (case,) = load(gecko(f", questions: {FORMS[name]}")).suite.cases
    expected = [Q1, (*Q2[:2], "yes") if name in WITHOUT_ANSWERS else Q2]
    assert simple(case.questions) == expected[: 1 if name.startswith("one ") else 2]


@pytest.mark.parametrize(
    ("questions", "ids"),
    [
        (", add_questions: [Is there a tree?]", ["q1"]),
        (", questions: [Is there a tree?, Is it dead?], add_questions: [Is it tall?]", ["q1", "q2", "q3"]),
        (", questions: [{question: a}], add_questions: [{question: b}, {id: q2, question: c}]", ["q1", "q3", "q2"]),
        (", questions: [{id: q2, question: a}, {question: b}, {question: c}]", ["q2", "q3", "q4"]),
        (", questions: [{id: q3, question: a}, {question: b}, {question: c}]", ["q3", "q2", "q4"]),
        (", questions: {a: b}, add_questions: [c]", ["a", "q2"]),
    ],
)
def test_numbers_go_past_the_ids_of_other_questions(load: Load, questions: str, ids: list[str]) -> None:
    (case,) = load(gecko(questions)).suite.cases
    assert [question.id for question in (*(case.questions or ()), *case.add_questions)] == ids


RECORDS = [{"question": "Is there a tree?", "justification": "a tree"}, {"question": "Is it dead?", "answer": "no"}]


@pytest.mark.parametrize("column", [RECORDS, {"qas": RECORDS}, json.dumps(RECORDS), {"keywords": "", "qas": RECORDS}])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_records_without_ids_in_a_dataset(load: Load, tmp_path: Path, column: Any, *, is_pinned: bool) -> None:
    row = {"id": "one", "prompt": "a tree", "q": column}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    if is_pinned:
        text = gecko("", ", questions: {path: rows.jsonl, fields: {case: id, questions: q}}")
    else:
        fields = "{id: id, prompt: prompt, questions: q}"
        text = gecko(cases=f"cases: [{{dataset: {{path: rows.jsonl, fields: {fields}}}}}]")
    (case,) = load(text).suite.cases
    assert simple(case.questions) == [Q1, Q2]
    assert [question.justification for question in case.questions or ()] == ["a tree", ""]


def test_records_of_several_rows_without_ids(load: Load, tmp_path: Path) -> None:
    rows = [{"id": "one", "prompt": "a tree", "q": record} for record in (*RECORDS, RECORDS[0])]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    dataset = "{path: rows.jsonl, fields: {id: id, prompt: prompt, questions: q}, group_by: id}"
    (case,) = load(gecko(cases=f"cases: [{{dataset: {dataset}}}]")).suite.cases
    assert simple(case.questions) == [Q1, Q2]


@pytest.mark.parametrize(
    ("value", "ids", "parents"),
    [
        ("0", ("1", "2"), []),
        ("1", ("1", "2"), ["1"]),
        ("1, 2", ("1", "2"), ["1", "2"]),
        ("1,outside", ("1", "2"), ["1", "outside"]),
        (0, ("1", "2"), []),
        (0, ("0", "2"), ["0"]),
        ([0], ("1", "2"), []),
        (["1", 2], ("1", "2"), ["1", "2"]),
        ("a, b", ("a, b", "2"), ["a, b"]),
        ("", ("1", "2"), []),
        (None, ("1", "2"), None),
    ],
)
def test_dependencies_are_lists_of_ids(value: Any, ids: tuple[str, str], parents: Any) -> None:
    """The Davidsonian Scene Graph's files write 0 for no parent, and several parents as text."""
    questions = [{"id": name, "question": "Q?"} for name in ids]
    questions.append({"id": "last", "question": "Q?", "dependency_id": value})  # type: ignore[dict-item]
    result = question_list(questions)[2]
    assert result.get("depends_on") == parents


def test_questions_stay_as_they_are_when_a_run_is_read() -> None:
    questions = (GeckoQuestion(id="0", question="Q?"), GeckoQuestion(id="b", question="R?", depends_on=("0",)))
    dumped = [question.model_dump(mode="json") for question in questions]
    assert [GeckoQuestion.model_validate(question) for question in question_list(dumped)] == list(questions)
    assert question_list(list(questions)) == list(questions)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("Question: x\nVerdict: no"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "question", "questions", "answers", "qas", "depends_on", "dependency_id", "a"]),
            inner,
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_data_is_questions_or_a_message(data: Any) -> None:
    """Nothing but a ``ValidationError`` leaves the model, whatever a file contains, and questions stay as they are."""
    try:
        entry = PinnedQuestions.model_validate({"case": "a", "questions": data})
    except ValidationError:
        return
    assert PinnedQuestions.model_validate(entry.model_dump(mode="json")) == entry


# --- files of pinned questions as datasets

TIFA = [
    {"id": "one", "caption": "a tree", "question": "is this a tree?", "choices": ["yes", "no"], "answer": "yes", "element_type": "object", "element": "tree"},
    {"id": "one", "caption": "a tree", "question": "what color?", "choices": ["green", "red"], "answer": "green", "element_type": "color", "element": "green"},
    {"id": "two", "caption": "a bush", "question": "is this a bush?", "choices": ["yes", "no"], "answer": "yes", "element_type": "object", "element": "bush"},
]  # fmt: skip
GECKO_ROWS = [{"prompt": "a tree", "rubric": json.dumps({"qas": [{"question_id": 1, "question": "Is it?", "question_type": "object", "choices": ["yes", "no"], "answer": "yes", "justification": "x"}]})}]  # fmt: skip
PINNED = {
    "tifa": ("q.json", json.dumps(TIFA), "{path: q.json, group_by: id, fields: {case: id, questions: {question: question, choices: choices, answer: answer, type: element_type}}}"),
    "tifa by prompt": ("q.json", json.dumps(TIFA), "{path: q.json, group_by: id, fields: {prompt: caption, questions: {question: question, choices: choices, answer: answer, type: element_type}}}"),
    "gecko": ("q.jsonl", json.dumps(GECKO_ROWS[0]), "{path: q.jsonl, fields: {prompt: prompt, questions: rubric}}"),
    "gecko by path": ("q.jsonl", json.dumps(GECKO_ROWS[0]), "{path: q.jsonl, fields: {prompt: prompt, questions: {id: 'rubric.qas[*].question_id', question: 'rubric.qas[*].question'}}}"),
    "by id": ("q.json", json.dumps({"one": ["Is it?", "Is it green?"]}), "{path: q.json, fields: {case: _key, questions: _value}}"),
    "davidsonian": ("q.csv", 'item_id,proposition_id,dependency,question\none,1,0,Is it?\none,2,"1",Green?\n', "{path: q.csv, group_by: item_id, fields: {case: item_id, questions: {id: proposition_id, question: question, depends_on: dependency}}}"),
    "three objects": ("q.json", json.dumps({"one": {"qid2question": {"1": "Is it?", "2": "Green?"}, "qid2dependency": {"1": [0], "2": [1]}}}), "{path: q.json, fields: {case: _key, questions: {question: qid2question, depends_on: qid2dependency}}}"),
}  # fmt: skip
EXPECTED = {
    "tifa": [("q1", "object", "yes", ()), ("q2", "color", "green", ())],
    "tifa by prompt": [("q1", "object", "yes", ()), ("q2", "color", "green", ())],
    "gecko": [("1", "object", "yes", ())],
    "gecko by path": [("1", "other", "yes", ())],
    "by id": [("q1", "other", "yes", ()), ("q2", "other", "yes", ())],
    "davidsonian": [("1", "other", "yes", ()), ("2", "other", "yes", ("1",))],
    "three objects": [("1", "other", "yes", ()), ("2", "other", "yes", ("1",))],
}


@pytest.mark.parametrize("name", PINNED)
def test_records_of_other_programs_pin_as_they_are(load: Load, tmp_path: Path, name: str) -> None:
    file, text, dataset = PINNED[name]
    (tmp_path / file).write_text(text)
    (case,) = load(gecko(options=f", questions: {dataset}")).suite.cases
    found = [(question.id, question.type, question.answer, question.depends_on) for question in case.questions or ()]
    assert found == EXPECTED[name]


def test_a_run_stores_a_dataset_of_questions_as_it_is_read(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("i\none\n")
    (tmp_path / "b.csv").write_text("i,q\none,Is it?\none,Green?\n")
    dataset = "{path: a.csv, join: {path: b.csv, on: i, as: b, many: true}, filter: {i: {not: [null]}}, fields: {case: i, questions: {question: 'b[*].q'}}}"
    suite = load(gecko(options=f", questions: {dataset}")).suite
    again = type(suite).model_validate_json(suite.model_dump_json())
    assert again == suite
    assert [question.question for question in again.cases[0].questions or ()] == ["Is it?", "Green?"]


def test_dependencies_may_be_ignored(problems: Problems, load: Load) -> None:
    bad = ", questions: [{id: 1, question: Q, depends_on: [9]}]"
    assert problems(gecko(bad, ", dependencies: ignore")) == []
    assert problems(gecko(bad))[0].endswith("'1' depends on '9', but there is no such question")
    assert problems(gecko(options=", dependencies: drop"))[0].endswith("'drop' is not one of use, ignore")


def test_the_davidsonian_rows_are_a_suite_without_a_converter(shared_data: Path, load: Load) -> None:
    """All five models' rows of the published file: a question is asked once, whatever its number of rows."""
    path = shared_data / "dsg_tifa160" / "answers_pali17b.csv"
    dataset = f"{{path: {path}, group_by: item_id, fields: {{id: item_id, questions: {{id: question_id, question: question, depends_on: dependency_id}}}}, defaults: {{prompt: x}}}}"
    text = gecko(options=", on_bad_dependency: drop_all", cases=f"cases: [{{dataset: {dataset}}}]")
    suite_cases = load(text, trust=True).suite.cases
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    asked = {(row["item_id"], row["question_id"]) for row in rows}
    assert len(suite_cases) == len({row["item_id"] for row in rows}) == 159
    assert sum(len(case.questions or ()) for case in suite_cases) == len(asked)


def test_the_tifa_sample_is_pinned_without_a_converter(shared_data: Path, load: Load) -> None:
    folder = shared_data / "tifa_sample"
    dataset = f"{{path: {folder}/sample_question_answers.json, group_by: id, fields: {{case: id, questions: {{question: question, choices: choices, answer: answer, type: element_type}}}}}}"
    cases = f"cases: [{{dataset: {{path: {folder}/sample_text_inputs.json, fields: {{id: id, prompt: caption}}}}}}]"
    loaded = load(gecko(options=f", questions: {dataset}", cases=cases), trust=True)
    published = json.loads((folder / "sample_question_answers.json").read_text())
    for case in loaded.suite.cases:
        expected = [(row["question"], row["answer"]) for row in published if row["id"] == case.id]
        assert [(question.question, question.answer) for question in case.questions or ()] == expected
        assert expected


def test_a_justification_is_in_the_record_and_in_show(toy: Toy, tmp_path: Path) -> None:
    questions = "{qas: [{question: Is there a tree?, justification: a tree}, {question: Is it dead?, answer: 'no'}]}"
    (tmp_path / "answers.csv").write_text("case,question,answer\none,Is there a tree?,yes\none,q2,no\n")
    text = suite(
        "judges: {eye: {provider: recorded, path: answers.csv}}",
        cases=f"cases: [{{id: one, prompt: a tree, questions: {questions}}}]",
        graders="graders: [{key: gecko, type: gecko, judge: eye}]",
        verdict="verdict: [gecko >= 0.5]",
    )
    (tmp_path / "suite.yaml").write_text(text)
    run = toy("run", "suite.yaml", "--run-id", "r", "--runs", "runs")
    assert run.exit_code == 0, run.output
    (record,) = read_records(tmp_path / "runs" / "r")
    first, second = record.graders[0].details["questions"]
    assert (first["id"], first["justification"], second["id"]) == ("q1", "a tree", "q2")
    assert "justification" not in second
    assert re.search(r"Is there a tree\?\s+Answered yes\.\s+a tree", toy("show", "runs/r", "one").output)
