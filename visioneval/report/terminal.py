"""Renders a report for a terminal or a pipe. It fits the width, and breaks numbers and names only if it has to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from visioneval.report.sections import Cell, Column, ImageStrip, Outcome, Report, Section, Tone, Value
from visioneval.report.text import clean

GAP = 2
STYLES: Mapping[Tone, str] = {
    "plain": "",
    "pass": "green",
    "fail": "red",
    "error": "yellow",
    "strong": "bold",
    "dim": "dim",
}
_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
_SEPARATORS = ",;/(", "=_-.:"
"""Long words break after one of the first, else after one of the second."""
_PART = re.compile(r"[^\s,;/(=_\-.:]+[,;/(=_\-.:]*|[,;/(=_\-.:]+")
"""What stays on one line."""


def print_report(report: Report, console: Console, *, is_full: bool = False) -> None:
    """Prints a report: its outcome, then its sections."""
    subject = [Value(report.subject, "strong")] if report.subject else []
    facts = joined([*subject, *report.facts], console.width)
    outcome = outcome_line(report.outcome, console.width)
    console.print(Group(*([facts] if facts else []), outcome, *map(text_of, report.lines)))
    console.print()
    print_sections(report.sections, console, is_full=is_full, more=report.more)


def print_end(report: Report, console: Console) -> None:
    """Prints the outcome again, as it has scrolled away, and what to do next."""
    console.print(outcome_line(report.outcome, console.width))
    for command in report.commands:
        console.print(Text(clean(command)), soft_wrap=True)


def outcome_line(outcome: Outcome, width: int) -> Text:
    """The outcome and its exit code, which stays on one line."""
    code = "" if outcome.exit_code is None else f" (exit\xa0code\xa0{outcome.exit_code})"
    lines = wrap(f"{clean(outcome.sentence)}{code}", width, break_on_hyphens=False)
    return Text("\n".join(lines).replace("\xa0", " "), style=f"bold {STYLES[outcome.tone]}".strip())


def print_section(section: Section, console: Console) -> None:
    """Prints a section that is no part of a report."""
    console.print(section_part(section, console.width))


def print_sections(
    sections: Iterable[Section | ImageStrip], console: Console, *, is_full: bool = False, more: str = "--full"
) -> None:
    """Prints sections, without images, and without those that are folded, unless ``is_full``."""
    tables = [section for section in sections if isinstance(section, Section)]
    for section in tables:
        if is_full or not section.fold:
            console.print(section_part(section, console.width))
            console.print()
    if not is_full and (folds := list(dict.fromkeys(section.fold for section in tables if section.fold))):
        console.print(Text(clean(f"{more} shows more: {'; '.join(folds)}"), style="dim"))
        console.print()


def section_part(section: Section, width: int) -> RenderableType:
    """A section with its title, if it has one."""
    title = [Text(clean(section.title), style="bold")] if section.title else []
    return Group(*title, *map(text_of, section.about), *_tables(section, width), *map(text_of, section.notes))


def _tables(section: Section, width: int) -> Iterator[RenderableType]:
    """The table of a section, or several with as many columns side by side as fit."""
    while section.narrow and fit_columns(section.columns, section.rows, width) is None:
        section = section.narrow
    columns, rows = section.columns, section.rows
    if columns and (len(columns) == 1 or not section.splits):
        yield table(columns, rows, width)
        return
    start = 1
    while start < len(columns):
        end = start + 1
        while end < len(columns) and fit_columns(*_side_by_side(columns, rows, start, end + 1), width) is not None:
            end += 1
        yield from [Text("")] if start > 1 else []
        yield table(*_side_by_side(columns, rows, start, end), width)
        start = end


def _side_by_side(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], start: int, end: int
) -> tuple[list[Column], list[list[Cell]]]:
    return [columns[0], *columns[start:end]], [[row[0], *row[start:end]] for row in rows]


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> RenderableType:
    """A table at most ``width`` characters wide. If that is too narrow, each row becomes a block of lines."""
    widths = fit_columns(columns, rows, width)
    if widths is None:
        return _stacked(columns, rows)
    body = Table(box=_RULE, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column, size in zip(columns, widths, strict=True):
        name = Text(_heading(column), style="bold")
        body.add_column(name, justify="right" if column.is_number else "left", width=size, overflow="fold")
    for row in rows:
        body.add_row(*(_broken_at_signs(text_of(cell), size) for cell, size in zip(row, widths, strict=True)))
    return body


def fit_columns(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int] | None:
    """The width of each column, or ``None`` if the minimum widths do not fit. Words are broken only if they have to."""
    texts = [[_heading(column), *(text_of(row[at]).plain for row in rows)] for at, column in enumerate(columns)]
    natural = [max(max(map(cell_len, text.split("\n"))) for text in column) for column in texts]
    narrow = [
        size if column.min_width is None else min(size, column.min_width)
        for column, size in zip(columns, natural, strict=True)
    ]
    whole = [
        size
        if column.min_width is None
        else max([size, *(cell_len(part) for text in cells for part in _PART.findall(text))])
        for column, size, cells in zip(columns, narrow, texts, strict=True)
    ]
    room = width - GAP * (len(columns) - 1)
    minimum = whole if sum(whole) <= room else narrow
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
        grid.add_row(Text(clean(name)), text_of(value))
    return grid


def text_of(cell: Cell) -> Text:
    """Clean text in its color."""
    value = cell if isinstance(cell, Value) else Value(cell)
    return Text(clean(value.short or value.text), style=STYLES[value.tone])


def joined(facts: Sequence[Cell], width: int) -> Text:
    """Facts with two spaces between them, in as many lines as they need. Cuts the first one if it is too long."""
    lines: list[Text] = []
    for text in map(text_of, facts):
        text.truncate(width, overflow="ellipsis")
        if lines and lines[-1].cell_len + GAP + text.cell_len <= width:
            lines[-1] = Text.assemble(lines[-1], " " * GAP, text)
        else:
            lines.append(text)
    return Text("\n").join(lines)


def _stacked(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RenderableType:
    blocks: list[RenderableType] = []
    shown: list[Cell] = []
    for row in rows:
        empty = next((at for at, cell in enumerate(row) if text_of(cell).plain), 0)
        shown = [*shown[:empty], *row[empty:]]  # in a table, they belong to the row above
        blocks += [Text("")] if blocks else []
        blocks.append(key_values((_heading(column), cell) for column, cell in zip(columns, shown, strict=True)))
    return Group(*blocks)


def _broken_at_signs(text: Text, width: int) -> Text:
    """Breaks words that are wider than ``width`` after the last sign that separates parts, such as a comma.

    A label such as ``gpt-image-2,quality=low`` would be broken anywhere.
    """
    breaks: list[int] = []
    for word in re.finditer(r"\S+", text.plain):
        start = word.start()
        while start < (end := _fitting_end(text.plain, start, word.end(), width)) < word.end():
            last = [max(text.plain.rfind(sign, start, end) for sign in signs) for signs in _SEPARATORS]
            start = next((at + 1 for at in last if at >= 0), end)
            breaks.append(start)
    return Text("\n").join(text.divide(breaks)) if breaks else text


def _fitting_end(text: str, start: int, end: int, width: int) -> int:
    """Where a part of a text ends that begins at ``start``, and is at most ``width`` wide."""
    for at in range(start, end):
        width -= cell_len(text[at])
        if width < 0:
            return at
    return end


def _heading(column: Column) -> str:
    return clean(column.short or column.name)
