"""Reads JSON of judges and servers, with the standard library, and refuses whatever could be read in two ways.

A truncated reply is the beginning of another reply, and servers may truncate without notice. So nothing of a judge's
reply is closed or guessed: an object that ends early, or is not JSON, is no answer, and the judge is asked once more.
Two slips are repaired, as truncation cannot cause them: a comma before a closing bracket, and a line break in a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from visioneval.types import declared_word

MAX_CHARS = 1 << 18
"""The most characters of a judge's reply; a longer text is rejected."""
MAX_DEPTH = 32
"""The deepest nesting of objects and lists in it."""
MAX_OBJECTS = 100
"""The most objects in it."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_DIGITS = 400

_OBJECT = re.compile(r"\{(?=\s*+(?:[\"'}]|```|\Z|[A-Za-z_][\w.-]*+\s*+(?::|```|\Z)))")
"""The start of an object, also of a broken one, but not of braces in prose, as in ``{them}``."""
_CONTINUATION = re.compile(r'[\s,]*+(?:[\]}]|"[^"\n]*+"\s*+:)|\s*+,\s*+[\[{"]')
"""What follows an object that was part of a larger one."""
_THOUGHTS = re.compile(r"\s*<(think|thinking)>")
_COMMAS = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*+[\]}])', re.DOTALL)
_TOKEN = re.compile(r'\s*(?:(?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<mark>[{}\[\],:])|[^\s"{}\[\],:]+)', re.DOTALL)


class UnreadableReplyError(ValueError):
    """The text has no JSON object, or is ambiguous."""


@dataclass(frozen=True, slots=True)
class JSONObject:
    """A parsed object. ``is_alone``: the text has nothing else; ``repair`` is the tolerated error."""

    value: dict[str, Any]
    is_alone: bool
    repair: str | None = None


def read_objects(text: str) -> list[JSONObject]:
    """The outermost JSON objects of a judge's reply, in order; at least one.

    Text and code fences around them are ignored, as are thoughts in ``<think>`` before them. Raises
    ``UnreadableReplyError`` with the reason.
    """
    if len(text) > MAX_CHARS:
        raise UnreadableReplyError(f"the answer has {len(text):,} characters, over the limit of {MAX_CHARS:,}")
    objects: list[JSONObject] = []
    end = _answer_start(text)
    while match := _OBJECT.search(text, end):
        start = match.start()
        if text[end:start].rstrip()[-1:] == "[":  # in a truncated list, the last object would look like the only one
            raise UnreadableReplyError("the answer is not a JSON object: it is a list of objects")
        value, end, repair = _object_at(text, start)
        if _CONTINUATION.match(text, end):
            raise UnreadableReplyError("not JSON: the answer continues behind the end of its object")
        objects.append(JSONObject(value, not text[:start].strip() and not text[end:].strip(), repair))
        if len(objects) > MAX_OBJECTS:
            raise UnreadableReplyError(f"the answer contains more than {MAX_OBJECTS} JSON objects")
    if not objects:
        what = "the answer is not a JSON object" if text.strip()[:1] == "[" else "not JSON: it contains no JSON object"
        raise UnreadableReplyError(what)
    repairs = [parsed.repair for parsed in objects if parsed.repair]
    if repairs and len(objects) > 1:
        raise UnreadableReplyError(f"not JSON: {repairs[0]}, beside another object")
    return objects


def _answer_start(text: str) -> int:
    """The index of the answer after marked thoughts, which may contain drafts."""
    thoughts = _THOUGHTS.match(text)
    if thoughts is None:
        return 0
    end = text.find(f"</{thoughts[1]}>", thoughts.end())
    if end < 0:
        _raise_truncated()
    return end + len(thoughts[1]) + 3


def _raise_truncated() -> NoReturn:
    raise UnreadableReplyError("the JSON is incomplete: the answer was cut off")


def _object_at(text: str, start: int) -> tuple[dict[str, Any], int, str | None]:
    """The object at an index, the index of its end, and the error in it that was tolerated."""
    try:
        try:
            value, end = _STRICT.raw_decode(text, start)
            repair = None
        except json.JSONDecodeError as error:
            repair = f"{error.msg} (line {error.lineno}, column {error.colno})"
            rest = text[error.pos :].lstrip()
            in_text = error.msg.startswith("Invalid control character")
            if error.msg.startswith("Unterminated string") or (not in_text and (not rest or rest.startswith("```"))):
                _raise_truncated()
            spaced = _COMMAS.sub(lambda match: " " if match[0] == "," else match[0], text[start:])
            value, end = _TOLERANT.raw_decode(text[:start] + spaced, start)
    except UnreadableReplyError:
        raise
    except RecursionError:
        _raise_too_deep()
    except json.JSONDecodeError:
        raise UnreadableReplyError(f"not JSON: {repair}") from None
    except ValueError:  # thousands of digits
        raise UnreadableReplyError("not JSON: the number is too long") from None
    if _is_deep(value):
        _raise_too_deep()
    return value, end, repair


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        for key, value in pairs:
            if json.dumps(data[key]) != json.dumps(value):  # in Python, 1 equals True
                raise UnreadableReplyError(f"the key {key!r:.60} appears twice with different values")
    return data


def _reject_constant(name: str) -> NoReturn:
    raise UnreadableReplyError(f"not JSON: {name} is not a number")


_STRICT = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_reject_constant)
_TOLERANT = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_reject_constant, strict=False)


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nested = [item for item in level if isinstance(item, (dict, list))]
        level = [child for item in nested for child in (item.values() if isinstance(item, dict) else item)]
        if not level:
            return False
    return True


def _raise_too_deep() -> NoReturn:
    raise UnreadableReplyError(f"the JSON is nested more than {MAX_DEPTH} levels deep")


def read_answer(answer: bytes) -> Any:
    """The JSON of a server's whole answer, which may be paid for, in every form that is unambiguous.

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
    return int(digits[:_MAX_DIGITS])


YES_NO = dict.fromkeys(("true", "yes", "pass", "1", "1.0"), True) | dict.fromkeys(
    ("false", "no", "fail", "0", "0.0"), False
)
"""What counts as an answer to a yes or no, in any case."""
_NUMBER = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")


def yes_or_no(value: object) -> bool | None:
    """The answer to a yes or no; ``None`` for anything else."""
    if isinstance(value, bool):
        return value
    return YES_NO.get(f"{value:g}" if isinstance(value, (int, float)) else str(value).strip().lower())


def typed_value(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value in the type of its JSON Schema; unchanged where it may mean something else, such as ``"4/5"``.

    Converts the properties of objects and the items of lists too, and texts to the only choice that they name.
    """
    kind = schema.get("type")
    if isinstance(value, dict) and "properties" in schema:
        properties = schema["properties"]
        return {key: typed_value(item, properties[key]) if key in properties else item for key, item in value.items()}
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [typed_value(item, schema["items"]) for item in value]
    if kind == "boolean":
        answer = yes_or_no(value)
        return value if answer is None else answer
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind in ("number", "integer") and _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    if kind == "string" and value not in (choices := schema.get("enum") or ()):
        return declared_word(value, [choice for choice in choices if isinstance(choice, str)])
    return value
