"""Which values a rendered template shows."""

from __future__ import annotations

from typing import Any

import pytest

from visioneval.templates.render import render, set_values, shown_values

LONG = "A red fox jumps over a wooden fence"


def shown(template: str, **context: Any) -> list[str]:
    return sorted(
        shown_values(set_values(context, context), context, render(template, context), lambda c: render(template, c))
    )


@pytest.mark.parametrize("prompt", [LONG, "fox", "\u8d64\u3044\u72d0", "a\nb", "?!"])
@pytest.mark.parametrize(
    ("template", "is_shown"),
    [
        ("{{ a }}", True),
        ("{{ a | upper | tojson }}", True),
        ("{{ a | reverse }}", True),
        ("{% for line in a.splitlines() %}- {{ line }}\n{% endfor %}", True),
        ("{% if a | length < 99 %}{{ a }}{% endif %}", True),
        ("{{ a | length }}", False),
        ("{{ a[:0] }}", False),
        ("{{ '' if a else a }}", False),
        ("{% if false %}{{ a }}{% endif %}", False),
        ("yes" * 20, False),
    ],
)
def test_a_value_is_shown_in_any_form_but_not_by_a_condition(template: str, prompt: str, is_shown: bool) -> None:
    assert shown(template, a=prompt) == (["a"] if is_shown else [])


@pytest.mark.parametrize(("template", "names"), [("{{ a }}", ["a"]), ("{{ b }}{{ a[:3] }}", ["b"]), ("{{ a }}{{ b }}", ["a", "b"])])  # fmt: skip
def test_values_are_checked_separately(template: str, names: list[str]) -> None:
    assert shown(template, a=LONG, b="short") == names
    assert shown(template, a="a long enough text", b=LONG) == names


@pytest.mark.parametrize("value", [None, "", " \n", [], [None], 7])
def test_a_value_without_text_is_not_set(value: Any) -> None:
    assert set_values(["a", "b"], {"a": value}) == frozenset()


def test_every_item_of_a_list_must_be_shown() -> None:
    items = ["It is tall", "It is red"]
    assert shown("{% for item in a %}{{ item }}{% endfor %}", a=items) == ["a"]
    assert shown("{{ a[0] }}", a=items) == []


def test_a_value_that_cannot_be_replaced_counts_as_shown() -> None:
    assert shown("{{ {'fox': 'renard'}[a] }}{{ b[:0] }}", a="fox", b="red") == ["a"]
