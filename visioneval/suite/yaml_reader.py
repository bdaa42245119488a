"""YAML to plain data by the 1.2 core schema, with the position of every key and value on demand.

``no``, ``on``, ``4:30`` and dates stay strings, as YAML 1.2 says. The data is built from the parser's events, so
that a suite of many thousand cases is never held twice; positions are collected in a second pass, which only a
suite with an error needs. Merge keys (``<<``) work, tags other than ``!!str`` are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from visioneval.errors import Problem, SuiteError
from visioneval.suite.providers import WrittenFloat

Path = tuple[str | int, ...]
Position = tuple[int, int]

MAX_DEPTH = 60
MAX_VALUES = 5_000_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,4000}|0o[0-7]{1,4000}|0x[0-9a-fA-F]{1,4000}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CAUSES = {
    "found character that cannot start any token": "a tab or a reserved character (@ ` %) stands where a value"
    " should start: indent with spaces, and quote such text",
    "could not find expected ':'": "a key without ':' after it, or text that needs quotes",
    "mapping values are not allowed in this context": "a second ':' in one line: quote the text that holds it",
}


class _RefusedError(Exception):
    def __init__(self, message: str, mark: Any) -> None:
        super().__init__(message)
        self.position = (mark.line + 1, mark.column + 1)


def decode(data: bytes, name: str) -> str:
    """The text of a suite or a dataset, which is UTF-8. Raises ``SuiteError`` with the place of the first bad byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise SuiteError([Problem(name, line, column, "not UTF-8: save the file as UTF-8")]) from None


def read_yaml(text: str, name: str) -> Any:
    """One YAML document as plain data. Raises ``SuiteError``: syntax, duplicate keys, recursion, tags."""
    return _parse(text, name, None)


def positions(text: str, name: str) -> dict[Path, tuple[Position, Position]]:
    """For every path in the document the place of its key (or list item) and of its value, counted from 1."""
    found: dict[Path, tuple[Position, Position]] = {}
    _parse(text, name, found)
    return found


def _parse(text: str, name: str, found: dict[Path, tuple[Position, Position]] | None) -> Any:
    try:
        return _Builder(yaml.parse(text, Loader=_LOADER), found).document()
    except _RefusedError as error:
        raise SuiteError([Problem(name, *error.position, str(error))]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        cause = str(error.problem or error.context)
        raise SuiteError([Problem(name, line, column, f"not YAML: {_CAUSES.get(cause, cause)}")]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise SuiteError([Problem(name, line, 1, f"not YAML: {error.reason}")]) from None


class _Builder:
    """Builds data from the events of one document."""

    def __init__(self, events: Iterator[yaml.Event], found: dict[Path, tuple[Position, Position]] | None) -> None:
        self.events = events
        self.found = found
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.open: set[str] = set()
        self.values = 0

    def document(self) -> Any:
        data: Any = None
        seen = False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    raise _RefusedError("a second document ('---'): keep one suite in one file", event.start_mark)
                data, seen = self.value(next(self.events), ()), True
        return data

    def value(self, event: Any, path: Path, key: Any = None) -> Any:
        if self.found is not None:
            mark = event.start_mark
            at = (mark.line + 1, mark.column + 1)
            key_at = (key.start_mark.line + 1, key.start_mark.column + 1) if key is not None else at
            self.found[path] = (key_at, at)
        if len(path) > MAX_DEPTH:
            raise _RefusedError(f"nested deeper than {MAX_DEPTH} levels", event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        before = self.values
        if event.anchor:
            self.open.add(event.anchor)
        data = self.node(event, path)
        self.count(1, event)
        if event.anchor:
            self.open.discard(event.anchor)
            self.anchors[event.anchor] = (data, self.values - before)
        return data

    def count(self, values: int, event: Any) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise _RefusedError(f"over {MAX_VALUES:,} values once aliases are expanded", event.start_mark)

    def alias(self, event: Any) -> Any:
        if event.anchor in self.open:
            raise _RefusedError(f"the alias *{event.anchor} stands inside its own anchor", event.start_mark)
        if event.anchor not in self.anchors:
            raise _RefusedError(f"no anchor &{event.anchor} before this alias", event.start_mark)
        data, size = self.anchors[event.anchor]
        self.count(size, event)
        return data

    def node(self, event: Any, path: Path) -> Any:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise _RefusedError(f"the tag {event.tag} is not read: plain values only", event.start_mark)
        if isinstance(event, yaml.ScalarEvent):
            return plain(event.value) if event.implicit[0] and event.tag is None else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            return self.sequence(path)
        return self.mapping(path)

    def sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: Path) -> dict[Any, Any]:
        data: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        while not isinstance(key_event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(key_event, yaml.ScalarEvent):
                raise _RefusedError("a key must be a word or a number", key_event.start_mark)
            key = plain(key_event.value) if key_event.implicit[0] else key_event.value
            if key in data:
                raise _RefusedError(f"the key {key_event.value!r} stands here twice", key_event.start_mark)
            value = self.value(next(self.events), (*path, key), key_event)
            if key == "<<" and key_event.implicit[0]:
                merged = _merged(value, key_event)
            else:
                data[key] = value
        return {**merged, **data} if merged else data


def _merged(value: Any, event: Any) -> dict[Any, Any]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise _RefusedError("'<<' merges a mapping or a list of mappings", event.start_mark)
    return {key: item for source in reversed(sources) for key, item in source.items()}


def plain(text: str) -> Any:
    """An unquoted scalar by YAML 1.2's core schema; ``.inf`` and ``.nan`` stay text."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)
    if _FLOAT.fullmatch(text):
        number = WrittenFloat(text)
        return number if abs(number) != float("inf") else text
    return text
