"""Reads the JSON of an answer, which may be paid for, in every form that is unambiguous."""

from __future__ import annotations

import json
import re
from typing import Any

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MOST_DIGITS = 400
_TOKEN = re.compile(r'\s*(?:(?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<mark>[{}\[\],:])|[^\s"{}\[\],:]+)', re.DOTALL)


def read_answer(answer: bytes) -> Any:
    """The JSON of a whole answer.

    A byte order mark is no fault, nor are ``NaN``, bytes that are not UTF-8 and line breaks in texts, and whole numbers
    of any length, which are cut to 400 digits: no count is as large. Raises ``ValueError``.
    """
    return _read(answer.decode("utf-8-sig", "replace"))


def read_beginning(answer: bytes) -> tuple[Any, bool]:
    """The JSON at the beginning of an answer, and whether it is cut off: then a last text or number is left out.

    Raises ``ValueError``.
    """
    text = answer.decode("utf-8-sig", "replace")
    closing: list[str] = []
    before: str | None = None
    end = at = 0
    while (token := _TOKEN.match(text, at)) is not None:
        mark = token["mark"]
        if mark == ",":
            end = at
        at = token.end()
        if mark in ("{", "["):
            closing.append("}" if mark == "{" else "]")
        elif mark in ("}", "]"):
            del closing[-1:]
        if mark in ("{", "[", "}", "]") or (token["text"] and (before == ":" or closing[-1:] == ["]"])):
            end = at  # what is open here can be closed
        if not closing:
            break
        before = mark
    return _read(text[:end] + "".join(reversed(closing))), bool(closing)


def _read(text: str) -> Any:
    try:
        value = json.loads(text, strict=False, parse_int=_whole_number)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair cannot be stored
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair in a text") from None
    return value


def _whole_number(digits: str) -> int:
    return int(digits[:_MOST_DIGITS])
