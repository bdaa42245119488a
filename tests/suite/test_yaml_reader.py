"""YAML 1.2 as plain data, positions, and errors with positions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visioneval import SuiteError
from visioneval.suite.loading.document import MAX_DEPTH, decode, parse_scalar, read_positions, read_yaml
from visioneval.suite.messages import as_written


def refusal(text: str) -> str:
    with pytest.raises(SuiteError) as caught:
        read_yaml(text, "s.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    "text", ["no", "yes", "on", "off", "y", "4:30", "2024-01-31", "1_000", "=", "0b1", ".inf", ".nan"]
)
def test_yaml_1_2_strings_are_strings(text: str) -> None:
    assert read_yaml(f"a: {text}", "s")["a"] == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("~", None),
        ("null", None),
        ("", None),
        ("true", True),
        ("False", False),
        ("0x1F", 31),
        ("0o17", 15),
        ("017", 17),
        ("-3", -3),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ('"5"', "5"),
        ("'null'", "null"),
        ("!!str 5", "5"),
        ("1e999", "1e999"),
        ("9" * 100, int("9" * 100)),
        ("9" * 101, "9" * 101),
        ("0x" + "f" * 5000, "0x" + "f" * 5000),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    read = read_yaml(f"a: {text}", "s")["a"]
    assert read == value
    assert type(read) is type(value) or isinstance(read, float)


def test_a_float_is_shown_as_it_was_written() -> None:
    number = read_yaml("a: 1.10", "s")["a"]
    assert number == 1.1
    assert as_written(number) == "1.10"
    assert json.dumps(number) == "1.1"


def test_keys_are_text_as_written() -> None:
    assert read_yaml("{5: a, 1.0: b, true: c, null: d, no: e, 2024-01-01: f}", "s") == {
        "5": "a",
        "1.0": "b",
        "true": "c",
        "null": "d",
        "no": "e",
        "2024-01-01": "f",
    }


def test_explicit_keys_override_merge_keys() -> None:
    data = read_yaml("a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc: {<<: [*a, *b], x: 9}\nd: {<<: *a}\n", "s")
    assert data["c"] == {"x": 9, "y": 2, "z": 4}
    assert data["d"] == {"x": 1, "y": 2}


def test_a_byte_order_mark_is_no_text() -> None:
    assert decode(b"\xef\xbb\xbfa: b", "s") == "a: b"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_early(opening: str) -> None:
    assert f"nested more than {MAX_DEPTH} levels deep" in refusal(opening * 50_000)


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a: &a [1,1,1,1,1,1,1,1,1,1]"]
    lines += [
        f"{new}: &{new} [{','.join(['*' + old] * 10)}]" for old, new in zip("abcdefghi", "bcdefghij", strict=True)
    ]
    assert "values after expanding aliases" in refusal("\n".join(lines))


def test_positions_of_keys_and_values() -> None:
    positions = read_positions("a:\n  - b: c\n  - é: d\n", "s")
    assert positions.find(()) == ((1, 1), (1, 1), True)
    assert positions.find(("a", 0, "b")) == ((2, 5), (2, 8), True)
    assert positions.find(("a", 1, "é")) == ((3, 5), (3, 8), True)


def test_a_missing_path_has_the_position_of_its_deepest_existing_part() -> None:
    positions = read_positions("a:\n  - b: c\n", "s")
    assert positions.find(("a", 0, "zz")) == ((2, 5), (2, 5), False)
    assert positions.find(("a", "a tag", 0, "b")) == ((2, 5), (2, 8), True)


def test_aliased_values_have_the_position_of_their_anchor() -> None:
    positions = read_positions("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\nd: [*a]\ne: {<<: [*a]}\n", "s")
    written = ((1, 8), (1, 11), True)
    for loc in (("a", "x"), ("b", "x"), ("c", "x"), ("d", 0, "x"), ("e", "x")):
        assert positions.find(loc) == written, loc
    assert positions.find(("c", "y")) == ((3, 13), (3, 16), True)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_json_is_yaml(data: Any) -> None:
    text = json.dumps(data)  # ASCII, with every other sign escaped
    if "\\ud" in text or "/" in text:
        return  # YAML has no surrogate pairs
    assert read_yaml(text, "s") == data


@given(st.text(max_size=40))
def test_any_text_is_read_or_rejected_with_a_position(text: str) -> None:
    try:
        read_yaml(text.encode("utf-8", "replace").decode(), "s")
    except SuiteError as error:
        assert all(problem.line >= 1 and problem.column >= 1 for problem in error.problems)


@given(st.text(max_size=20))
def test_parse_scalar_never_raises(text: str) -> None:
    assert isinstance(parse_scalar(text), (str, int, float, type(None)))
