"""Tables that keep their numbers whole at any width, in a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from visioneval.report.text import plain

GAP = 2
Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    """A column: as wide as what it holds, or, with ``least``, folded to no fewer than so many characters."""

    name: str
    right: bool = False
    least: int | None = None


def titled(title: str, body: RenderableType) -> RenderableType:
    """A heading, and what stands below it."""
    return Group(plain(title, "bold"), body)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> RenderableType:
    """A table of ``width`` characters at most; where that is too narrow, each row becomes a block of lines."""
    widths = fitted(columns, rows, width)
    if widths is None:
        return _stacked(columns, rows)
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column, column_width in zip(columns, widths, strict=True):
        made.add_column(
            plain(column.name), justify="right" if column.right else "left", width=column_width, overflow="fold"
        )
    for row in rows:
        made.add_row(*map(_text, row))
    return made


def fitted(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int] | None:
    """The width of each column, or ``None`` where not even the least ones fit."""
    natural = [
        max([cell_len(column.name), *(_cell_width(row[at]) for row in rows)]) for at, column in enumerate(columns)
    ]
    least = [
        wanted if column.least is None else min(wanted, column.least)
        for column, wanted in zip(columns, natural, strict=True)
    ]
    room = width - GAP * (len(columns) - 1)
    spare = room - sum(least)
    if spare < 0:
        return None
    widths = list(least)
    for at in sorted(range(len(columns)), key=lambda at: natural[at] - least[at]):
        hungry = sum(1 for other, wanted in enumerate(natural) if widths[other] < wanted)
        more = min(natural[at] - least[at], spare // max(hungry, 1))
        widths[at] += more
        spare -= more
    return widths


def pairs(rows: Iterable[tuple[str, Cell]]) -> Table:
    """Names and what stands for them, without a head; long text folds under itself."""
    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(plain(name), _text(value))
    return made


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RenderableType:
    blocks: list[RenderableType] = []
    for row in rows:
        blocks += [Text("")] if blocks else []
        blocks.append(pairs((column.name, cell) for column, cell in zip(columns, row, strict=True)))
    return Group(*blocks)


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else plain(cell)


def _cell_width(cell: Cell) -> int:
    return max((cell_len(line) for line in _text(cell).plain.split("\n")), default=0)
