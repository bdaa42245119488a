"""Scores from answers: dependencies, shares, types."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.graders.gecko.grader import OnUnanswered, points, shares
from visioneval.suite.questions import GeckoQuestion


def gecko_questions(*questions: tuple[str, str, tuple[str, ...]]) -> list[GeckoQuestion]:
    return [
        GeckoQuestion(id=name, question=f"Is {name} there?", type=kind, depends_on=parents)
        for name, kind, parents in questions
    ]


def test_two_objects_and_an_action_answered_yes_no_no() -> None:
    questions = gecko_questions(("1", "object", ()), ("2", "object", ()), ("3", "action", ()))
    scored = points(questions, {"1": True, "2": False, "3": False}, "error")
    total, by_type = shares(questions, scored, "error")
    assert total == pytest.approx(1 / 3)
    assert by_type == {"object": 0.5, "action": 0.0}


CHAIN = gecko_questions(("a", "object", ()), ("b", "object", ("a",)), ("c", "object", ("b",)))


@pytest.mark.parametrize(
    ("right", "scored"),
    [
        ({"a": True, "b": True, "c": True}, [1, 1, 1]),
        ({"a": False, "b": True, "c": True}, [0, 0, 1]),  # the answer of b is right: c is not reached
        ({"a": True, "b": False, "c": True}, [1, 0, 0]),
        ({"a": False, "b": False, "c": True}, [0, 0, 0]),
    ],
)
def test_only_the_answer_of_a_direct_parent_counts(right: dict[str, bool], scored: list[int]) -> None:
    assert list(points(CHAIN, right, "error").values()) == scored


def test_ignored_dependencies_change_no_score() -> None:
    right = {"a": False, "b": True, "c": True}
    assert list(points(CHAIN, right, "error", ignore_dependencies=True).values()) == [0, 1, 1]
    unanswered = {"a": None, "b": True, "c": True}
    assert list(points(CHAIN, unanswered, "error", ignore_dependencies=True).values()) == [None, 1, 1]


@pytest.mark.parametrize(
    ("on_unanswered", "scored", "total"),
    [("error", [None, None, 1], None), ("wrong", [0, 0, 1], 1 / 3), ("skip", [None, 1, 1], 1.0)],
)
def test_a_parent_without_an_answer(on_unanswered: OnUnanswered, scored: list[Any], total: float | None) -> None:
    result = points(CHAIN, {"a": None, "b": True, "c": True}, on_unanswered)
    assert list(result.values()) == scored
    assert shares(CHAIN, result, on_unanswered)[0] == (None if total is None else pytest.approx(total))


def test_a_wrong_answer_is_wrong_for_any_parent_answer() -> None:
    assert points(CHAIN, {"a": None, "b": False, "c": True}, "error") == {"a": None, "b": 0, "c": 0}


def test_answered_types_are_measured_if_another_is_unanswered() -> None:
    questions = gecko_questions(("1", "object", ()), ("2", "color", ()))
    scored = points(questions, {"1": True, "2": None}, "error")
    assert shares(questions, scored, "error") == (None, {"object": 1.0, "color": None})


@pytest.mark.parametrize("on_unanswered", ["error", "skip"])
def test_no_answers_leave_all_scores_unmeasured(on_unanswered: OnUnanswered) -> None:
    questions = gecko_questions(("1", "object", ()))
    assert shares(questions, points(questions, {"1": None}, on_unanswered), on_unanswered) == (None, {"object": None})


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=12), st.data())
def test_dependencies_never_raise_a_score(rights: list[bool | None], data: st.DataObject) -> None:
    names = [str(at) for at in range(len(rights))]
    free = gecko_questions(*((name, "object", ()) for name in names))
    bound = [
        question.model_copy(update={"depends_on": tuple(data.draw(st.lists(st.sampled_from(names[:at]), max_size=3)))})
        if at
        else question
        for at, question in enumerate(free)
    ]
    right = dict(zip(names, rights, strict=True))
    for how in ("wrong", "skip"):
        with_them, without = points(bound, right, how), points(free, right, how)
        assert with_them.keys() == without.keys()
        for name in names:
            assert (with_them[name] is None) == (without[name] is None)
            assert (with_them[name] or 0) <= (without[name] or 0)
