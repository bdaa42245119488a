"""What a report says, once for every form of it: an outcome, then sections. Plain data, without markup or layout.

``run``, ``compare``, ``agreement``, ``ranking`` and ``probe`` build reports from findings; ``terminal``, ``markdown``
and ``html`` render them. A new section is one function that returns a ``Section``. The renderers escape all text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Tone = Literal["plain", "pass", "fail", "error", "strong", "dim"]
"""How a text looks. A tone repeats what the text says, as color never carries meaning alone."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A number with its interval on an axis that a column shares. The coordinates are numbers of the metric."""

    low: float | None
    value: float | None
    high: float | None
    ends: tuple[float, float] = (0.0, 1.0)
    marks: tuple[float, ...] = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram: the heights of equal bins from left to right, the tallest is 1. ``ends`` name those of its axis.

    ``is_good`` if values on the right are better: only then the bars have the color of the page, else they are gray.
    """

    heights: tuple[float, ...]
    ends: tuple[str, str] = ("", "")
    is_good: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, from 0 to 1. ``is_good`` if more is better: a full gray bar is no praise."""

    value: float
    is_good: bool = False


Plot = Interval | Bars | Share


@dataclass(frozen=True, slots=True)
class Value:
    """The content of a table's cell, or a line of text.

    ``link`` is an address within the page, and ``plot`` is drawn beside the text: both in HTML only. ``quoted`` is text
    of a suite, a model or a person: Markdown puts it in a code span, so that it renders no links, mentions or markup.
    ``short`` is what a terminal shows instead of ``text``. ``image`` is the address of an image and its description,
    which only Markdown shows, above the text.
    """

    text: str
    tone: Tone = "plain"
    quoted: bool = False
    link: str = ""
    plot: Plot | None = None
    short: str = ""
    image: tuple[str, str] | None = None


Cell = str | Value


def quoted(text: str, tone: Tone = "plain", link: str = "") -> Value:
    """Text of a suite, a model or a person."""
    return Value(text, tone, quoted=True, link=link)


def counted(number: int, tone: Tone) -> Value:
    """A count, in the tone of what it counts if there is any."""
    return Value(str(number), tone if number else "dim")


def dim(text: str) -> Value:
    """A remark."""
    return Value(text, "dim")


STATES: Mapping[str, Value] = {
    "passed": Value("passed", "pass"),
    "failed": Value("FAILED", "fail"),
    "unmeasured": Value("NOT MEASURED", "error"),
    "cannot_tell": Value("CANNOT TELL", "error"),
    "not_applicable": dim("not applicable"),
    "skipped": dim("skipped"),
    "deferred": dim("after merging"),
}
"""The states of gates and minimums."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. ``is_number`` aligns it to the right; ``quoted`` if its name is text of a suite or a model.

    In a terminal it has the name ``short``, if there is one, and is as wide as its content, or, with ``min_width``,
    wrapped to at least that width. In HTML, ``axis`` are the names of the ends of its plots, and what is between.
    """

    name: str
    is_number: bool = False
    min_width: int | None = None
    quoted: bool = False
    short: str = ""
    axis: tuple[str, ...] = ()


def texts(*names: str) -> list[Column]:
    """Columns that wrap if they have to."""
    return [Column(name, min_width=10) for name in names]


def numbers(*names: str) -> list[Column]:
    """Columns that are aligned to the right."""
    return [Column(name, is_number=True) for name in names]


def shown_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], is_shown: Mapping[str, bool]
) -> tuple[list[Column], list[list[Cell]]]:
    """Columns and rows without the columns of these names that are not shown."""
    shown = [at for at, column in enumerate(columns) if is_shown.get(column.name, True)]
    return [columns[at] for at in shown], [[row[at] for at in shown] for row in rows]


@dataclass(frozen=True, slots=True)
class Section:
    """A table with a title above, and lines of text before (``about``) and after it (``notes``).

    A table that ``splits`` shows in a terminal as many columns side by side as fit, and the rest below, with the first
    column repeated, such as a column for each model run. Sections with the same ``fold`` are together behind this
    title, which is closed at first; a terminal shows them with ``--full`` only, and says so. One that ``is_closed`` is
    behind its own title in Markdown. ``narrow`` is its form where its columns do not fit a terminal. Markdown
    cuts a table of cells or pairs that ``is_cut``: a comment has a maximum length.
    """

    title: str
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Cell]] = ()
    notes: Sequence[Cell] = ()
    about: Sequence[Cell] = ()
    splits: bool = False
    fold: str = ""
    is_closed: bool = False
    is_cut: bool = False
    narrow: Section | None = None
    name: str = ""
    """Identifies the section in HTML, for its style and for links."""


@dataclass(frozen=True, slots=True)
class Tile:
    """An image with its caption, in HTML only. ``image`` is its address there; without one, ``caption`` says why.

    ``before`` is the address of an image on its left, to compare it with.
    """

    image: str
    link: str
    title: str
    caption: Sequence[Cell] = ()
    before: str = ""


@dataclass(frozen=True, slots=True)
class ImageStrip:
    """Images side by side, below a title."""

    title: str
    tiles: Sequence[Tile]
    notes: Sequence[Cell] = ()
    fold: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended, in one sentence, and the exit code that follows from it; ``None`` before the end."""

    tone: Tone
    sentence: str
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a report says, in the order in which it is read.

    ``title`` is our own text, and ``subject`` the name of what it is about. ``facts`` are the short parts of its first
    line, and ``lines`` the sentences below it. ``commands`` come last, and are not wrapped, so that they can be copied.
    ``more`` tells readers of a terminal how to see the folded sections.
    """

    title: str
    outcome: Outcome
    subject: str = ""
    facts: Sequence[Cell] = ()
    lines: Sequence[Cell] = ()
    sections: Sequence[Section | ImageStrip] = ()
    commands: Sequence[str] = field(default_factory=tuple)
    more: str = "--full"
