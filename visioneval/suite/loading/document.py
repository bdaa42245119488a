"""A suite while it is loaded: YAML with positions, the origin of each case, and the problems so far.

YAML is parsed to plain data by the 1.2 core schema: ``no``, ``on``, ``4:30`` and dates stay strings, and so do integers
of more than 100 digits. Keys are always text. The data is built from the parser's events, so that a large suite is in
memory only once; a second pass, needed only for a suite with an error, collects positions. Merge keys (``<<``) work;
tags other than ``!!str`` are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from visioneval.errors import Problem, SuiteError
from visioneval.media.urls import is_url, public_address
from visioneval.suite.files import rebased
from visioneval.suite.messages import Loc, WrittenFloat, error_path, explain, root_errors

Position = tuple[int, int]

MAX_DEPTH = 60
MAX_VALUES = 5_000_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,100}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_COMMENT = re.compile(r"[ \t]+\#.*")
_CAUSES = {
    "found character that cannot start any token": "a value starts with a tab or a reserved character (@ ` %):"
    " indent with spaces and put such text in quotes",
    "found a tab character that violates indentation": "the indentation contains a tab: use spaces",
    "could not find expected ':'": "a ':' is missing after a key, or text needs quotes",
    "mapping values are not allowed in this context": "a second ':' in one line: put text with ':' in quotes",
    "did not find expected key": "expected a key: check the indentation and the quotes before this position",
    "did not find expected '-' indicator": "expected a list item ('- ...'): check the indentation",
    "did not find expected ',' or ']'": "the list that opens at {opened} is missing a ']' or a ','",
    "did not find expected ',' or '}'": "the mapping that opens at {opened} is missing a '}}' or a ','",
    "found unexpected end of stream": "the quote that opens at {opened} is never closed",
    "exceeded maximum nesting depth": f"nested more than {MAX_DEPTH} levels deep",  # the limit of libyaml 0.2.6
}


class _RefusedError(Exception):
    def __init__(self, message: str, mark: Any) -> None:
        super().__init__(message)
        self.position = _position(mark)


def _position(mark: Any) -> Position:
    return mark.line + 1, mark.column + 1


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of all keys and values of a document. Aliased values have the position of their anchor."""

    entries: dict[Loc, tuple[Position, Position]] = field(default_factory=dict)
    """For each path, the position of its key (or list item) and of its value, starting from 1."""
    ends: dict[Loc, Position] = field(default_factory=dict)
    """Behind the last character of each unquoted text."""
    aliases: dict[Loc, Loc] = field(default_factory=dict)

    def find(self, loc: Sequence[str | int]) -> tuple[Position, Position, bool]:
        """Key and value position of the deepest part of ``loc`` that exists, and whether that is all of ``loc``."""
        path: Loc = ()
        is_exact = True
        for step in loc:
            child = self._child(self.aliases.get(path, path), step)
            is_exact = child is not None
            path = path if child is None else child
        return (*self.entries.get(path, ((1, 1), (1, 1))), is_exact)

    def _child(self, path: Loc, step: str | int) -> Loc | None:
        if (*path, step) in self.entries:
            return (*path, step)
        source = (*path, "<<")
        if source not in self.entries:
            return None
        source = self.aliases.get(source, source)
        if (*source, step) in self.entries:
            return (*source, step)
        index = 0
        while (item := (*source, index)) in self.entries:
            inner = (*self.aliases.get(item, item), step)
            if inner in self.entries:
                return inner
            index += 1
        return None


