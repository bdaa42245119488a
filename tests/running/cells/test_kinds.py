"""The kinds of graders: every layer has its part of each, and each knows which cases and comparisons it is about."""

from __future__ import annotations

from typing import Any

import pytest

from visioneval import TestCase
from visioneval.plugins import GRADERS, config_of
from visioneval.running.runner import WORK
from visioneval.suite.entries.graders import (
    CASES,
    CELL,
    KINDS,
    PAIR,
    QUESTIONS,
    SAMPLES,
    GraderKind,
    of_kind,
    options_of_type,
)


def grader(kind: str, **options: Any) -> Any:
    return config_of(GRADERS, kind).model_validate({"key": kind, "type": kind, **options})


def case(**fields: Any) -> TestCase:
    return TestCase.model_validate({"id": "one", "prompt": "a tree", **fields})


def test_every_kind_that_compares_outputs_has_its_work_and_its_file() -> None:
    assert set(WORK) == {kind for kind in KINDS if not kind.grades_cells}
    assert {kind.file for kind in WORK} == {"preferences.jsonl", "diversity.jsonl", "duplicates.jsonl"}


@pytest.mark.parametrize(
    ("kind", "about_another", "about_a_later_turn"),
    [(CELL, True, True), (QUESTIONS, True, True), (PAIR, False, False), (SAMPLES, False, True), (CASES, False, True)],
)
def test_cases_of_a_kind(kind: GraderKind, about_another: bool, about_a_later_turn: bool) -> None:
    assert kind.is_for(case())
    assert kind.is_for(case(output_of="another")) is about_another
    assert kind.is_for(case().model_copy(update={"id": "one/2"})) is about_a_later_turn


@pytest.mark.parametrize(
    ("kind", "samples", "comparisons"),
    [
        (CELL, [3, 3], 0),
        (QUESTIONS, [3, 3], 0),
        (PAIR, [], 0),
        (PAIR, [4], 0),
        (PAIR, [4, 2], 2),
        (PAIR, [4, 2, 3], 2 + 3 + 2),
        (SAMPLES, [1, 1], 0),
        (SAMPLES, [4, 2], 6 + 1),
        (CASES, [4, 2], 6),
    ],
)
def test_comparisons_of_a_case(kind: GraderKind, samples: list[int], comparisons: int) -> None:
    assert kind.comparisons(samples) == comparisons


def test_graders_have_a_kind() -> None:
    graders = [grader(name) for name in ("properties", "pairwise", "diversity", "duplicates", "alignment", "gecko")]
    assert [item.key for item in of_kind(graders, CELL)] == ["properties", "alignment"]
    assert [item.key for item in of_kind(graders, QUESTIONS)] == ["gecko"]
    assert [item.key for item in of_kind(graders, PAIR)] == ["pairwise"]
    assert [item.key for item in of_kind(graders, SAMPLES)] == ["diversity"]
    assert [item.key for item in of_kind(graders, CASES)] == ["duplicates"]


def test_a_question_about_a_pair_shows_two_outputs() -> None:
    assert [kind.shown for kind in KINDS] == [1, 1, 2, 1, 1]


def test_what_scores_and_votes_are_about_is_known_of_a_type_and_of_no_unknown_one() -> None:
    """An unknown type's votes are redacted, and its scores count for counter-examples."""
    types = {name: options_of_type(name) for name in (*GRADERS, "acme", "acme:Grader")}
    assert {name for name, options in types.items() if options.scores_match} == {"gecko", "alignment"}
    assert {name for name, options in types.items() if options.votes_in_own_words} == {"rubric"}
