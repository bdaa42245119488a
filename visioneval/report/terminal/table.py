"""Tables that never wrap numbers, at any width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from visioneval.report.text import plain

GAP = 2
_SEPARATORS = ",;/", "=_-.:"
"""Long words break after one of the first, else after one of the second."""
Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    """A column as wide as its content, or, with ``min_width``, wrapped to at least that width."""

    name: str
    right: bool = False
    min_width: int | None = None


def with_title(title: str, body: RenderableType) -> RenderableType:
    """A heading above a body."""
    return Group(plain(title, "bold"), body)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> RenderableType:
    """A table at most ``width`` characters wide. If that is too narrow, each row becomes a block of lines."""
    widths = fit_columns(columns, rows, width)
    if widths is None:
        return _stacked(columns, rows)
    return _Grid(columns, rows, widths)


@dataclass(frozen=True, slots=True)
class _Grid:
    """A table with fitted widths. Rich's own, which measures each cell again, takes several times as long."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    widths: Sequence[int]

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> Iterator[Text]:
        names = self._lines([plain(column.name, "bold") for column in self.columns], console, is_at_bottom=True)
        rule = Text("─" * (sum(self.widths) + GAP * (len(self.widths) - 1)))
        rows = [line for row in self.rows for line in self._lines(row, console)]
        yield Text("\n", no_wrap=True, overflow="ignore").join([*names, rule, *rows])

    def _lines(self, row: Sequence[Cell], console: Console, *, is_at_bottom: bool = False) -> Iterator[Text]:
        """The lines of a row, as many as its highest cell has."""
        cells: list[Sequence[Text | None]] = [
            _wrapped(_text(cell), width, column.right, console)
            for cell, width, column in zip(row, self.widths, self.columns, strict=True)
        ]
        height = max(len(cell) for cell in cells)
        if is_at_bottom:
            cells = [[*[None] * (height - len(cell)), *cell] for cell in cells]
        for parts in zip_longest(*cells):
            line = Text()
            for at, (part, width) in enumerate(zip(parts, self.widths, strict=True)):
                line.append(" " * GAP if at else "")
                line.append(" " * width if part is None else part)
            yield line


def _wrapped(text: Text, width: int, is_right: bool, console: Console) -> Sequence[Text]:
    """The lines of a cell, each filled up to a width."""
    if "\n" in text.plain or "\t" in text.plain or cell_len(text.plain) > width:
        broken = _broken_at_signs(text, width)
        return list(broken.wrap(console, width, justify="right" if is_right else "left", overflow="fold"))
    line = text.copy()
    if is_right:
        line.rstrip()
        line.pad_left(width - line.cell_len)
    else:
        line.pad_right(width - line.cell_len)
    return [line]


def fit_columns(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int] | None:
    """The width of each column, or ``None`` if the minimum widths do not fit."""
    natural = [
        max([_cell_width(column.name), *(_cell_width(row[at]) for row in rows)]) for at, column in enumerate(columns)
    ]
    minimum = [
        size if column.min_width is None else min(size, column.min_width)
        for column, size in zip(columns, natural, strict=True)
    ]
    room = width - GAP * (len(columns) - 1)
    spare_width = room - sum(minimum)
    if spare_width < 0:
        return None
    widths = list(minimum)
    for at in sorted(range(len(columns)), key=lambda at: natural[at] - minimum[at]):
        growing = sum(1 for other, size in enumerate(natural) if widths[other] < size)
        extra = min(natural[at] - minimum[at], spare_width // max(growing, 1))
        widths[at] += extra
        spare_width -= extra
    return widths


def key_values(rows: Iterable[tuple[str, Cell]]) -> Table:
    """Names and values without a header; long values wrap."""
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(plain(name), _text(value))
    return grid


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RenderableType:
    blocks: list[RenderableType] = []
    for row in rows:
        blocks += [Text("")] if blocks else []
        blocks.append(key_values((column.name, cell) for column, cell in zip(columns, row, strict=True)))
    return Group(*blocks)


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else plain(cell)


def _broken_at_signs(text: Text, width: int) -> Text:
    """Breaks words that are wider than ``width`` after the last sign that separates parts, such as a comma.

    A label such as ``gpt-image,quality=low`` would be broken anywhere.
    """
    breaks: list[int] = []
    for word in re.finditer(r"\S+", text.plain):
        start = word.start()
        while cell_len(text.plain[start : word.end()]) > width:
            fitting = [at for at in range(start + 1, word.end()) if cell_len(text.plain[start:at]) <= width]
            if not fitting:
                break
            by_sign = ([at for at in fitting if text.plain[at - 1] in signs] for signs in _SEPARATORS)
            start = next(filter(None, by_sign), fitting)[-1]
            breaks.append(start)
    return Text("\n").join(text.divide(breaks)) if breaks else text


def _cell_width(cell: Cell) -> int:
    return max((cell_len(line) for line in _text(cell).plain.split("\n")), default=0)
