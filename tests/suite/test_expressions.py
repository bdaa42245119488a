"""Expressions of computed metrics: what they give, what they refuse, and that nothing of any size breaks the parser."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval.expressions import (
    NotForCellError,
    NoValueError,
    evaluate,
    for_case,
    kind_of,
    names_in,
    parse_expression,
)

SCORES: dict[str, Any] = {"a": 4, "b": 9.0, "zero": 0, "low": -3, "yes": True, "no": False, "none": None}
SCORES |= {"copy.recall": 0.5, "hero-copy": 2}


def value(text: str, **scores: Any) -> Any:
    return evaluate(parse_expression(text).tree, {**SCORES, **scores}, tags=("photo",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * 2", 22),
        ("(a + b) * 2", 26),
        ("a - b - 1", -6),
        ("b / a / 2", 1.125),
        ("-a ** 2", -16),
        ("2 ** -a", 0.0625),
        ("a ** 0.5", 2),
        ("--a", 4),
        ("1e2 + .5 + 5. + a", 109.5),
        ("min(a, b, 1)", 1),
        ("max(a, b)", 9),
        ("mean(a, b)", 6.5),
        ("gmean(a, b)", 6),
        ("gmean(a, zero)", 0),
        ("sqrt(min(a, b) * b)", 6),
        ("abs(low)", 3),
        ("clip(b, 0, 5)", 5),
        ("clip(low, 0, 5)", 0),
        ("copy.recall * 2", 1),
        ("'hero-copy' + \"hero-copy\"", 4),
        ("yes + yes + no", 2),
        ("where(a > 3, a, b)", 4),
        ("where(tag(photo), a, b)", 4),
        ("where(tag('on-brand'), a, b)", 9),
        ("a >= 4 and b > 8", True),
        ("a > 4 or not no", True),
        ("not a > 4 and yes", True),
        ("yes == no", False),
        ("a != 4", False),
        ("where(zero > 0, a / zero, 1)", 1),  # only the chosen branch is read
        ("where(yes, a, none)", 4),
        ("no and none > 1", False),
        ("yes or none > 1", True),
    ],
)
def test_values(text: str, expected: float) -> None:
    assert value(text) == pytest.approx(expected)


def test_comparisons_ignore_rounding_errors() -> None:
    assert value("x + y == 0.3", x=0.1, y=0.2) is True
    assert value("x + y > 0.3", x=0.1, y=0.2) is False


@pytest.mark.parametrize(
    ("text", "reason", "sources"),
    [
        ("a / zero", "division by 0", set()),
        ("a / (b - 9)", "division by 0", set()),
        ("sqrt(low)", "sqrt of -3, which is below 0", set()),
        ("gmean(a, low)", "gmean of -3, which is below 0", set()),
        ("low ** 0.5", "-3 ** 0.5 is not a number", set()),
        ("zero ** -1", "0 ** -1 is not a number", set()),
        ("clip(a, b, 0)", "clip to 9 and 0, with the low bound above the high bound", set()),
        ("(10 ** 300) * (10 ** a) ** 10", "the result is too large", set()),
        ("(b ** 300) ** b", "the result is too large", set()),
        ("a + none", "none is null", {"none"}),
        ("none and yes", "none is null", {"none"}),
        ("where(none > 1, a, b)", "none is null", {"none"}),
    ],
)
def test_no_value(text: str, reason: str, sources: set[str]) -> None:
    with pytest.raises(NoValueError) as caught:
        value(text)
    assert (str(caught.value), caught.value.sources) == (reason, sources)


def test_a_metric_that_the_cell_lacks() -> None:
    with pytest.raises(NotForCellError):
        value("a + gone")


@given(st.text(alphabet="ab.' \"()+-*/<>=!,0159enotwhrimax_\n", max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        expression = parse_expression(text)
    except ValueError:
        return
    assert set(expression.names) == set(names_in(expression.tree))


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_arithmetic_is_that_of_python(a: float, b: float) -> None:
    assert value("a * b - a / 7 + abs(b)", a=a, b=b) == a * b - a / 7 + abs(b)
    assert value("gmean(abs(a), abs(b))", a=a, b=b) == pytest.approx(math.sqrt(abs(a * b)), rel=1e-9)


def test_tags_decide_before_any_score_is_read() -> None:
    tree = parse_expression("where(tag(edit) and not tag(draft), shift, a + b)").tree
    assert set(names_in(for_case(tree, ["edit"]))) == {"shift"}
    assert set(names_in(for_case(tree, ["edit", "draft"]))) == {"a", "b"}
    assert set(names_in(for_case(parse_expression("tag(x) or a > 1").tree, ["x"]))) == set()


@pytest.mark.parametrize(
    ("text", "kind"),
    [("a + 1", "number"), ("a > 1", "bool"), ("where(yes, yes, no)", "bool"), ("where(yes, yes, 1)", "number")],
)
def test_kinds(text: str, kind: str) -> None:
    assert kind_of(parse_expression(text).tree, {"a": "number", "yes": "bool", "no": "bool"}) == kind


def test_keywords_of_python_are_names_and_other_scripts_need_quotes() -> None:
    """So that no grader's key is refused, and no sign is taken for one that looks like it."""
    assert parse_expression("pass + class.is * True - None / lambda").names == (
        "pass",
        "class.is",
        "True",
        "None",
        "lambda",
    )
    assert parse_expression("'\ufb01ne' + \"gr\u00fcn\"").names == ("\ufb01ne", "gr\u00fcn")
    with pytest.raises(ValueError, match="character 1 of the expression: unexpected"):
        parse_expression("\ufb01ne + 1")


def test_an_expression_as_long_as_a_book_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="has 2,400,001 characters, over the limit of 1,000"):
        parse_expression("a + " * 600_000 + "a")
