"""Questions as judges write them: mangled JSON is read, bad questions are dropped with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.graders.gecko.questions import (
    ParsedQuestions,
    PromptItem,
    coverage,
    questions_schema,
    read_items,
    read_json,
    read_questions,
)
from visioneval.providers.reply_json import UnreadableReplyError
from visioneval.suite.questions import MAX_QUESTIONS, TYPES

KEYWORDS = "{1}[Two] {2}[dogs] on a {3}[red] {4}[boat]"
DOGS = {"id": "q1", "keyword": 2, "question": "Are there dogs?", "choices": ["yes", "no"], "answer": "yes",
        "type": "animal", "justification": "dogs", "depends_on": []}  # fmt: skip
TWO = {**DOGS, "id": "q2", "keyword": 1, "question": "Are there two dogs?", "type": "counting", "depends_on": ["q1"]}
COMPLETE = {"keywords": KEYWORDS, "questions": [DOGS, TWO]}
TEXT = json.dumps(COMPLETE, indent=1)


def image(*questions: Any, keywords: Any = KEYWORDS) -> ParsedQuestions:
    created = read_questions({"keywords": keywords, "questions": list(questions)}, "image")
    assert isinstance(created, ParsedQuestions), created
    return created


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```",
        f"Here you are:\n\n{TEXT}\n\nI hope that this helps {{really}}.".replace("{really}", "really"),
        f"Sure!\n```json\n{TEXT}\n```\nAnything else?",
        TEXT.replace('["q1"]', '["q1",]').replace("}\n ]", "},\n ]"),
    ],
    ids=["plain", "fenced", "fence without a language", "prose", "fence in prose", "trailing commas"],
)
def test_json_in_any_dress(text: str) -> None:
    assert read_json(text) == COMPLETE


@pytest.mark.parametrize(
    "text",
    [
        *("", "I cannot do that.", "{", "[1, 2", "null", "``` ```", f"{TEXT} {TEXT[:-1]},}}"),
        TEXT.replace('"yes",\n', '"yes"\n', 1),
        TEXT.replace('"type": "animal",', '"type": "animal"', 1),
        TEXT.replace('"keyword": 2', "keyword: 2"),
    ],
)
def test_invalid_json_is_rejected(text: str) -> None:
    with pytest.raises(UnreadableReplyError):
        read_json(text.replace("dogs", "cats", 1))


def test_a_truncated_list_is_not_accepted_as_complete() -> None:
    ends = [len(TEXT) // 3, len(TEXT) // 2, TEXT.rindex("}", 0, TEXT.rindex("}")) + 1, len(TEXT) - 1]
    for end in ends:
        with pytest.raises(UnreadableReplyError, match="the JSON is incomplete"):
            read_json(TEXT[:end])


@given(st.text(max_size=80))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        created = read_questions(read_json(text), "image")
    except UnreadableReplyError:
        return
    assert isinstance(created, str)


def test_items_of_an_image_and_of_a_video() -> None:
    assert read_items(KEYWORDS, "image")[3] == PromptItem("red")
    result = read_items("{1}[grapes, object, 1.0] {2}[fall, then roll, Action, 0.5] {3}[odd]", "video")
    assert result == {
        1: PromptItem("grapes", "object", 1.0),
        2: PromptItem("fall, then roll", "action", 0.5),
        3: PromptItem("odd"),
    }


def test_usable_questions_and_their_coverage() -> None:
    created = image(DOGS, TWO)
    assert [(q.id, q.type, q.depends_on) for q in created.questions] == [
        ("q1", "animal", ()),
        ("q2", "counting", ("q1",)),
    ]
    assert coverage(created, created.questions) == 0.5
    assert coverage(created, created.questions[:1]) == 0.25
    assert coverage(image({**DOGS, "keyword": 9}), ()) == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({**TWO, "answer": "perhaps"}, "answer: 'perhaps' is not one of the choices (yes, no)"),
        ({**TWO, "answer": ""}, "answer: String should have at least 1 character"),
        ({**TWO, "id": "q1"}, "another question has the id 'q1'"),
        ({**TWO, "question": "are there  DOGS?"}, "the same question as 'q1'"),
        ({**TWO, "question": ""}, "question: Field required"),
        ({**TWO, "choices": ["red", "blue"], "answer": "red"}, "the choices are not yes and no"),
        ({**TWO, "choices": ["yes", "YES."], "answer": "yes"}, "choices: 'YES.' is listed twice"),
        ("Are there dogs?", "not an object"),
        (None, "not an object"),
    ],
)
def test_a_bad_question_is_dropped_with_the_reason(bad: Any, reason: str) -> None:
    created = image(DOGS, bad)
    assert [question.id for question in created.questions] == ["q1"]
    assert [item.reason for item in created.dropped] == [reason]


def test_an_answer_may_be_a_letter_and_an_unknown_type_is_other() -> None:
    (question,) = image({**DOGS, "answer": "b)", "type": "vibes", "choices": None}).questions
    assert (question.answer, question.type, question.choices) == ("no", "other", ("yes", "no"))


def test_over_the_limit() -> None:
    many = [{**DOGS, "id": f"q{at}", "question": f"Is dog {at} there?"} for at in range(300)]
    created = image(*many)
    assert len(created.questions) == MAX_QUESTIONS
    assert len(created.dropped) == 300 - MAX_QUESTIONS
    assert {item.reason for item in created.dropped} == {"over the limit of 100 questions"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "the answer is not a complete JSON object with the keys 'keywords' and 'questions'"),
        ([DOGS], "the answer is not a complete JSON object with the keys 'keywords' and 'questions'"),
        ({"keywords": KEYWORDS}, "the answer is not a complete JSON object with the keys 'keywords' and 'questions'"),
        ({"keywords": KEYWORDS, "questions": []}, "no question is usable"),
        ({"keywords": KEYWORDS, "questions": [5]}, "no question is usable: not an object"),
        ({"keywords": "Two dogs", "questions": [DOGS]}, "in the form {1}[word]"),
        ({"keywords": 5, "questions": [DOGS]}, "in the form {1}[word]"),
        ({"questions": [DOGS]}, "in the form {1}[word]"),
    ],
)
def test_a_reply_without_questions(data: Any, message: str) -> None:
    created = read_questions(data, "image")
    assert isinstance(created, str)
    assert created.endswith(message)


CLIP = "{1}[Grapes, object, 1.0] {2}[roll, action, 0.9] off a {3}[shelf, vibe, 0.4]"
ROLL = {"id": "q1", "keyword": 2, "question": "What do the grapes do?", "answer": "roll",
        "choices": ["burn", "roll", "melt", "float"], "justification": "roll", "depends_on": []}  # fmt: skip


def test_a_video_questions_type_is_its_items() -> None:
    created = read_questions({"keywords": CLIP, "questions": [{**ROLL, "answer": "b"}]}, "video")
    assert isinstance(created, ParsedQuestions)
    assert (created.questions[0].type, created.questions[0].answer) == ("action", "roll")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"choices": ["roll", "burn"]}, "it has 2 choices instead of 4"),
        ({"choices": ["roll", "burn", "grapes", "melt"]}, "the wrong choice 'grapes' also appears in the prompt"),
        ({"keyword": 3}, "its item 3 has no known type"),
        ({"keyword": 7}, "its item 7 has no known type"),
        ({"keyword": None}, "its item None has no known type"),
    ],
)
def test_a_bad_question_about_a_video(bad: dict[str, Any], reason: str) -> None:
    created = read_questions(
        {"keywords": CLIP, "questions": [ROLL, {**ROLL, "id": "q2", "question": "How?", **bad}]}, "video"
    )
    assert isinstance(created, ParsedQuestions)
    assert [item.reason for item in created.dropped] == [reason]


@pytest.mark.parametrize(
    "choices",
    [["a) burn", "b) roll", "c) melt", "d) float"], {"a": "burn", "b": "roll", "c": "melt", "d": "float"},
     ["(A) burn", "(B) roll", "(C) melt", "(D) float"]],
)  # fmt: skip
def test_letters_before_choices_are_no_part_of_them(choices: Any) -> None:
    created = read_questions({"keywords": CLIP, "questions": [{**ROLL, "choices": choices, "answer": "b"}]}, "video")
    assert isinstance(created, ParsedQuestions)
    assert (created.questions[0].choices, created.questions[0].answer) == (("burn", "roll", "melt", "float"), "roll")


def test_unencodable_text_is_replaced() -> None:
    odd = {**TWO, "question": "Is \ud800 there?"}
    created = image({**DOGS, "justification": "\udfff"}, odd, keywords=f"{KEYWORDS} \ud800")
    assert "\ud800" not in created.keywords + created.questions[0].justification + created.dropped[0].question


def test_the_schema_names_the_types_of_images() -> None:
    single = questions_schema("image")["properties"]["questions"]["items"]
    assert single["properties"]["type"]["enum"] == list(TYPES["image"])
    assert "type" not in questions_schema("video")["properties"]["questions"]["items"]["properties"]
