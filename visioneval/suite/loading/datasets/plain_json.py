"""Decodes JSON to data that a record can hold: unique keys, finite numbers, valid text, limited depth."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Never

from visioneval.suite.loading.yaml_reader import MAX_DEPTH

MAX_DIGITS = 100
"""Digits of a whole number."""


def _refuse_constant(text: str) -> Never:
    raise ValueError(f"{text} is not valid JSON: write null or a quoted string")


def _finite_float(text: str) -> float:
    number = float(text)
    if abs(number) == float("inf"):
        raise ValueError(f"the number {text} is too large")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits: put it in quotes")
    return int(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    cells = dict(pairs)
    if len(cells) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is duplicated")
    return cells


DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite_float, parse_int=_integer, object_pairs_hook=_unique_keys
)
"""Raises ``ValueError`` (of which ``JSONDecodeError`` is one) and ``RecursionError``."""


def check_plain(text: str, data: Any) -> None:
    """Rejects data, decoded from ``text``, that no record can hold. Raises ``ValueError`` and ``RecursionError``."""
    if "\\u" in text:
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            lone = ord(error.object[error.start])
            raise ValueError(f"invalid text: a lone surrogate (\\u{lone:04x})") from None
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
        raise RecursionError


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def json_fault(error: ValueError | RecursionError) -> str:
    """Why a text is not JSON, for a message."""
    if isinstance(error, RecursionError):
        return f"nested more than {MAX_DEPTH} levels deep"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
    return str(error)


@lru_cache(maxsize=8)
def cell_json(text: str) -> Any:
    """The data in a cell that contains JSON. Cached for the fields that read the same cell; do not change it.

    Raises ``ValueError`` with a message.
    """
    try:
        data = DECODER.decode(text.strip())
        check_plain(text, data)
    except (ValueError, RecursionError) as error:
        raise ValueError(json_fault(error)) from None
    return data
