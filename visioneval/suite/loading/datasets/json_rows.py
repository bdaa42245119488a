"""Rows of JSONL and JSON files. JSON is decoded item by item, so that every row has its line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from visioneval.errors import Problem
from visioneval.suite.loading.datasets.plain_json import DECODER, check_plain, json_fault
from visioneval.suite.loading.datasets.rows import KEY, VALUE, Row

_SPACE = re.compile(r"[ \t\r\n]*")


def jsonl_rows(text: str, name: str) -> Iterator[Row | Problem]:
    """One object per line. An invalid line is a problem, and the next one is read."""
    number = 0
    for line, part in enumerate(text.split("\n"), 1):
        if not part.strip():
            continue
        number += 1
        try:
            cells = DECODER.decode(part.strip())
            check_plain(part, cells)
        except (ValueError, RecursionError) as error:
            column = error.colno if isinstance(error, json.JSONDecodeError) else 1
            yield Problem(name, line, column, json_fault(error))
        else:
            if isinstance(cells, dict):
                yield Row(line, cells, number)
            else:
                yield Problem(name, line, 1, 'a row must be an object: {"column": value, ...}')


def json_rows(text: str, name: str) -> Iterator[Row | Problem]:
    """The items of an array, or the members of an object, whose keys become the column ``_key``.

    Text and other values that are not objects become the column ``_value``. The first syntax error is a problem and
    ends the rows.
    """
    scanner = _Scanner(text)
    sign = text[scanner.at : scanner.at + 1]
    if sign not in ("[", "{"):
        yield Problem(name, scanner.line, 1, "a JSON dataset must be an array of objects, or an object by id")
        return
    keys: set[str] = set()
    number = 0
    try:
        for key, value in scanner.items(is_object=sign == "{"):
            number += 1
            if key is not None and key in keys:
                yield Problem(name, scanner.item_line, 1, f"the key {key!r} is duplicated")
                continue
            cells = value if isinstance(value, dict) else {VALUE: value}
            if key is not None:
                keys.add(key)
                cells = {KEY: key, **cells}
            yield Row(scanner.item_line, cells, number)
    except json.JSONDecodeError as error:
        yield Problem(name, error.lineno, error.colno, json_fault(error))
    except (ValueError, RecursionError) as error:
        yield Problem(name, scanner.item_line, 1, json_fault(error))


class _Scanner:
    """Decodes the items of the outermost array or object of a text one by one. ``item_line`` is the current one's."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.item_line = 1
        self._skip()

    def items(self, *, is_object: bool) -> Iterator[tuple[str | None, Any]]:
        """Key and value of each member of an object, or ``None`` and each item of an array."""
        end = "}" if is_object else "]"
        self._move(self.at + 1)
        if self.text[self.at : self.at + 1] == end:
            return self._finish()
        while True:
            self.item_line = self.line
            key = self._key() if is_object else None
            start = self.at
            value = self._value()
            check_plain(self.text[start : self.at], value)
            yield key, value
            self._skip()
            sign = self.text[self.at : self.at + 1]
            if sign == end:
                return self._finish()
            if sign != ",":
                raise json.JSONDecodeError(f"Expecting ',' delimiter or '{end}'", self.text, self.at)
            self._move(self.at + 1)

    def _finish(self) -> None:
        self._move(self.at + 1)
        if self.at < len(self.text):
            raise json.JSONDecodeError("Extra data", self.text, self.at)

    def _key(self) -> str:
        key = self._value()
        self._skip()
        if not isinstance(key, str) or self.text[self.at : self.at + 1] != ":":
            raise json.JSONDecodeError("Expecting a key in double quotes and ':'", self.text, self.at)
        self._move(self.at + 1)
        return key

    def _value(self) -> Any:
        value, end = DECODER.raw_decode(self.text, self.at)
        self._advance(end)
        return value

    def _move(self, at: int) -> None:
        self._advance(at)
        self._skip()

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self._advance(match.end() if match else self.at)

    def _advance(self, at: int) -> None:
        self.line += self.text.count("\n", self.at, at)
        self.at = at
