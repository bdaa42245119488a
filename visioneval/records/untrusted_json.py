"""Parses untrusted JSON into models, and checks its version. Each problem is one line that names the location."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from visioneval.errors import RunFormatError

ValueT = TypeVar("ValueT")

SCHEMA_VERSION = 2
"""The format of the files of a run. Since 0.2, what a released version wrote stays readable."""
LARGEST = 2**63
"""The largest absolute value of an integer: runs write none beyond it, and sums and squares fit into a float."""
_MOST_DIGITS = 4300
"""The maximum of digits of an integer in a suite, as in Python: parsing more takes quadratic time."""
_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
"""Digits of an integer that may be larger than ``LARGEST``, or of a text."""
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


class UnreadableJsonError(RunFormatError):
    """The text is not JSON: the file is damaged or truncated."""


class UnfitJsonError(RunFormatError):
    """The JSON does not fit the model: a field is missing, unknown, out of range or of the wrong type."""


def check_version(data: Mapping[str, Any], where: str) -> None:
    """Raises ``RunFormatError`` unless data of a file of a run are of the current version."""
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise RunFormatError(f"{where}: no schema_version: not written by visioneval")
    if version != SCHEMA_VERSION:
        is_newer = version > SCHEMA_VERSION
        raise RunFormatError(
            f"{where}: schema_version {version} is {'newer' if is_newer else 'older'} than the supported version"
            f" {SCHEMA_VERSION}: {'upgrade visioneval' if is_newer else 'create it again with this version'}"
        )


def adapter_of(model: type[ValueT]) -> TypeAdapter[ValueT]:
    """Parses and writes values of a type. It takes long to build, so there is one of each."""
    return _adapter_of(model)


_adapter_of: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


def read_json(model: type[ValueT], data: bytes, where: str, kind: str, *, largest: int | None = LARGEST) -> ValueT:
    """Parses a value of a type. ``where`` is the file with the line number; ``kind`` describes the expected contents.

    At any depth, numbers must be finite, and integers at most ``largest`` in absolute value. Raises
    ``UnreadableJsonError`` or ``UnfitJsonError``.
    """
    try:
        if not _has_safe_numbers(data):
            json.loads(data, parse_constant=_refuse_constant, parse_float=_finite, parse_int=partial(_integer, largest))
        return adapter_of(model).validate_json(data)
    except ValidationError as error:
        location, message = _first_problem(error)
        if location is None:
            raise UnreadableJsonError(f"{where}: not a {kind}: damaged or truncated") from None
        raise UnfitJsonError(f"{where}: {location}{message}") from None
    except _NumberError as error:
        raise UnfitJsonError(f"{where}: {error}") from None
    except (ValueError, RecursionError):
        raise UnreadableJsonError(f"{where}: not a {kind}: damaged or truncated") from None


def _has_safe_numbers(data: bytes) -> bool:
    """Whether all numbers are finite and within ``LARGEST``. May be false for unusual text, such as long digit strings.

    Much faster than a regular expression, which also takes parts of hashes for numbers.
    """
    if _LONG in data.translate(_TO_ZERO):
        return False
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:  # not JSON, or with NaN, an infinity or a number beyond the range of floats
        return False
    return True


class _NumberError(Exception):
    """A number is not finite or too large."""


def _refuse_constant(token: str) -> Any:
    raise _NumberError(f"{token} is not a finite number")


def _finite(token: str) -> float:
    value = float(token)
    return value if math.isfinite(value) else _refuse_constant(one_line(token))


def _integer(largest: int | None, token: str) -> int:
    if len(token) > _MOST_DIGITS or (largest is not None and abs(int(token)) > largest):
        raise _NumberError(f"{one_line(token)} is too large")
    return int(token)


def _first_problem(error: ValidationError) -> tuple[str | None, str]:
    """The location of the first problem with a colon, and its message; no location if the text is not JSON."""
    problems = error.errors(include_url=False, include_input=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        return None, ""
    location, message = first["loc"], first["msg"].removeprefix("Value error, ")
    if location and location[-1] in _SCORE_TYPES and len({problem["loc"][:-1] for problem in problems}) < len(problems):
        location, message = location[:-1], "expected true, false, a number from -2^63 to 2^63, a word, or null"
    path = ".".join(one_line(str(part)) for part in location)
    return f"{path}: " if path else "", one_line(message, 400)


_SCORE_TYPES = ("bool", "int", "float", "constrained-str")


def one_line(text: str, limit: int = 80) -> str:
    """Text without control characters, cut to ``limit`` characters."""
    safe = "".join("\ufffd" if unicodedata.category(sign) in _HIDDEN else sign for sign in text[: limit + 1])
    return safe if len(safe) <= limit else f"{safe[: limit - 3]}..."
