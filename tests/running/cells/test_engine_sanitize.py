"""Converting results of custom code to plain data without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_parts import plan_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from toys import Toy

from visioneval.running.sanitize import MAX_DEPTH, Sanitizer, amount, sanitizer_for, scalar

SECRET = "hunter2-hunter2"


class Unprintable:
    def __str__(self) -> str:
        return "\ud800 thing"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None), (True, True), (np.bool_(True), True), (3, 3), (np.int64(3), 3), (2**63, None), (-(2**63), None),
        (2**63 - 1, 2**63 - 1), (0.5, 0.5), (np.float32(0.5), 0.5), (float("nan"), None), (float("-inf"), None),
        ("a\ud800b", "a?b"), (b"abc", "<3 bytes>"), (Path("a/b"), "a/b"), (Unprintable(), "? thing"),
        ((1, [2, {3}]), [1, [2, [3]]]), ({1: {"a": float("nan")}}, {"1": {"a": None}}), (np.arange(2), "[0 1]"),
    ],
)  # fmt: skip
def test_values_become_plain_data(value: Any, plain: Any) -> None:
    converted = Sanitizer()(value)
    assert converted == plain
    assert type(converted) is type(plain)
    json.dumps(converted, allow_nan=False).encode()


def test_data_that_contains_itself_ends_at_the_maximum_depth() -> None:
    endless: list[Any] = []
    endless.append(endless)
    converted, depth = Sanitizer()(endless), 0
    while isinstance(converted, list):
        (converted,), depth = converted, depth + 1
    assert (converted, depth) == ("[[...]]", MAX_DEPTH)


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), (0.5, 0.5), (True, None), ("1", None), (None, None), (float("nan"), None), (float("inf"), None), (2**63, None)],
)  # fmt: skip
def test_an_amount_is_a_finite_number(value: Any, number: float | None) -> None:
    assert amount(value) == number


def test_numpy_scalars_are_converted_and_others_unchanged() -> None:
    pair = np.arange(2)
    assert type(scalar(np.float32(0.5))) is float
    assert scalar(pair) is pair
    assert scalar("x") == "x"


def test_counts_are_integers() -> None:
    assert Sanitizer().counts({"a": 2.9, "b": "x", 3: 4, "c": float("nan")}) == {"a": 2, "3": 4}
    assert Sanitizer().counts(None) is None
    assert Sanitizer().counts({}) == {}


def test_missing_mappings_are_empty() -> None:
    assert (Sanitizer().mapping(None), Sanitizer().texts(None)) == ({}, {})


def test_secrets_are_removed_from_names_and_values() -> None:
    sanitizer = Sanitizer.around(stated=[SECRET])
    assert sanitizer.mapping({f"a {SECRET}": [SECRET, {"b": (SECRET,)}]}) == {"a ***": ["***", {"b": ["***"]}]}
    assert sanitizer.texts({SECRET: SECRET}) == {"***": "***"}
    assert sanitizer.counts({SECRET: 1}) == {"***": 1}


@pytest.mark.parametrize(
    ("value", "hides"),
    [
        (SECRET, True), (f"a {SECRET} b", True), ({"a": [{"b": SECRET}]}, True), ({SECRET: 1}, True), (("a", SECRET), True),
        ({"a": ["b", 1, None]}, False), (None, False),
    ],
)  # fmt: skip
def test_secrets_are_detected_in_plain_data(value: Any, hides: bool) -> None:
    assert Sanitizer.around(stated=[SECRET]).hides(value) is hides


NASTY = 'a "key" \\ with\nlines and ümläut'
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
DATA = st.recursive(
    PLAIN | st.sampled_from([SECRET, NASTY, f"x{NASTY}y"]),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.just(NASTY), inner),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.dictionaries(st.text() | st.sampled_from([SECRET, NASTY]), DATA))
def test_no_secret_remains_in_plain_data(value: dict[str, Any]) -> None:
    sanitizer = Sanitizer.around(stated=[SECRET, NASTY, "lone \ud800 surrogate"])
    assert not sanitizer.hides(sanitizer.mapping(value))


def texts(value: Any) -> Iterator[str]:
    """Every key and value of data, as text."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)
    else:
        yield str(value)


def test_a_secret_is_found_in_a_text_that_is_json() -> None:
    """A judge's answer is JSON, in which quotation marks, backslashes and letters may be escaped."""
    sanitizer = Sanitizer.around(stated=[NASTY])
    for answer in (json.dumps({"reason": NASTY}), json.dumps({"reason": NASTY}, ensure_ascii=False)):
        assert sanitizer.hides({"text": answer})
        assert sanitizer.mapping({"text": answer}) == {"text": '{"reason": "***"}'}


@pytest.mark.slow
@settings(max_examples=40)
@given(DATA)
@example({"a": f"x{NASTY}y"})
@example([{NASTY: 1}])
@example(("\ud800", {"a": SECRET}))
@example({"a": 1234567890})
def test_a_secret_is_found_in_every_text(value: Any) -> None:
    secrets = (SECRET, NASTY, "lone \ud800 surrogate", "34567")
    assert Sanitizer(secrets).hides(value) is any(secret in text for text in texts(value) for secret in secrets)


def test_longer_secrets_are_replaced_first() -> None:
    sanitizer = Sanitizer.around(stated=["abcdefgh", "abcdefgh-and-more"])
    assert sanitizer.text("abcdefgh-and-more, abcdefgh") == "***, ***"


def test_very_short_secrets_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_TOKEN", "1234567")
    assert Sanitizer.around().text("1234567") == "1234567"


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [
        ("KEY", True), ("SITE_KEY", True), ("site_apikey", True), ("SITE_API_KEY", True), ("MY_PASSWORD", True),
        ("MONKEY", False), ("KEY_FILE", False),
    ],
)  # fmt: skip
def test_variables_with_names_of_secrets_are_hidden(
    monkeypatch: pytest.MonkeyPatch, name: str, is_hidden: bool
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert (Sanitizer.around().text(SECRET) == "***") is is_hidden
    assert Sanitizer.around([name]).text(SECRET) == "***", "a variable that a plan names is always hidden"


def test_stated_secrets_may_be_shorter() -> None:
    assert Sanitizer.around(stated=["four", "abc"]).secrets == ("four",)


def test_a_plan_hides_its_keys_and_its_secret_variables(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_NAME", SECRET)
    models = [{"provider": "mine:Generate", "api_key_env": "PLAIN_NAME"}]
    path = toy.write(models=models, vars={"site_token": "none", "color": "red"})
    plan = plan_of(path, variables={"site_token": "1e10", "color": "bluegreen"})
    assert sanitizer_for(plan).text(f"{SECRET} 1e10 10000000000.0 bluegreen") == "*** *** *** bluegreen"