def decode(data: bytes, name: str) -> str:
    """Decodes a suite or a dataset as UTF-8. Raises ``SuiteError`` with the position of the first invalid byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _end_of(error.object[: error.start].decode("utf-8-sig", "replace"))
        raise SuiteError([Problem(name, line, column, "not valid UTF-8: save the file as UTF-8")]) from None


def _end_of(text: str) -> Position:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def read_yaml(text: str, name: str, positions: Positions | None = None) -> Any:
    """Parses one YAML document, and adds the position of every key and value to ``positions``.

    Raises ``SuiteError`` for syntax errors, duplicate keys, recursion and tags.
    """
    try:
        return _Builder(yaml.parse(text, Loader=_LOADER), positions).document()
    except _RefusedError as error:
        problem = Problem(name, *error.position, str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if mark and error.context_mark and mark.line > text.rstrip().count("\n"):
            mark = error.context_mark  # the file ended: report where the unclosed part began
        cause = str(error.problem or error.context)
        line, column = _position(error.context_mark) if error.context_mark else (1, 1)
        if cause in _CAUSES:
            cause = _CAUSES[cause].format(opened=f"line {line}, column {column}")
        cut = _cut_before(text, mark.line) if mark else ""
        problem = Problem(name, *(_position(mark) if mark else (1, 1)), f"invalid YAML: {cause}{cut}")
    except yaml.reader.ReaderError:
        char = _NOT_TEXT.search(text)
        position, code = (_end_of(text[: char.start()]), f" U+{ord(char[0]):04X}") if char else ((1, 1), "")
        problem = Problem(name, *position, f"invalid YAML: remove the control character{code}")
    raise SuiteError([problem])


def read_positions(text: str, name: str) -> Positions:
    """The position of every key and value of the document."""
    positions = Positions()
    read_yaml(text, name, positions)
    return positions


def cut_texts(text: str) -> Iterator[tuple[Loc, Position, str]]:
    """The path and the position of each unquoted text that a comment in its line cuts, and the comment with the white
    space before it.
    """
    if " #" not in text and "\t#" not in text:
        return
    lines = text.split("\n")
    positions = read_positions(text, "")
    for path, (line, column) in positions.ends.items():
        comment = _COMMENT.match(lines[line - 1], column - 1)
        if comment is not None:
            yield path, positions.entries[path][1], comment[0].rstrip()


def _cut_before(text: str, line: int) -> str:
    """A hint if the line before the one of a fault ends in a comment, which may cut a text of several lines."""
    above = text.split("\n")[line - 1].lstrip() if line else ""
    is_cut = (" #" in above or "\t#" in above) and not above.startswith("#")
    return f"; the text in line {line} ends at its comment (#), unless it is in quotes" if is_cut else ""


class _Builder:
    """Builds plain data from the events of one document."""

    def __init__(self, events: Iterator[yaml.Event], positions: Positions | None) -> None:
        self.events = events
        self.positions = positions
        self.anchors: dict[str, tuple[Any, int, Loc]] = {}
        self.open: set[str] = set()
        self.values = 0

    def document(self) -> Any:
        data: Any = None
        has_document = False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if has_document:
                    raise _RefusedError("a second document ('---'): put only one suite in a file", event.start_mark)
                data, has_document = self.value(next(self.events), ()), True
        return data

    def value(self, event: Any, path: Loc, key: Any = None) -> Any:
        if self.positions is not None:
            self.positions.entries[path] = (_position((key or event).start_mark), _position(event.start_mark))
        if len(path) > MAX_DEPTH:
            raise _RefusedError(f"nested more than {MAX_DEPTH} levels deep", event.start_mark)
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
            raise _RefusedError(f"more than {MAX_VALUES:,} values after expanding aliases", event.start_mark)

    def alias(self, event: Any, path: Loc) -> Any:
        if event.anchor in self.open:
            message = f"the alias *{event.anchor} refers to itself: it is inside its own anchor"
            raise _RefusedError(message, event.start_mark)
        if event.anchor not in self.anchors:
            raise _RefusedError(f"the anchor &{event.anchor} is not defined before this alias", event.start_mark)
        data, size, origin = self.anchors[event.anchor]
        self.count(size, event)
        if self.positions is not None:
            self.positions.aliases[path] = self.positions.aliases.get(origin, origin)
        return data

    def node(self, event: Any, path: Loc) -> Any:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise _RefusedError(f"the tag {tag} is not supported: use plain values", event.start_mark)
        if isinstance(event, yaml.ScalarEvent):
            data = parse_scalar(event.value) if event.implicit[0] and event.tag is None else event.value
            if self.positions is not None and isinstance(data, str) and not event.style:
                self.positions.ends[path] = _position(event.end_mark)
            return data
        if isinstance(event, yaml.MappingStartEvent):
            return self.mapping(path)
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.value(event, (*path, len(items))))
        return items

    def mapping(self, path: Loc) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: dict[str, Any] | None = None
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                is_template = isinstance(event, yaml.MappingStartEvent) and event.flow_style
                hint = ": put a value that begins with {{ in quotes" if is_template else ""
                raise _RefusedError(f"a key must be text or a number{hint}", event.start_mark)
            key, merges = event.value, event.value == "<<" and event.implicit[0]
            if (merged is not None) if merges else key in data:
                raise _RefusedError(f"the key {key!r} is duplicated", event.start_mark)
            value = self.value(next(self.events), (*path, key), event)
            if not merges:
                data[key] = value
                continue
            sources = value if isinstance(value, list) else [value]
            if not all(isinstance(source, dict) for source in sources):
                raise _RefusedError("'<<' needs a mapping or a list of mappings", event.start_mark)
            merged = {name: item for source in reversed(sources) for name, item in source.items()}
        return {**merged, **data} if merged else data


def parse_scalar(text: str) -> Any:
    """Parses an unquoted scalar by YAML 1.2's core schema; ``.inf`` and ``.nan`` stay text."""
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


