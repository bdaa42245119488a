"""Filters of a dataset: which rows are used, by conditions on their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from visioneval.suite.loading.datasets.rows import Row
from visioneval.suite.loading.messages import did_you_mean, format_value

_MOST_KNOWN = 1000


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
            known = {str(cell) for cell in cells[:_MOST_KNOWN] if cell not in (None, "")}
            return f"no row has {format_value(value)} in {column!r}{did_you_mean(str(value), known)}"
    return None


def _is_true(cell: Any, condition: Any, column: str) -> bool:
    if isinstance(condition, Mapping):
        return _is_within(cell, condition, column) and not ("not" in condition and _is_any(cell, condition["not"]))
    return _is_any(cell, condition)


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


def _is_within(cell: Any, limits: Mapping[str, Any], column: str) -> bool:
    """Whether a number is from ``min`` to ``max``; an empty cell is not. Raises ``ValueError`` for other text."""
    if "min" not in limits and "max" not in limits:
        return True
    if cell in (None, ""):
        return False
    number = _number(cell)
    if number is None or number != number:  # NaN
        raise ValueError(f"filter: {column} is {format_value(cell)}, which is not a number")
    lowest, highest = limits.get("min", float("-inf")), limits.get("max", float("inf"))
    return bool(lowest <= number <= highest)
