"""Renders a report as Markdown, for a job summary or a comment on a pull request."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import groupby

from visioneval.report.sections import Cell, Report, Section, Value
from visioneval.report.text import one_line

MAX_ROWS = 20
"""Rows of a table; a comment has a maximum length."""
_BOLD = ("fail", "error", "strong")


def report_markdown(report: Report) -> str:
    """A report: the outcome in the title, then what to know of it, then its sections."""
    return "\n\n".join(_blocks(report)) + "\n"


def _blocks(report: Report) -> Iterator[str]:
    title = ": ".join(filter(None, (escaped(report.title), code(report.subject), escaped(report.outcome.sentence))))
    yield f"## {title}"
    if report.facts:
        yield ", ".join(map(inline, report.facts))
    if report.lines:
        yield "\n".join(f"- {inline(line)}" for line in report.lines)
    shown = (part for part in report.sections if isinstance(part, Section))
    for fold, sections in groupby(shown, lambda part: part.fold or part.title * part.is_closed):
        body = "\n\n".join(map(section_markdown, sections))
        yield f"<details><summary>{html.escape(one_line(fold))}</summary>\n\n{body}\n\n</details>" if fold else body


def section_markdown(section: Section) -> str:
    """A section, with at most ``MAX_ROWS`` rows if it ``is_cut``."""
    shown = MAX_ROWS if section.is_cut else len(section.rows)
    more = len(section.rows) - shown
    # a title in a code span if a name in it could be a mention or a link
    title = code(section.title) if re.search(r"[@#]|://|www\.", section.title) else escaped(section.title)
    parts = [
        f"### {title}" if section.title and not section.is_closed else "",
        "\n".join(map(inline, section.about)),
        _table(section, shown) if section.columns else "",
        f"... and {more:,} more" if more > 0 else "",
        "\n".join(f"- {inline(note)}" for note in section.notes),
    ]
    return "\n\n".join(filter(None, parts))


def inline(cell: Cell) -> str:
    """A text on one line: quoted text in a code span, and what is bad in bold."""
    if not isinstance(cell, Value):
        return escaped(cell)
    text = "<br>".join(code(line) if cell.quoted else escaped(line) for line in cell.text.splitlines())
    text = f"**{text}**" if text and cell.tone in _BOLD else text
    return "<br>".join(filter(None, (_image(*cell.image), text))) if cell.image else text


def _image(address: str, description: str) -> str:
    shown = re.sub(r"([\\\[\]`*<])", r"\\\1", one_line(description))
    return f"![{shown}]({address})"


def code(text: str) -> str:
    """Text on one line, in a code span."""
    flat = one_line(text)
    if not flat:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if "`" in (flat[0], flat[-1]) else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def escaped(text: str) -> str:
    """Our own text, in which ``*``, ``<`` and such could be taken for markup."""
    return re.sub(r"([\\`*<]|\](?=[(\[:]))", r"\\\1", one_line(text, 2000))


def _table(section: Section, shown: int) -> str:
    """Escapes ``|`` only here: inside a table it ends a cell, even within a code span."""
    head = [code(column.name) if column.quoted else escaped(column.name) for column in section.columns]
    rows = [list(map(inline, row)) for row in section.rows[:shown]]
    lines = [head, ["---:" if column.is_number else "---" for column in section.columns], *rows]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
