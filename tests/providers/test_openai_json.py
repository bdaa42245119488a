"""What is read from the JSON of an OpenAI server's answer."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx2
import pytest

from visioneval.providers.openai.connection import flat_usage, read_json
from visioneval.providers.reply_json import read_beginning
from visioneval.running.calls.prices import checked_usage


def answer(body: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=body)


def test_a_long_text_is_read_completely() -> None:
    text = "QUJD" * 500_000
    assert read_json(answer(f'{{"data": [{{"b64_json": "{text}"}}], "é": "\\u00e9"}}'.encode())) == {
        "data": [{"b64_json": text}],
        "é": "é",
    }


@pytest.mark.parametrize("body", [b"", b'{"data": [1', b'{"n": Nan}', b"{} {}"])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(answer(body))


def test_impossible_counts_stay_for_the_check_of_usage() -> None:
    usage = read_json(answer(b'{"input_tokens": 7, "output_tokens": 123456789012345678901234567890, "n": 1e999}'))
    assert flat_usage(usage) == {"input_tokens": 7, "output_tokens": 123456789012345678901234567890, "n": math.inf}
    assert checked_usage(flat_usage(usage)) is None


ANSWER: dict[str, Any] = {
    "data": [{"b64_json": "QUJD", "n": 12}, {"b64_json": 'RE"VG'}],
    "é\\": {"a": [None, True, ["]"]]},
}


def is_part(part: Any, whole: Any) -> bool:
    """Whether everything in ``part`` is in ``whole`` at the same position."""
    if isinstance(part, dict):
        return all(key in whole and is_part(value, whole[key]) for key, value in part.items())
    if isinstance(part, list):
        return len(part) <= len(whole) and all(is_part(item, whole[at]) for at, item in enumerate(part))
    return bool(part == whole)


@pytest.mark.parametrize("indent", [None, 1])
def test_of_an_answer_that_is_cut_off_what_came_whole_is_read(indent: int | None) -> None:
    whole = json.dumps(ANSWER, indent=indent, ensure_ascii=False).encode()
    for end in range(1, len(whole)):
        data, is_cut_off = read_beginning(whole[:end])
        assert is_cut_off
        assert is_part(data, ANSWER), "no text, number or word is shorter than it was"
        images = whole[:end].count(b'"QUJD"') + whole[:end].count(b'VG"')
        assert [item["b64_json"] for item in data.get("data", ()) if item] == ["QUJD", 'RE"VG'][:images]
    assert read_beginning(whole) == (ANSWER, False)
    assert read_beginning(whole + b" {}]") == (ANSWER, False), "what follows it is left out"


@pytest.mark.parametrize("body", [b"", b"}", b"12", b'{"a": 1, b: [', b"[1 2, ", b'{"a": "\\ud800", ', b"[" * 5000])
def test_a_beginning_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_beginning(body)
