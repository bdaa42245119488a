"""What counts as an answer, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from visioneval.graders.gecko import choice_of
from visioneval.graders.gecko.answers import answer_faults, read_answers
from visioneval.suite.questions import GeckoQuestion

YES_NO = GeckoQuestion(id="q1", question="Is there a dog?")
COLOUR = GeckoQuestion(
    id="q2", question="Which colour?", choices=("blue", "red", "sea green", "a dark grey"), answer="red", type="color"
)


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("yes", 0), ("Yes.", 0), ("YES", 0), (" no ", 1), ("No!", 1), ('"yes"', 0), ("a", 0), ("B", 1), ("(b)", 1),
        ("a) yes", 0), ("b. No", 1), ("**a**", 0), ("\uff59\uff45\uff53", 0),
        ("Yes, there is a dog.", None), ("There is no dog", None), ("yes and no", None), ("c", None), ("", None),
        ("none of them", None), ("a) no", None), ("yesterday", None), ("true", None), ("I see: yes", None),
    ],
)  # fmt: skip
def test_yes_or_no(answer: str, choice: int | None) -> None:
    assert choice_of(YES_NO, answer) == choice


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("b) red", 1), ("red", 1), ("Red.", 1), ("(b) RED", 1), ("b: red", 1), ("SEA   green", 2), ("A dark grey", 3),
        ("e", 4), ("e)", 4), ("e) none of them", 4), ("None of them.", 4), ("none", 4), ("none of the above", 4),
        ("b) blue", None), ("reddish", None), ("red or blue", None), ("green", None), ("f", None),
        ("a dark grey dog", None), ("b red", None), ("The answer is b", None),
    ],
)  # fmt: skip
def test_an_answer_selects_one_choice(answer: str, choice: int | None) -> None:
    assert choice_of(COLOUR, answer) == choice


def test_a_single_letter_choice_is_matched_by_its_text() -> None:
    question = GeckoQuestion(id="q", question="Which letter is on the sign?", choices=("b", "a"), answer="a")
    assert choice_of(question, "a") == 1


def parsed_answers(data: dict[str, Any]) -> dict[str, tuple[str, int | None, str | None]]:
    result, _ = read_answers([YES_NO, COLOUR], data)
    return {name: (item.answer, item.choice, item.fault) for name, item in result.items()}


def test_answers_match_by_id_and_not_by_order() -> None:
    data = {"answers": [{"id": "q2", "answer": "b", "reason": "it is red"}, {"id": "q1", "answer": "no"}]}
    result, unasked = read_answers([YES_NO, COLOUR], data)
    assert (result["q1"].choice, result["q2"].choice, result["q2"].reason, unasked) == (1, 1, "it is red", [])


def test_answers_to_unknown_questions_are_separated() -> None:
    data = {"answers": [{"id": "q9", "answer": "yes"}, {"id": "q1", "answer": "yes"}]}
    assert parsed_answers(data) == {"q1": ("yes", 0, None), "q2": ("", None, "no answer")}
    assert read_answers([YES_NO, COLOUR], data)[1] == ["q9"]


@pytest.mark.parametrize(
    ("second", "stored"), [("Yes.", ("Yes.", 0, None)), ("no", ("yes / no", None, "two different answers"))]
)
def test_a_question_answered_twice(second: str, stored: tuple[str, int | None, str | None]) -> None:
    assert parsed_answers({"answers": [{"id": "q1", "answer": "yes"}, {"id": "q1", "answer": second}]})["q1"] == stored


@pytest.mark.parametrize(("value", "choice"), [(True, 0), (False, 1), (None, None), (1, None), ("", None)])
def test_values_that_are_no_text(value: Any, choice: int | None) -> None:
    assert parsed_answers({"answers": [{"id": "q1", "answer": value}]})["q1"][1] == choice


def test_a_plain_mapping_of_ids_is_understood() -> None:
    assert answer_faults([YES_NO, COLOUR], {"q1": "yes", "q2": "red"}) == []
    assert parsed_answers({"q1": "yes", "q2": "red"}) == {"q1": ("yes", 0, None), "q2": ("red", 1, None)}


@pytest.mark.parametrize(
    "data",
    [None, [], "yes", 5, {}, {"q9": "yes"}, {"answers": "yes"}, {"answers": ["yes"]}, {"answers": [{"id": "q1"}]}],
)
def test_invalid_lists_of_answers_are_rejected(data: Any) -> None:
    assert len(answer_faults([YES_NO, COLOUR], data)) == 1
