"""Parses the JSON objects in a judge's reply if they are unambiguous. Pure, linear and bounded.

A truncated reply is the beginning of another reply, and servers may truncate without notice. So the parser never closes
brackets or quotes: a text that ends inside an object, or has invalid objects, has no answer. Errors that cannot hide a
truncation are tolerated: text and code fences around an object, thoughts in ``<think>`` before it, and inside it
trailing commas, commas missing at the end of a line, single quotes, unquoted keys, line breaks in strings, and
Python's ``True``, ``False`` and ``None``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_CHARS = 1 << 18
"""The most characters that are parsed; a longer text is rejected."""
MAX_DEPTH = 32
"""The deepest nesting of objects and lists."""
MAX_OBJECTS = 100
"""The most objects in one text."""

_SPACE = re.compile(r"[ \t\r\n]*+")
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^'\\]|\\.)*+'", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][-+]?[0-9]++)?(?![\w.+-])")
_BRACE = re.compile(r"\{(?=[ \t\r\n]*+(?:[}\"'A-Za-z_]|```|\Z))")
_CONTROL = re.compile(r"[\x00-\x1f]")
_THOUGHTS = re.compile(r"\s*<(think|thinking)>")
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_WORDS = {"True": True, "False": False, "None": None}


class UnreadableReplyError(ValueError):
    """The text has no JSON object, or is ambiguous."""


@dataclass(frozen=True, slots=True)
class JSONObject:
    """A parsed object. ``is_alone``: the text has nothing else; ``repair`` is the first tolerated error."""

    value: dict[str, Any]
    is_alone: bool
    repair: str | None = None


def read_objects(text: str) -> list[JSONObject]:
    """The outermost JSON objects of a text, in order; at least one. Raises ``UnreadableReplyError`` with the reason."""
    if len(text) > MAX_CHARS:
        raise UnreadableReplyError(f"the answer has {len(text):,} characters, over the limit of {MAX_CHARS:,}")
    if (whole := _strict(text)) is not None:
        return [JSONObject(whole, is_alone=True)]
    objects: list[JSONObject] = []
    for parser in _parsers(text, _answer_start(text)):
        start = parser.at
        value = parser.object(1)
        is_alone = not text[:start].strip() and not text[parser.at :].strip()
        objects.append(JSONObject(value, is_alone, parser.repair))
        if len(objects) > MAX_OBJECTS:
            raise UnreadableReplyError(f"the answer contains more than {MAX_OBJECTS} JSON objects")
    if not objects:
        what = "the answer is not a JSON object" if text.strip()[:1] == "[" else "not JSON: it contains no JSON object"
        raise UnreadableReplyError(what)
    return objects


def _strict(text: str) -> dict[str, Any] | None:
    """Parses the whole text with the fast standard library; ``None`` if that fails."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_reject_constant)
    except UnreadableReplyError:
        raise
    except (ValueError, RecursionError):
        return None
    if _is_deep(value):
        _raise_too_deep()
    return value if isinstance(value, dict) else None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        for key, value in pairs:
            if not _is_same_json(data[key], value):
                _raise_conflict(key)
    return data


def _reject_constant(name: str) -> NoReturn:
    raise UnreadableReplyError(f"not JSON: {name} is not a number")


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


def _raise_conflict(key: str) -> NoReturn:
    raise UnreadableReplyError(f"the key {key!r:.60} appears twice with different values")


def _answer_start(text: str) -> int:
    """The index of the answer after marked thoughts, which may contain drafts."""
    thoughts = _THOUGHTS.match(text)
    if thoughts is None:
        return 0
    end = text.find(f"</{thoughts[1]}>", thoughts.end())
    if end < 0:
        _raise_truncated()
    return end + len(thoughts[1]) + 3


def _parsers(text: str, at: int) -> Iterator[_ReplyParser]:
    """Yields a parser at the start of each object. Use it before requesting the next one."""
    while brace := _BRACE.search(text, at):
        start = brace.start()
        parser = _ReplyParser(text, start)
        if not parser.begins_an_object():  # braces in prose, as in "{them}"
            at = start + 1
            continue
        if text[at:start].rstrip()[-1:] == "[":  # in a truncated list, the last object would look like the only one
            raise UnreadableReplyError("the answer is not a JSON object: it is a list of objects")
        yield parser
        at = parser.at


def _raise_truncated() -> NoReturn:
    raise UnreadableReplyError("the JSON is incomplete: the answer was cut off")


