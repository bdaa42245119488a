"""Invalid dependencies of gecko questions: ``drop`` removes them, ``drop_all`` all dependencies of the prompt."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from visioneval.suite.questions import (
    GeckoQuestion,
    dependency_problems,
    without_bad_dependencies,
    without_dependencies_if_any_is_bad,
)

Parents = Mapping[str, Sequence[str]]


def questions(parents: Parents) -> list[GeckoQuestion]:
    return [GeckoQuestion(id=name, question=f"{name}?", depends_on=tuple(of)) for name, of in parents.items()]


def kept(after: Sequence[GeckoQuestion]) -> dict[str, list[str]]:
    return {question.id: list(question.depends_on) for question in after if question.depends_on}


@pytest.mark.parametrize(
    ("parents", "drop", "drop_all"),
    [
        ({"a": [], "b": ["a"]}, {"b": ["a"]}, {"b": ["a"]}),
        ({"a": [], "b": ["a", "gone"], "c": ["b"]}, {"b": ["a"], "c": ["b"]}, {}),
        ({"a": ["a"], "b": ["a", "b"]}, {"b": ["a"]}, {"b": ["a"]}),  # only on itself: both drop that one
        ({"a": ["b"], "b": ["a"], "c": ["a"], "d": ["c"]}, {"c": ["a"], "d": ["c"]}, {}),  # c is behind the cycle
        ({"r": [], "a": ["b", "r"], "b": ["c"], "c": ["a"]}, {"a": ["r"]}, {}),  # r is before it
        ({"a": ["b"], "b": ["a", "c"], "c": ["b"]}, {}, {}),  # two cycles that share a question
        ({"a": ["b", "gone"], "b": ["b"]}, {"a": ["b"]}, {}),
        ({}, {}, {}),
    ],
)
def test_which_dependencies_remain(parents: Parents, drop: Parents, drop_all: Parents) -> None:
    asked = questions(parents)
    assert kept(without_bad_dependencies(asked)) == drop
    assert kept(without_dependencies_if_any_is_bad(asked)) == drop_all


def test_what_is_left_is_valid_whatever_the_order() -> None:
    chance = random.Random(4)
    for _ in range(200):
        names = [f"q{at}" for at in range(6)]
        asked = questions({name: chance.sample([*names, "gone"], chance.randrange(3)) for name in names})
        left = without_bad_dependencies(asked)
        assert not list(dependency_problems(left))
        chance.shuffle(asked)
        assert kept(without_bad_dependencies(asked)) == kept(left)
        if not list(dependency_problems(asked)):
            assert kept(asked) == kept(left)
