"""Data in the text of a cell: JSON that a record can hold, or Python's notation, in which pandas writes it to CSV."""

from __future__ import annotations

import ast
import io
import json
import math
import re
import tokenize
import warnings
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any
from unicodedata import category

from visioneval.suite.loading.document import MAX_DEPTH

MAX_DIGITS = 100
"""Digits of a whole number."""


def _number(text: str) -> int | float:
    """A number, or what Python's JSON reads as one."""
    if text.lstrip("-") in ("NaN", "Infinity"):
        raise ValueError(f"{text} is not valid JSON: write null or a quoted string")
    if text.lstrip("-").isdigit():
        if len(text) > MAX_DIGITS:
            raise ValueError(f"a number has more than {MAX_DIGITS} digits: put it in quotes")
        return int(text)
    if math.isinf(number := float(text)):
        raise ValueError(f"the number {text} is too large")
    return number


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    cells = dict(pairs)
    if len(cells) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} is duplicated")
    return cells


DECODER = json.JSONDecoder(
    parse_constant=_number, parse_float=_number, parse_int=_number, object_pairs_hook=_unique_keys
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


MAX_PYTHON = 100_000
"""Characters of a cell in Python's notation. Longer data has to be JSON, which is read without building a tree."""
_MISSING = ("nan", "NaN", "None", "<NA>", "NaT", "null", "NULL", "#N/A")
"""What pandas, JSON, databases and spreadsheets write for a missing value. It could also be a text."""
_WRAPPED = re.compile(
    r"""[a-z_][\w.]*\(\s*[\[({].*            # array(['a']), deque(['a'])
    |[a-z_][\w.]*\[\s*['"].*\]              # r['a']
    |(?:b|u|r|br|rb)(?P<quote>['"]).*(?P=quote)  # b'a'
    |\(\s*(?:'[^']*'|"[^"]*")\s*[,)'"].*  # ('a'), a tuple without its comma
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""What Python and its libraries write around a list or a text."""
_SHOWN = 60


def cell_data(text: str) -> Any:
    """The data in a cell that contains JSON, or a list, a tuple or an object in Python's notation.

    Raises ``ValueError`` with a message.
    """
    try:
        return cell_json(text)
    except ValueError as error:
        try:
            return _python_data(text.strip())
        except _NotPythonError as fault:
            raise (fault if str(fault) else error) from None


def cell_items(text: str) -> Any:
    """The list or the object in a cell in which a list is wanted; ``None`` if the cell is one item, as it is written.

    Raises ``ValueError`` if it could be either: a text in brackets, a list that is cut off, or a missing value.
    """
    plain = text.strip()
    # without the invisible characters before it and the quotes around it; a missing value in quotes is text
    start = next((at for at, sign in enumerate(plain) if category(sign) not in ("Cf", "Cc")), 0)
    bare = plain[start:].strip()
    quote, inner = bare[:1], bare[1:-1].strip()
    if quote in ("'", '"') and len(bare) > 1 and bare[-1] == quote and inner not in _MISSING:
        bare = inner.replace(f"\\{quote}", quote)
    items = _items(bare)
    if items is not None and bare != plain:
        raise _ambiguous(plain, "in quotes, or after an invisible character")
    return items


def _items(plain: str) -> Any:
    if plain in _MISSING:
        raise ValueError(f'{plain!r} may be a missing value or a text: leave the cell empty, or write ["{plain}"]')
    if _WRAPPED.fullmatch(plain) is None and plain[:1] not in ("[", "(", "{"):
        return None
    try:
        return cell_data(plain)
    except ValueError as error:
        comes_close = isinstance(error, _NotPythonError)
        if not comes_close and not _may_be_list(plain):
            return None
        raise _ambiguous(plain, error) from None


def _ambiguous(text: str, why: object) -> ValueError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    advice = 'write a list as ["a", "b"], and a text in brackets as ["[a]"]'
    return ValueError(f"{shown} may be a list or a text ({why}): {advice}")


def is_python(cell: Any) -> bool:
    """Whether a cell is read as data in Python's notation, and is not JSON."""
    if not isinstance(cell, str) or cell.lstrip()[:1] not in ("[", "(", "{"):
        return False
    try:
        cell_json(cell)
    except ValueError:
        with suppress(_NotPythonError):
            _python_data(cell.strip())
            return True
    return False


class _NotPythonError(ValueError):
    """A text is no data in Python's notation. The message says why if it comes close, else it is empty."""


@lru_cache(maxsize=8)
def _python_data(text: str) -> Any:
    """The list or the object that a text is in Python's notation. Cached like ``cell_json``; do not change it.

    Only literals are read; nothing is run. Raises ``_NotPythonError``.
    """
    if text[:1] not in ("[", "(", "{"):
        raise _NotPythonError
    if len(text) > MAX_PYTHON:
        raise _NotPythonError(f"over {MAX_PYTHON:,} characters of Python's notation: write JSON")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes
            tree = ast.parse(text, mode="eval")
        data = ast.literal_eval(tree)
        if isinstance(data, set):
            raise _NotPythonError("a set of Python, which has no order")
        if not isinstance(data, list | tuple | dict):
            raise _NotPythonError
        _check_notation(text, tree)
        return _plain(data)
    except RecursionError as error:
        raise _NotPythonError(json_fault(error)) from None
    except (SyntaxError, TypeError, MemoryError, tokenize.TokenError):
        raise _NotPythonError from None
    except ValueError as error:
        raise (error if isinstance(error, _NotPythonError) else _NotPythonError()) from None


def _check_notation(text: str, tree: ast.AST) -> None:
    """Refuses strings without a comma between them, which numpy writes and Python joins, and keys that are repeated."""
    kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type != tokenize.NL]
    if any(pair == (tokenize.STRING, tokenize.STRING) for pair in pairwise(kinds)):
        raise _NotPythonError("no comma between its items, as numpy writes them")
    for node in ast.walk(tree):
        keys = [ast.dump(key) for key in node.keys if key is not None] if isinstance(node, ast.Dict) else []
        if len(set(keys)) < len(keys):
            raise _NotPythonError("a key is repeated")


def _plain(value: Any, depth: int = 1) -> Any:
    """Literals as the data that JSON has. Raises ``_NotPythonError`` for others."""
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        raise _NotPythonError(f"a number has more than {MAX_DIGITS} digits: put it in quotes")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _NotPythonError("invalid text: a lone surrogate") from None
    if value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise _NotPythonError(f"it contains {value!r:.40}, which JSON cannot express")


def _may_be_list(text: str) -> bool:
    """Whether a text in which no list can be read may have been meant as one.

    It is a text if its first bracket closes before its end, as in ``[SALE] today``, unless a quote follows the bracket.
    """
    if _WRAPPED.fullmatch(text):
        return True
    if text[0] == "(":
        return False
    if text[1:].lstrip()[:1] in ("'", '"'):
        return True
    if text[0] == "{":
        return False
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth == 0:
            return at == len(text) - 1
    return True
