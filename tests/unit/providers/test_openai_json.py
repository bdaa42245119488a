"""What is read from the JSON of an OpenAI server's answer."""

from __future__ import annotations

import math

import httpx2
import pytest

from visioneval.providers.openai.connection import flat_usage, read_json
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
