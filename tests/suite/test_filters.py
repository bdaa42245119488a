"""Which cases and model runs a scope means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval import TaskType
from visioneval.suite.filters import Scope, When, any_glob
from visioneval.suite.rules import VerdictRule

GENERATION, EDITING = TaskType.IMAGE_GENERATION, TaskType.IMAGE_EDITING


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*", "", True),
        ("?b", "ab", True),
        ("a[b]", "a[b]", True),
        ("a[b]", "ab", False),
        ("a[b]*", "a[b]c", True),
        ("m,quality=*", "m,quality=high", True),
        ("m.*", "m1", False),
    ],
)
def test_globs(pattern: str, text: str, matches: bool) -> None:
    assert any_glob([pattern], text) is matches
    assert any_glob(["never", pattern], text) is matches


@given(st.text(max_size=20))
def test_a_text_matches_itself(text: str) -> None:
    assert any_glob([text], text)


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        ({}, True),
        ({"cases": ["logo_*"]}, True),
        ({"cases": ["other", "logo_1"]}, True),
        ({"cases": ["other"]}, False),
        ({"tags": ["text", "none"]}, True),
        ({"tags": ["none"]}, False),
        ({"tasks": [EDITING]}, True),
        ({"tasks": [GENERATION]}, False),
        ({"models": ["m,*"]}, True),
        ({"models": ["m"]}, False),
        ({"cases": ["logo_*"], "tags": ["none"]}, False),
        ({"cases": ["logo_*"], "tags": ["text"], "tasks": [EDITING], "models": ["*high"]}, True),
    ],
)
def test_every_given_list_must_match(scope: dict[str, list[str]], covers: bool) -> None:
    created = Scope.model_validate(scope)
    assert created.covers("logo_1", EDITING, ("text", "edit"), "m,quality=high") is covers
    assert created.is_unrestricted is (not scope)


def test_graders_are_filtered_by_case_only() -> None:
    assert When(tags=("text",)).fits("a", GENERATION, ["text"])
    assert not When(tags=("text",)).fits("a", GENERATION, [])


def test_a_rule_preserves_its_text() -> None:
    assert VerdictRule(rule="  fit>= 4 ").rule == "fit>= 4"
