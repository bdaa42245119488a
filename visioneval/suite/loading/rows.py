"""Rows of a dataset: values by column or by path, joins with a second file, and filters."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unicodedata import category, normalize

from visioneval.bounds import CELLS
from visioneval.errors import did_you_mean, unlike_signs
from visioneval.suite.files import Join
from visioneval.suite.loading.cells import cell_data
from visioneval.suite.messages import format_value

KEY, VALUE, NUMBER = "_key", "_value", "_row"
"""Columns that every row of a JSON object has (its key; its value if that is no object), and its number in the file."""
SOURCES: Mapping[str, str] = {
    "caption": "the column of this name, else a path",
    "objects[0].name": "a path into objects and lists, also in JSON inside text",
    "objects[*].name": "a list with the value of each item, or `null`",
    "{{ row.caption }}, studio light": "a template with the row and the suite's variables, except secret ones",
    "[scene.n, scene.seed]": "for `id` the values, joined by `_`; for `tags` the tags of each column",
    "{id: ..., question: ...}": "for `questions`, `add_questions` and `turns`, the source of each key",
    NUMBER: "the number of the row, from 1",
}
"""What the source of a key can be, for the reference, by an example."""

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
        if isinstance(value, list) and value and all(item is None for item in value):
            value = None
        return path in self.cells or (value is not _MISSING and value is not None)

    def _at(self, path: str) -> Any:
        if path == NUMBER:
            return self.number
        steps = _steps(path)
        return _value_at(self.cells, steps) if len(steps) > 1 else _MISSING


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
            items = list(value.values()) if isinstance(value, Mapping) else value
            return _collected(items, steps[depth + 1 :]) if isinstance(items, list) else _MISSING
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else _MISSING
        else:
            value = value.get(step, _MISSING) if isinstance(value, Mapping) else _MISSING
        if value is _MISSING or value is None:
            return value
    return value


def _collected(items: list[Any], steps: Sequence[Any]) -> list[Any]:
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
            if column == name:
                return holds_images(name)
            message = f"{column!r} is not read, as its column {name!r} holds images or other binary data"
            return f"{message}: save them as files, and name another column with their paths as 'images' or 'output'"
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


Report = Callable[[str, int, str], None]
"""Reports a problem with a line of a file."""
Key = tuple[str, ...]


def joined(
    rows: Sequence[Row], name: str, others: Sequence[Row], other_name: str, join: Join, report: Report
) -> list[Row]:
    """The rows of the file ``name`` with the columns of their matches in ``other_name``.

    Reports rows without a match, keys that match several rows, and columns that both files have.
    """
    matches = _by_key(others, other_name, join, report)
    # a column that the join would replace, apart from those that are equal because they are compared
    compared = {left for left, right in join.on.items() if left == right}
    added = _names(others) - compared if join.name is None else {join.name}
    if clash := min(_names(rows) & added, default=None):
        report(other_name, 1, f"both {name} and {other_name} have a column {clash!r}: change 'as' of the join")
        return []
    columns = {key: _columns(same, join) for key, same in matches.items()}
    has_text_only = any(other.has_text_only for other in others)
    above = "" if join.name is None else f"{join.name}."
    binary = frozenset(f"{above}{column}" for column in others[0].binary)
    result: list[Row] = []
    matched = 0
    for row in rows:
        key = _key(row, join.on, name, report)
        matched += len(matches.get(key, ()))
        if key and key not in matches and not join.optional:
            described = ", ".join(f"{column} {value!r}" for column, value in zip(join.on.values(), key, strict=True))
            report(name, row.line, f"{other_name} has no row with {described}: add it, or set 'optional: true'")
        if matched > CELLS.limit:
            report(name, row.line, f"more than {CELLS.limit:,} rows of {other_name} match ({CELLS.hint})")
            return []
        cells = {**row.cells, **columns.get(key, _columns([], join))}
        text_only = row.has_text_only or has_text_only
        result.append(Row(row.line, cells, row.number, has_text_only=text_only, binary=row.binary | binary))
    return result


def _columns(same: Sequence[Row], join: Join) -> Mapping[str, Any]:
    """The columns that rows of the second file add. Rows that match the same ones share them."""
    if join.many:
        return {str(join.name): [row.cells for row in same]}
    if not same:
        return {}
    return same[0].cells if join.name is None else {join.name: same[0].cells}


def _by_key(others: Sequence[Row], other_name: str, join: Join, report: Report) -> dict[Key, list[Row]]:
    columns = list(dict.fromkeys(join.on.values()))
    matches: dict[Key, list[Row]] = {}
    for row in others:
        if key := _key(row, columns, other_name, report):
            same = matches.setdefault(key, [])
            if same and not join.many:
                values = ", ".join(map(repr, key))
                message = f"{values} is repeated: line {same[0].line} has it too, and a row can match only one"
                report(other_name, row.line, f"{message}, unless the join has 'many: true'")
            same.append(row)
    return matches


def _key(row: Row, on: Collection[str], name: str, report: Report) -> Key:
    """The values to compare as text, since all cells of a table are text; empty if one of them is missing."""
    try:
        values = tuple("" if (value := row.get(column)) is None else str(value) for column in on)
    except ValueError as error:
        report(name, row.line, str(error))
        return ()
    if not all(values):
        report(name, row.line, f"the row has no value in {', '.join(map(repr, on))}, which the join needs")
        return ()
    return values


def _names(rows: Sequence[Row]) -> set[str]:
    return {name for row in rows for name in row.cells}


def filtered(rows: Sequence[Row], conditions: Mapping[str, Any], report: Callable[[int, str], None]) -> list[Row]:
    """The rows for which all conditions are true. ``report`` gets the line of each row that cannot be compared."""
    matching: list[Row] = []
    for row in rows:
        try:
            if all(_is_true(row.get(column), condition, column) for column, condition in conditions.items()):
                matching.append(row)
        except ValueError as error:
            report(row.line, str(error))
    return matching


def unmatched_values(rows: Sequence[Row], column: str, condition: Any) -> str | None:
    """Why a value that a condition names is a mistake: no row has it. ``None`` if every value occurs."""
    if isinstance(condition, Mapping):
        condition = condition.get("not", [])
    values = condition if isinstance(condition, list) else [condition]
    cells = [cell for row in rows for cell in _items(row.get(column))]
    for value in values:
        if value is not None and not any(_equals(cell, value) for cell in cells):
            known = {str(cell) for cell in cells[:1000] if cell not in (None, "")}
            return f"no row has {format_value(value)} in {column!r}{did_you_mean(str(value), known)}"
    return None


def _is_true(cell: Any, condition: Any, column: str) -> bool:
    """Whether a cell meets a condition; an empty one is within no limits. Raises ``ValueError`` for other text."""
    if not isinstance(condition, Mapping):
        return _is_any(cell, condition)
    if "min" in condition or "max" in condition:
        if cell in (None, ""):
            return False
        number = _number(cell)
        if number is None or number != number:  # NaN
            raise ValueError(f"filter: {column} is {format_value(cell)}, which is not a number")
        if not condition.get("min", float("-inf")) <= number <= condition.get("max", float("inf")):
            return False
    return not ("not" in condition and _is_any(cell, condition["not"]))


def _is_any(cell: Any, values: Any) -> bool:
    values = values if isinstance(values, list) else [values]
    return any(_equals(item, value) for item in _items(cell) for value in values)


def _items(cell: Any) -> list[Any]:
    """A cell's items: a list matches a value that it contains."""
    return cell if isinstance(cell, list) and cell else [None if cell == [] else cell]


def _equals(cell: Any, value: Any) -> bool:
    """Whether a cell equals a value. All cells of a table are text, so numbers, yes and no are compared as such."""
    if value is None or cell in (None, ""):
        return value in (None, "") and cell in (None, "")
    if isinstance(value, bool):
        return str(cell).lower() == str(value).lower()
    if isinstance(value, (int, float)) and (number := _number(cell)) is not None:
        return number == value
    return str(cell) == str(value)


def _number(cell: Any) -> float | None:
    try:
        return None if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        return None