@dataclass(slots=True)
class Source:
    """One source file of a suite. Positions are computed only when a problem needs them."""

    name: str
    text: str
    _positions: Positions | None = None

    @property
    def positions(self) -> Positions:
        """The positions of all keys and values."""
        if self._positions is None:
            self._positions = read_positions(self.text, self.name)
        return self._positions

    def has(self, loc: Sequence[str | int]) -> bool:
        """Whether all of ``loc`` exists in the text, where a case's ``mask`` is short for ``masks``."""
        short = ["mask" if step == "masks" else step for step in loc]
        ends = range(1, len(loc) + 1)
        return any(all(self.positions.find(path[:end])[2] for end in ends) for path in (loc, short))

    def position(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """File, line and column of the deepest part of ``loc`` that exists in the text."""
        of_key = of_key or loc[-1:] == ("[key]",)
        key_at, value_at, is_exact = self.positions.find([step for step in loc if step != "[key]"])
        if not is_exact and "masks" in loc:
            key_at, value_at, _ = self.positions.find(["mask" if step == "masks" else step for step in loc])
        return (self.name, *(key_at if of_key and is_exact else value_at))


@dataclass(frozen=True, slots=True)
class Written:
    """A mapping at ``loc`` of a YAML file with values of many cases, apart from those in ``replaced``."""

    source: Source
    loc: Loc
    replaced: frozenset[str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a case comes from: ``loc`` in a YAML file, or a line of a dataset with its ``defaults``.

    If the case is one of the ``turns`` there, ``turn`` is its index. What the turn does not say is where its case is.
    """

    source: Source | str
    loc: Loc = ()
    line: int = 0
    defaults: Written | None = None
    turn: int | None = None

    def position(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """File, line and column of ``loc``, a path in the case."""
        if self.turn is not None:
            case, in_turn = replace(self, turn=None), ("turns", self.turn, *loc)
            is_shared = loc[:1] != ("prompt",) and not case.has(in_turn[:3]) and case.has(loc[:1])
            is_shared |= self.turn == 0 and loc[:1] == ("images",) and case.has(loc[:2])  # before those of the turn
            return case.position(loc if is_shared else in_turn, of_key=of_key)
        if not isinstance(self.source, str):
            return self.source.position((*self.loc, *loc), of_key=of_key)
        defaults = self.defaults
        if defaults and loc and loc[0] not in defaults.replaced and defaults.source.has((*defaults.loc, loc[0])):
            return defaults.source.position((*defaults.loc, *loc), of_key=of_key)
        return self.source, self.line, 1

    def has(self, loc: Sequence[str | int]) -> bool:
        """Whether all of ``loc``, a path in the case, is in a YAML file."""
        if not isinstance(self.source, str):
            return self.source.has((*self.loc, *loc))
        return self.defaults is not None and self.defaults.source.has((*self.defaults.loc, *loc))


@dataclass(slots=True)
class Document:
    """A suite's raw data with the cases of all its files, and its problems."""

    source: Source
    data: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    """What is read in a way that its author may not expect."""

    def position(self, loc: Sequence[str | int], *, of_key: bool = False) -> tuple[str, int, int]:
        """File, line and column of ``loc``, a path in the gathered suite."""
        if len(loc) >= 2 and loc[0] == "cases" and isinstance(loc[1], int) and loc[1] < len(self.origins):
            return self.origins[loc[1]].position(loc[2:], of_key=of_key)
        return self.source.position(loc, of_key=of_key)

    def report(self, loc: Sequence[str | int], message: str, *, of_key: bool = False) -> None:
        """Adds a problem at ``loc``."""
        self.problems.append(Problem(*self.position(loc, of_key=of_key), message))

    def report_errors(
        self, errors: Sequence[Mapping[str, Any]], schema: Mapping[str, Any], origin: Origin | None = None
    ) -> None:
        """Adds a problem for each entry of a pydantic ``errors()`` list, which checked the data at ``origin``."""
        for error in root_errors(errors):
            loc, of_key = error_path(error, schema), error["type"] == "extra_forbidden"
            position = origin.position(loc, of_key=of_key) if origin else self.position(loc, of_key=of_key)
            self.problems.append(Problem(*position, explain(error, schema)))

    def display_name(self, path: str, folder: Path, suite_folder: Path) -> str:
        """The name in problem messages of a file that a file in ``folder`` refers to."""
        shown = public_address(path)
        if is_url(path):
            return shown
        return (Path(self.source.name).parent / rebased(shown, folder, suite_folder)).as_posix()
