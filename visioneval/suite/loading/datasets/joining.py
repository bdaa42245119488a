"""Joins: adds the columns of a second file to the rows that match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from visioneval.bounds import CELLS
from visioneval.suite.entries.datasets import Join
from visioneval.suite.loading.datasets.rows import Row

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
    if clash := _clash(rows, others, join):
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
    on = dict.fromkeys(join.on.values(), "")
    matches: dict[Key, list[Row]] = {}
    for row in others:
        if key := _key(row, {column: column for column in on}, other_name, report):
            same = matches.setdefault(key, [])
            if same and not join.many:
                values = ", ".join(map(repr, key))
                message = f"{values} is repeated: line {same[0].line} has it too, and a row can match only one"
                report(other_name, row.line, f"{message}, unless the join has 'many: true'")
            same.append(row)
    return matches


def _key(row: Row, on: Mapping[str, str], name: str, report: Report) -> Key:
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


def _clash(rows: Sequence[Row], others: Sequence[Row], join: Join) -> str | None:
    """A column that the join would replace, apart from those that are equal because they are compared."""
    compared = {left for left, right in join.on.items() if left == right}
    added = _names(others) - compared if join.name is None else {join.name}
    return min(_names(rows) & added, default=None)


def _names(rows: Sequence[Row]) -> set[str]:
    return set(_all_names(rows))


def _all_names(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield from row.cells
