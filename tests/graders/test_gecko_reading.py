"""Questions as judges write them: mangled JSON is read, bad questions are dropped with the reason."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from visioneval.graders.gecko.questions import (
    ParsedQuestions,
    PromptItem,
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


def image(*questions: Any, keywords: Any = KEYWORDS) -> ParsedQuestions:
    created = read_questions({"keywords": keywords, "questions": list(questions)}, "image")
    assert isinstance(created, ParsedQuestions), created
    return created


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


def test_over_the_limit() -> None:
    many = [{**DOGS, "id": f"q{at}", "question": f"Is dog {at} there?"} for at in range(300)]
    created = image(*many)
    assert len(created.questions) == MAX_QUESTIONS
    assert len(created.dropped) == 300 - MAX_QUESTIONS
    assert {item.reason for item in created.dropped} == {"over the limit of 100 questions"}


def test_unencodable_text_is_replaced() -> None:
    odd = {**TWO, "question": "Is \ud800 there?"}
    created = image({**DOGS, "justification": "\udfff"}, odd, keywords=f"{KEYWORDS} \ud800")
    assert "\ud800" not in created.keywords + created.questions[0].justification + created.dropped[0].question


def test_the_schema_names_the_types_of_images() -> None:
    single = questions_schema("image")["properties"]["questions"]["items"]
    assert single["properties"]["type"]["enum"] == list(TYPES["image"])
    assert "type" not in questions_schema("video")["properties"]["questions"]["items"]["properties"]