class _ReplyParser:
    """Parses from an index. It reads each character a fixed number of times, and fails at the first ambiguity."""

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at
        self.repair: str | None = None

    def begins_an_object(self) -> bool:
        """Whether ``{}`` or ``{key:`` is at the index. Raises ``UnreadableReplyError`` if the text ends before that."""
        start, self.at = self.at, self.at + 1
        mark = self._next()
        begins = mark == "}"
        key = {'"': _DOUBLE, "'": _SINGLE}.get(mark, _WORD).match(self.text, self.at)
        if key is None and mark in "\"'":
            _raise_truncated()
        if key is not None:
            self.at = key.end()
            begins = self._next() == ":"
        self.at = start
        return begins

    def _next(self) -> str:
        """Skips white space and returns the next character. A text that ends here is truncated."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at
        if self.at == len(self.text) or self.text.startswith("```", self.at):
            _raise_truncated()
        return self.text[self.at]

    def object(self, depth: int) -> dict[str, Any]:
        """Parses the object at the index."""
        data: dict[str, Any] = {}
        for _ in self._items("}", depth):
            key = self._key()
            if self._next() != ":":
                self._fail("':' is missing")
            self.at += 1
            value = self._value(depth)
            if key in data and not _is_same_json(data[key], value):
                _raise_conflict(key)
            data[key] = value
        return data

    def _list(self, depth: int) -> list[Any]:
        return [self._value(depth) for _ in self._items("]", depth)]

    def _items(self, end: str, depth: int) -> Iterator[None]:
        """Yields before each item of an object or list. Parse the item before requesting the next one."""
        if depth > MAX_DEPTH:
            _raise_too_deep()
        self.at += 1
        mark = self._next()
        if mark == ",":
            mark = self._after_comma(end)
            if mark != end:
                self._fail("an item is missing")
        while mark != end:
            yield
            after = self.at
            mark = self._next()
            if mark == ",":
                mark = self._after_comma(end)
            elif mark != end:
                ends_in_digit = self.text[after - 1] in "0123456789"  # if "0," is missing, 90 would become 9
                if ends_in_digit or "\n" not in self.text[after : self.at]:
                    self._fail(f"',' or '{end}' is missing")
                self._repair("a comma is missing")
        self.at += 1

    def _after_comma(self, end: str) -> str:
        self.at += 1
        mark = self._next()
        if mark == end:
            self._repair("a trailing comma")
        return mark

    def _key(self) -> str:
        mark = self.text[self.at]
        if mark in "\"'":
            return self._string(mark)
        self._repair("a key without quotes")
        return self._token(_WORD, "a key is missing")[0]

    def _value(self, depth: int) -> Any:
        mark = self._next()
        if mark == "{":
            return self.object(depth + 1)
        if mark == "[":
            return self._list(depth + 1)
        if mark in "\"'":
            return self._string(mark)
        return self._number() if mark in "-0123456789" else self._word()

    def _word(self) -> bool | None:
        word = self._token(_WORD, "a value is missing")[0]
        if word in _PYTHON_WORDS:
            self._repair(f"{word} is Python, not JSON")
            return _PYTHON_WORDS[word]
        if word not in _WORDS:
            self._fail(f"{word!r:.40} is not a value")
        return _WORDS[word]

    def _number(self) -> int | float:
        match = self._token(_NUMBER, "an invalid number")
        try:
            return float(match[0]) if match[1] or match[2] else int(match[0])
        except ValueError:  # thousands of digits
            self._fail("the number is too long")

    def _string(self, mark: str) -> str:
        match = (_DOUBLE if mark == '"' else _SINGLE).match(self.text, self.at)
        if match is None:
            _raise_truncated()
        literal = match[0] if mark == '"' else _double_quoted(match[0])
        if mark == "'":
            self._repair("single quotes")
        elif _CONTROL.search(literal):
            self._repair("a line break in a string")
        try:
            value: str = json.loads(literal, strict=False)
        except ValueError:
            self._fail("an invalid escape in a string")
        self.at = match.end()
        return value

    def _token(self, pattern: re.Pattern[str], problem: str) -> re.Match[str]:
        match = pattern.match(self.text, self.at)
        if match is None:
            self._fail(problem)
        self.at = match.end()
        if self.at == len(self.text):  # "9" may have been 90
            _raise_truncated()
        return match

    def _repair(self, slip: str) -> None:
        self.repair = self.repair or f"{slip} ({self._where()})"

    def _fail(self, problem: str) -> NoReturn:
        raise UnreadableReplyError(f"not JSON: {problem} ({self._where()})")

    def _where(self) -> str:
        before = self.text[: self.at]
        return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _double_quoted(literal: str) -> str:
    """Converts a string literal in single quotes to JSON."""
    swapped = {"\\'": "'", '"': '\\"'}
    body = re.sub(r'\\.|"', lambda match: swapped.get(match[0], match[0]), literal[1:-1], flags=re.DOTALL)
    return f'"{body}"'


def _is_same_json(first: Any, second: Any) -> bool:
    """Whether two values have the same JSON. In Python, ``1`` equals ``True``."""
    return json.dumps(first) == json.dumps(second)
