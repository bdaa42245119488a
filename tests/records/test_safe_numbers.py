"""Numbers in untrusted JSON: the fast check of a line decides as a full parse of its numbers does."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from visioneval import RunFormatError
from visioneval.records.untrusted import LARGEST, read_json

TOKENS = st.one_of(
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from([LARGEST - 1, LARGEST, LARGEST + 1, -LARGEST, -LARGEST - 1, 10**18, 10**19]).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?[1-9][0-9]{0,3}(\.[0-9]{1,3})?[eE][+-]?[0-9]{1,4}", fullmatch=True),
    st.sampled_from(["NaN", "Infinity", "-Infinity", "1e999", "-1E+0400", "0.0e999", "0e400"]),
    st.text(st.sampled_from("0123456789eE+.NaInfity"), max_size=40).map(json.dumps),
)


def _is_safe(token: str) -> bool:
    value = json.loads(token)
    return isinstance(value, str) or (math.isfinite(value) and (isinstance(value, float) or abs(value) <= LARGEST))


def _accepts(line: str) -> bool:
    try:
        read_json(JsonValue, line.encode(), "line", "record")
    except RunFormatError:
        return False
    return True


@given(st.lists(TOKENS, min_size=1, max_size=4))
def test_a_line_is_accepted_exactly_if_all_its_numbers_are_finite_and_not_too_large(tokens: list[str]) -> None:
    assert _accepts(f'{{"n": [{", ".join(tokens)}]}}') == all(map(_is_safe, tokens))


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("NaN", "NaN is not a finite number"),
        ("-Infinity", "-Infinity is not a finite number"),
        ("1e999", "1e999 is not a finite number"),
        ("9223372036854775809", "9223372036854775809 is too large"),
        ("18446744073709551616", "18446744073709551616 is too large"),
    ],
)
def test_a_bad_number_is_named(token: str, message: str) -> None:
    with pytest.raises(RunFormatError, match=message):
        read_json(JsonValue, f'{{"sha": "12e999", "n": [{token}]}}'.encode(), "line", "record")
