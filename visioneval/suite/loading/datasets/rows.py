"""A row of a dataset, and values in it by column or by path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unicodedata import category, normalize

from visioneval.errors import unlike_signs
from visioneval.suite.loading.datasets.cell_lists import cell_data
from visioneval.suite.loading.messages import did_you_mean

KEY, VALUE, NUMBER = "_key", "_value", "_row"
"""Columns that every row of a JSON object has (its key; its value if that is no object), and its number in the file."""

_PATH = re.compile(r"[^.\[\]]+(?:\.[^.\[\]]+|\[(?:\*|[0-9]{1,6})\])*")
_STEP = re.compile(r"\[(\*|[0-9]+)\]|([^.\[\]]+)")
_EACH = object()
_MISSING: Any = object()
_COMPARED_ROWS, _SHOWN = 50, 60
_IMAGE_TEXT = re.compile(
    r"""\s*(?:data:image/|b['"]\\x89PNG|b['"]\\xff\\xd8|b['"]RIFF|\{['"]bytes['"]:\s*(?:b?['"])
    |(?:iVBORw0KGgo|/9j/|UklGR|R0lGOD)[A-Za-z0-9+/]{64})""",
    re.VERBOSE,
)
"""How text begins that holds an image: a data URL, the bytes that pandas writes to CSV, base64 of the usual formats."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the number of its first line, its cells by column, and its number among the rows, all from 1."""

    line: int
    cells: Mapping[str, Any]
    number: int = 0
    has_text_only: bool = False
    """Whether it is of a text table, whose cells cannot tell a list or a missing value from a text."""
    binary: frozenset[str] = frozenset()
    """The columns of binary data in its file, which have no cells. All rows of a file share them."""

    def get(self, path: str) -> Any:
        """The value of a column, or at a path such as ``meta.size`` or ``objects[*].name``; ``None`` if missing.

        ``[*]`` collects a list, with ``None`` for items without a value. Raises ``ValueError`` if the path leads into
        text that is not JSON.
        """
        value = self.cells.get(path, _MISSING)
        if value is _MISSING:
            value = self._at(path)
        return None if value is _MISSING else value

    def has(self, path: str) -> bool:
        """Whether the row has a column, or a value at a path. Text that is not JSON counts as a value."""
        try:
            value = self._at(path)
        except ValueError:
            return True
        return path in self.cells or not (value is _MISSING or _is_null(value))

    def _at(self, path: str) -> Any:
        if path == NUMBER:
            return self.number
        steps = _steps(path)
        return _value_at(self.cells, steps) if len(steps) > 1 else _MISSING


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and bool(value) and all(item is None for item in value))


@lru_cache(maxsize=4096)
def _steps(path: str) -> tuple[Any, ...]:
    """The keys and indices of a path; empty if it is none."""
    if not _PATH.fullmatch(path):
        return ()
    return tuple((_EACH if index == "*" else int(index)) if index else name for index, name in _STEP.findall(path))


def _value_at(value: Any, steps: Sequence[Any]) -> Any:
    for depth, step in enumerate(steps):
        if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
            value = cell_data(value)
        if step is _EACH:
            return _collected(value, steps[depth + 1 :])
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else _MISSING
        else:
            value = value.get(step, _MISSING) if isinstance(value, Mapping) else _MISSING
        if value is _MISSING or value is None:
            return value
    return value


def _collected(value: Any, steps: Sequence[Any]) -> Any:
    items = list(value.values()) if isinstance(value, Mapping) else value
    if not isinstance(items, list):
        return _MISSING
    collected: list[Any] = []
    for item in items:
        inner = _value_at(item, steps)
        if _EACH in steps and isinstance(inner, list):
            collected += inner
        else:
            collected.append(None if inner is _MISSING else inner)
    return collected


def column_of(path: str, cells: Mapping[str, Any]) -> str:
    """The column that a path leads into."""
    steps = _steps(path)
    return path if path in cells or not steps else str(steps[0])


def missing_columns(rows: Sequence[Row], fields: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each key of ``fields`` whose column or path is missing in all rows, with a message."""
    for key, column in fields.items():
        if message := missing_column(rows, column):
            yield key, message


def missing_column(rows: Sequence[Row], column: str) -> str | None:
    """Why no row has a value for ``column``; ``None`` if one has."""
    if any(row.has(column) for row in rows):
        return None
    for name in rows[0].binary if rows else ():
        if f"{column}.".startswith((f"{name}.", f"{name}[")):
            return holds_images(name) if column == name else _beside_images(column, name)
    columns = {name for row in rows for name in row.cells}
    if len(_steps(column)) > 1 and _steps(column)[0] in columns:
        return f"no row has a value at {column!r}{did_you_mean(column, set(_paths(rows[:_COMPARED_ROWS])))}"
    if len(columns) == 1 and (hint := separator_hint(only := next(iter(columns)))):
        return f"the dataset is read as one column, {only[:_SHOWN]!r}: {hint}"
    if (other := other_spelling(column, columns)) is not None:
        signs = unlike_signs(other, column)
        advice = "write it exactly so, or rename it in the file"
        return f"the dataset spells the column {other!r}{signs}, not {column!r}: {advice}"
    return f"the dataset has no column {column!r}{did_you_mean(column, columns)}"


def holds_images(column: str) -> str:
    """The message about a column of images that is named where a value is wanted."""
    return (
        f"the column {column!r} holds images or other binary data, which are not read yet: save them as files, and name"
        " a column with their paths as 'images' or 'output'"
    )


def _beside_images(path: str, column: str) -> str:
    """The message about a path in a column that is not read since it holds images too."""
    return (
        f"{path!r} is not read, as its column {column!r} holds images or other binary data: save them as files, and"
        " name another column with their paths as 'images' or 'output'"
    )


def image_column(rows: Sequence[Row], column: str) -> str | None:
    """Why a column cannot be text: its first value is an image as JSON, base64 or pandas write one."""
    for row in rows:
        with suppress(ValueError):  # text that is not JSON is reported with its line
            if (value := row.get(column)) not in (None, "", []):
                return holds_images(column) if _is_image(value) else None
    return None


def _is_image(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and _is_image(value[0])
    if isinstance(value, Mapping):
        return isinstance(value.get("bytes"), str | list)
    return isinstance(value, str) and _IMAGE_TEXT.match(value) is not None


def other_spelling(column: str, columns: Iterable[str]) -> str | None:
    """The column that differs from a name only in case, in spaces around it or in invisible characters."""
    return next((name for name in sorted(columns) if _spelled(name) == _spelled(column)), None)


def _spelled(name: str) -> str:
    visible = "".join(sign for sign in normalize("NFKC", name) if category(sign) not in ("Cf", "Cc"))
    return visible.strip().strip("'\"").casefold()


def separator_hint(header: str) -> str | None:
    """What to do about a header of a single column that contains another separator."""
    separator = max(",;\t|", key=header.count)
    if not header.count(separator):
        return None
    shown = {"\t": "\\t"}.get(separator, separator)
    return f'its header looks separated by {separator!r}: save it with commas, or in a dataset set separator: "{shown}"'


def _paths(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        for column, value in row.cells.items():
            inner, mark = (value[0], "[*]") if isinstance(value, list) and value else (value, "")
            if isinstance(inner, Mapping):
                yield from (f"{column}{mark}.{key}" for key in inner)
