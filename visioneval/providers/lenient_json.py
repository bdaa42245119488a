"""Reads the JSON of a whole answer, which may be paid for, in every form that is unambiguous."""

from __future__ import annotations

import json
from typing import Any

import jiter

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MOST_DIGITS = 400


def read_answer(answer: bytes) -> Any:
    """The JSON of an answer.

    A byte order mark is no fault, nor are ``NaN``, bytes that are not UTF-8 and line breaks in texts, and whole numbers
    of any length, which are cut to 400 digits: no count is as large. Raises ``ValueError``.
    """
    try:
        return jiter.from_json(answer)
    except ValueError as error:
        problem = error
    try:
        value = json.loads(answer.decode("utf-8-sig", "replace"), strict=False, parse_int=_whole_number)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair cannot be stored
    except (ValueError, RecursionError):
        raise problem from None
    return value


def _whole_number(digits: str) -> int:
    return int(digits[:_MOST_DIGITS])
