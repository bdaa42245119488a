"""What a comparison of copy finds: expected lines and the places in the readings where they may stand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from visioneval.graders.text.alphabet import unreadable
from visioneval.graders.text.copy_match import Copy, Match, Page, Reading, copy_of, page_of, skeleton
from visioneval.graders.text.reading import reading_order
from visioneval.suite.cases.case import ExpectText

Hit = tuple[Copy, Match]
"""An expected line and its match."""

Doubt = Literal["look-alikes", "weak", "faint", "curved", "unread"]
"""Why a line cannot be decided: it was read with look-alikes; something else was read, but the line is likely too; it
was read at a confidence that is too low; it is curved; or there is text that could not be read."""


@dataclass(frozen=True, slots=True)
class CopyPair:
    """An expected line and the text that matches it.

    ``spans`` are the compared characters in the given readings, and ``mark`` is punctuation that directly follows and
    that no expected line explains. ``unreadable`` are the characters for which the reader may have read others, or
    nothing; ``read`` is empty if that leaves too little of the line to be found.
    """

    line: str
    read: str
    spans: Match
    doubt: Doubt | None = None
    unreadable: tuple[str, ...] = ()
    mark: str = ""

    @property
    def readings(self) -> tuple[int, ...]:
        """Indices into the given readings."""
        return tuple(index for index, _, _ in self.spans)


@dataclass(frozen=True, slots=True)
class Lines:
    """The expected lines, prepared for comparison. Blank lines are dropped."""

    required: tuple[Copy, ...]
    allowed: tuple[Copy, ...]
    forbidden: tuple[Copy, ...]

    @classmethod
    def of(cls, expected: ExpectText, *, fold: bool) -> Lines:
        groups = (expected.required, expected.allowed, expected.forbidden)
        return cls(*(tuple(c for c in (copy_of(line, fold=fold) for line in lines) if c.chars) for lines in groups))

    @property
    def all(self) -> tuple[Copy, ...]:
        return (*self.required, *self.allowed, *self.forbidden)


@dataclass(frozen=True, slots=True)
class View:
    """Readings as they are compared with lines: ``counted`` are the indices of those on the ``page``."""

    readings: Sequence[Reading]
    counted: Sequence[int]
    page: Page
    fold: bool

    @classmethod
    def of(cls, readings: Sequence[Reading], lines: Lines, *, fold: bool, min_confidence: float = 0.0) -> View:
        """The readings with text that are at least as confident (0 to 1)."""
        counted = [
            index
            for index, reading in enumerate(readings)
            if reading.confidence >= min_confidence and copy_of(reading.text, fold=fold).chars
        ]
        on_page = [readings[index] for index in counted]
        follows, near = reading_order.follows(on_page), reading_order.near(on_page)
        return cls(readings, counted, page_of(on_page, follows, near, lines.all, fold=fold), fold)

    def pairs(self, hits: Iterable[Hit], doubt: Doubt | None = None) -> tuple[CopyPair, ...]:
        """The hits in terms of the given readings."""
        return tuple(
            CopyPair(line.text, self.page.shown(match), self.spans(match), doubt, _gaps(self.page, line, match))
            for line, match in hits
        )

    def spans(self, match: Match) -> Match:
        """A match on the page in terms of the given readings."""
        return tuple((self.counted[index], start, end) for index, start, end in match)


def _gaps(page: Page, line: Copy, match: Match) -> tuple[str, ...]:
    """The unreadable characters of a line that was not read as it is."""
    read = "".join(page.copies[index].chars[start:end] for index, start, end in match)
    return () if skeleton(read) == skeleton(line.chars) else tuple(unreadable(line.text))
