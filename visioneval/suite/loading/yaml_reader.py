"""YAML to plain data by the 1.2 core schema, with the position of every key and value on demand.

``no``, ``on``, ``4:30`` and dates stay strings, as YAML 1.2 says, and so do whole numbers of over 100 digits. Keys
are always text, as written. The data is built from the parser's events, so that a suite of many thousand cases is
never held twice; positions are collected in a second pass, which only a suite with an error needs. Merge keys
(``<<``) work, tags other than ``!!str`` are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from visioneval.errors import Problem, SuiteError
from visioneval.suite.sweep import WrittenFloat

Path = tuple[str | int, ...]
Position = tuple[int, int]

MAX_DEPTH = 60
MAX_VALUES = 5_000_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,100}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_CAUSES = {
    "found character that cannot start any token": "a tab or a reserved character (@ ` %) stands where a value"
    " should start: indent with spaces, and quote such text",
    "found a tab character that violates indentation": "a tab in the indentation: indent with spaces",
    "could not find expected ':'": "a key without ':' after it, or text that needs quotes",
    "mapping values are not allowed in this context": "a second ':' in one line: quote the text that holds it",
    "did not find expected key": "a key is expected here: check the indentation, and the quotes in the text before",
    "did not find expected '-' indicator": "a list item ('- ...') is expected here: check the indentation",
    "did not find expected ',' or ']'": "the list that opens at {opened} is not closed with ']', or lacks a ','",
    "did not find expected ',' or '}'": "the mapping that opens at {opened} is not closed with '}}', or lacks a ','",
    "found unexpected end of stream": "the quote that opens at {opened} is never closed",
}


class _RefusedError(Exception):
    def __init__(self, message: str, mark: Any) -> None:
        super().__init__(message)
        self.position = _at(mark)


def _at(mark: Any) -> Position:
    return mark.line + 1, mark.column + 1


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything in a document stands. What an alias or ``<<`` brings stands where it is written."""

    found: dict[Path, tuple[Position, Position]] = field(default_factory=dict)
    """Of each path the place of its key (or list item) and of its value, counted from 1."""
    aliases: dict[Path, Path] = field(default_factory=dict)

    def find(self, loc: Sequence[str | int]) -> tuple[Position, Position, bool]:
        """Key and value of the deepest part of ``loc`` that the text holds, and whether that is all of it."""
        path: Path = ()
        whole = True
        for step in loc:
            inner = self._child(self.aliases.get(path, path), step)
            whole = inner is not None
            path = path if inner is None else inner
        return (*self.found.get(path, ((1, 1), (1, 1))), whole)

    def _child(self, path: Path, step: str | int) -> Path | None:
        if (*path, step) in self.found:
            return (*path, step)
        source = (*path, "<<")
        if source not in self.found:
            return None
        source = self.aliases.get(source, source)
        if (*source, step) in self.found:
            return (*source, step)
        each = 0
        while (item := (*source, each)) in self.found:
            inner = (*self.aliases.get(item, item), step)
            if inner in self.found:
                return inner
            each += 1
        return None


def decode(data: bytes, name: str) -> str:
    """The text of a suite or a dataset, which is UTF-8. Raises ``SuiteError`` with the place of the first bad byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _end_of(error.object[: error.start].decode("utf-8-sig", "replace"))
        raise SuiteError([Problem(name, line, column, "not UTF-8: save the file as UTF-8")]) from None


def _end_of(text: str) -> Position:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def read_yaml(text: str, name: str) -> Any:
    """One YAML document as plain data. Raises ``SuiteError``: syntax, duplicate keys, recursion, tags."""
    return _parse(text, name, None)


def positions(text: str, name: str) -> Places:
    """Where every key and value of the document stands."""
    places = Places()
    _parse(text, name, places)
    return places


def _parse(text: str, name: str, places: Places | None) -> Any:
    try:
        return _Builder(yaml.parse(text, Loader=_LOADER), places).document()
    except _RefusedError as error:
        problem = Problem(name, *error.position, str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark and error.context_mark and mark.line > text.rstrip().count("\n"):
            mark = error.context_mark  # the file ended: say where what is missing began
        problem = Problem(name, *(_at(mark) if mark else (1, 1)), f"not YAML: {_cause(error)}")
    except yaml.reader.ReaderError:
        sign = _NOT_TEXT.search(text)
        place, what = (_end_of(text[: sign.start()]), f" U+{ord(sign[0]):04X}") if sign else ((1, 1), "")
        problem = Problem(name, *place, f"not YAML: the control character{what} is not text; remove it")
    raise SuiteError([problem])


def _cause(error: yaml.MarkedYAMLError) -> str:
    cause = str(error.problem or error.context)
    opened = _at(error.context_mark) if error.context_mark else (1, 1)
    return _CAUSES.get(cause, cause.replace("{", "{{")).format(opened=f"line {opened[0]}, column {opened[1]}")


class _Builder:
    """Builds data from the events of one document."""

    def __init__(self, events: Iterator[yaml.Event], places: Places | None) -> None:
        self.events = events
        self.places = places
        self.anchors: dict[str, tuple[Any, int, Path]] = {}
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
        if self.places is not None:
            self.places.found[path] = (_at((key or event).start_mark), _at(event.start_mark))
        if len(path) > MAX_DEPTH:
            raise _RefusedError(f"nested deeper than {MAX_DEPTH} levels", event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path)
        before = self.values
        if event.anchor:
            self.open.add(event.anchor)
        data = self.node(event, path)
        self.count(1, event)
        if event.anchor:
            self.open.discard(event.anchor)
            self.anchors[event.anchor] = (data, self.values - before, path)
        return data

    def count(self, values: int, event: Any) -> None:
        self.values += values
        if self.values > MAX_VALUES:
            raise _RefusedError(f"over {MAX_VALUES:,} values once aliases are expanded", event.start_mark)

    def alias(self, event: Any, path: Path) -> Any:
        if event.anchor in self.open:
            raise _RefusedError(f"the alias *{event.anchor} stands inside its own anchor", event.start_mark)
        if event.anchor not in self.anchors:
            raise _RefusedError(f"no anchor &{event.anchor} before this alias", event.start_mark)
        data, size, origin = self.anchors[event.anchor]
        self.count(size, event)
        if self.places is not None:
            self.places.aliases[path] = self.places.aliases.get(origin, origin)
        return data

    def node(self, event: Any, path: Path) -> Any:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise _RefusedError(f"the tag {tag} is not read: plain values only", event.start_mark)
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

    def mapping(self, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: dict[str, Any] | None = None
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _RefusedError("a key must be a word or a number", event.start_mark)
            key, merges = event.value, event.value == "<<" and event.implicit[0]
            if (merged is not None) if merges else key in data:
                raise _RefusedError(f"the key {key!r} stands here twice", event.start_mark)
            value = self.value(next(self.events), (*path, key), event)
            if merges:
                merged = _merged(value, event)
            else:
                data[key] = value
        return {**merged, **data} if merged else data


def _merged(value: Any, event: Any) -> dict[str, Any]:
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
