"""Required lines that were not read as they are: what was read instead, and whether they may be there. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from visioneval.graders.text.alphabet import unreadable
from visioneval.graders.text.edits import differences, nearest
from visioneval.graders.text.layout import Reading
from visioneval.graders.text.match import (
    Copy,
    Match,
    Page,
    assign,
    copy_of,
    covered,
    in_lower_case,
    lower_case,
    occurrences,
    page_of,
    skeleton,
)
from visioneval.suite.case import ExpectText

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


def pairs(page: Page, hits: Iterable[Hit], doubt: Doubt | None = None) -> tuple[CopyPair, ...]:
    """The hits with what was read of them."""
    shown = []
    for line, match in hits:
        read = "".join(page.copies[index].chars[start:end] for index, start, end in match)
        gaps = () if skeleton(read) == skeleton(line.chars) else tuple(unreadable(line.text))
        shown.append(CopyPair(line.text, page.shown(match), match, doubt, gaps))
    return tuple(shown)


_UNREAD = 0.5
"""A reading below this confidence may be of other text, such as curved words or a logo."""
_MIN_UNREAD = 3
"""Characters: shapes are read as one or two."""
_CURVED = math.radians(8)
"""Boxes that are tilted by more against each other, or against the image, may belong to a curve."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A required line that was not read.

    ``nearest`` is the same text in another case, or the most similar text, with ``differences`` in words;
    ``edits`` counts characters, at most those of the line. ``parts`` are the runs of words that were read
    in separate places, if they are the whole line. ``have`` of ``want`` copies of this line were found.
    ``faint`` is the confidence (0 to 1) of a reading that was too low to count. ``readings`` are the indices
    of the faint or of the nearest reading.
    """

    line: str
    edits: int
    nearest: str | None
    differences: tuple[str, ...]
    have: int
    want: int
    faint: float | None
    readings: tuple[int, ...]
    parts: tuple[CopyPair, ...]


def settle(
    page: Page, lines: Lines, absent: Sequence[Copy], matched: Sequence[Hit], unsettled: Sequence[Hit]
) -> tuple[list[Hit], list[CopyPair], list[Miss], list[Match]]:
    """Decides about the ``absent`` lines. A judge's reading (``fold`` is false) leaves no doubt.

    Returns lines that were read in parts, those that may be there, those that are missing, and what was read in place
    of any of them.
    """
    taken = covered(match for _, match in (*matched, *unsettled))
    lower_page = in_lower_case(page) if absent else page
    faint = _faint_readings(page, lines, absent)
    weak = _weak(page, lines, absent)
    others = _others(page, matched, faint)
    joined: list[Hit] = []
    doubts: list[CopyPair] = []
    missing: list[Miss] = []
    instead: list[Match] = []
    for index, (line, faint_match) in enumerate(zip(absent, faint, strict=True)):
        other = _read_instead(page, lower_page, line, taken, fold=page.fold)
        instead += other.matches
        miss = _miss(page, line, other, faint_match, lines, matched)
        if match := _one_line(page, other.parts):
            joined.append((line, match))
            taken |= covered([match])
        elif index in weak:
            doubts.append(weak[index])
        elif doubt := _doubt(page, other, miss, others) if page.fold else None:
            doubts.append(CopyPair(line.text, *doubt))
        else:
            missing.append(miss)
    return joined, doubts, missing, instead


def _doubt(page: Page, other: _Instead, miss: Miss, others: Sequence[int]) -> tuple[str, Match, Doubt] | None:
    """What was read of a line that may be there, where, and why it cannot be decided."""
    if miss.faint is not None:
        return _joined_text(page, miss.readings), _places(miss.readings), "faint"
    closest = tuple(span for _, match in other.parts for span in match) or other.match or ()
    tilts = [_tilt(page.readings[index]) for index, _, _ in closest]
    if tilts and max(tilts) - min(tilts) > _CURVED:
        return page.shown(closest), closest, "curved"
    # What is not confident, or runs neither along the image nor up or down, as a part of a curve does.
    from_axes = {index: _tilt(page.readings[index]) % (math.pi / 2) for index in others}
    unread = [
        index
        for index, tilt in from_axes.items()
        if page.readings[index].confidence < _UNREAD or min(tilt, math.pi / 2 - tilt) > _CURVED
    ]
    return (_joined_text(page, unread), _places(unread), "unread") if unread and not closest else None


def _joined_text(page: Page, readings: Sequence[int]) -> str:
    return " ".join(page.readings[index].text for index in readings)


def _places(readings: Sequence[int]) -> Match:
    return tuple((index, 0, 0) for index in readings)


def _tilt(reading: Reading) -> float:
    """The angle of a reading, in radians; 0 without a place."""
    if reading.corners is None:
        return 0.0
    (left, top), (right, bottom) = reading.corners[:2]
    return math.atan2(bottom - top, right - left)


def _weak(page: Page, lines: Lines, absent: Sequence[Copy]) -> dict[int, CopyPair]:
    """The missing lines, by their index, that are there if readings say what they possibly say."""
    if not absent or not any(reading.possible for reading in page.readings):
        return {}
    possible = [replace(reading, text=reading.possible or reading.text, shown=()) for reading in page.readings]
    other = page_of(possible, lines.all, fold=True, min_confidence=page.min_confidence)
    weak: dict[int, CopyPair] = {}
    for number, match in enumerate(assign([occurrences(other, line.chars) for line in absent])):
        spans = match or ()
        if any(page.readings[index].possible for index, _, _ in spans):
            read = " ".join(page.readings[index].text for index, _, _ in spans)
            weak[number] = CopyPair(absent[number].text, read, spans, "weak")
    return weak


def in_whole_readings(page: Page, line: Copy) -> Match:
    """The whole readings that are a line if they are read one after the other; empty if there are none."""
    return _one_line(page, _parts(page, line, frozenset(), fold=True))


def _one_line(page: Page, parts: Sequence[Hit]) -> Match:
    """The parts as one match, if they are whole readings that may be read one after the other: a large number and a
    small word. Else empty."""
    spans = tuple(span for _, match in parts for span in match)
    is_whole = all((start, end) == (0, page.length(index)) for index, start, end in spans)
    is_in_order = all(after[0] in page.near[before[0]] for before, after in pairwise(spans))
    return spans if is_whole and is_in_order else ()


def _others(page: Page, matched: Sequence[Hit], faint: Sequence[_Faint | None]) -> tuple[int, ...]:
    """The readings of some length that are part of no required line."""
    explained = {index for _, match in matched for index, _, _ in match}
    explained |= {index for match in faint if match for index in match[1]}
    return tuple(
        index
        for index, reading in enumerate(page.readings)
        if index not in explained and len(reading.text.strip()) >= _MIN_UNREAD
    )


@dataclass(frozen=True, slots=True)
class _Instead:
    """What was read in place of a missing line. ``match`` is close to it; ``parts`` are words of it, or none."""

    edits: int
    match: Match | None
    parts: tuple[Hit, ...]

    @property
    def matches(self) -> tuple[Match, ...]:
        return (*(match for _, match in self.parts), *([self.match] if self.match else []))


def _read_instead(
    page: Page, lower_page: Page, line: Copy, taken: AbstractSet[tuple[int, int]], *, fold: bool
) -> _Instead:
    """The same text in another case, or the nearest text, and the parts that are all of a line."""
    closest = nearest(page, line, taken)
    match = _first_free(occurrences(lower_page, lower_case(line.chars)), taken)
    if match is None and closest is not None and closest.is_close(line):
        match = closest.match
    edits = len(line.chars) if closest is None else closest.edits
    return _Instead(edits, match, _parts(page, line, taken, fold=fold))


def _first_free(matches: Iterable[Match], taken: AbstractSet[tuple[int, int]]) -> Match | None:
    return next((match for match in matches if taken.isdisjoint(covered([match]))), None)


def _parts(page: Page, line: Copy, taken: AbstractSet[tuple[int, int]], *, fold: bool) -> tuple[Hit, ...]:
    """The longest runs of words that were read, in the order of the line; none if a word was not read."""
    stops = sorted({0, len(line.chars)} | line.gaps)
    parts: list[Hit] = []
    used, first = set(taken), 0
    while first < len(stops) - 1:
        best: tuple[int, Match] | None = None
        for last in range(first + 1, len(stops)):
            match = _first_free(occurrences(page, line.chars[stops[first] : stops[last]]), used)
            if match is None:
                break
            best = last, match
        if best is None:
            return ()
        last, match = best
        parts.append((copy_of(line.cut(stops[first], stops[last]), fold=fold), match))
        used |= covered([match])
        first = last
    return tuple(parts)


_Faint = tuple[float, tuple[int, ...]]
"""The confidence of a reading that is too low to count, and the indices of its readings."""


def _faint_readings(page: Page, lines: Lines, absent: Sequence[Copy]) -> list[_Faint | None]:
    """For each missing line, the most confident match of its own in which a reading is too faint to count."""
    with_faint = page_of(page.readings, lines.all, fold=page.fold) if absent else page
    faint = set(with_faint.counted) - set(page.counted)

    def weakest(match: Match) -> float:
        return min(page.readings[index].confidence for index, _, _ in match)

    options = [
        sorted(
            (match for match in occurrences(with_faint, line.chars) if any(index in faint for index, _, _ in match)),
            key=weakest,
            reverse=True,
        )
        for line in absent
    ]
    return [
        None if match is None else (weakest(match), tuple(index for index, _, _ in match)) for match in assign(options)
    ]


def _miss(
    page: Page, line: Copy, instead: _Instead, faint: _Faint | None, lines: Lines, matched: Sequence[Hit]
) -> Miss:
    match = instead.match or ()
    read = "".join(page.copies[index].chars[start:end] for index, start, end in match)
    confidence, readings = faint or (None, tuple(index for index, _, _ in match))
    return Miss(
        line=line.text,
        edits=instead.edits,
        nearest=page.shown(match) if match else None,
        differences=differences(line, read) if match else (),
        have=sum(other.chars == line.chars for other, _ in matched),
        want=sum(other.chars == line.chars for other in lines.required),
        faint=confidence,
        readings=readings,
        parts=pairs(page, instead.parts),
    )
