"""Checks that an image shows the required copy and no forbidden copy: compares readings with expected lines.

Pure: it takes the output of a reader (OCR or a judge) and never opens an image. The comparison is
exact and case-sensitive, except for white space; ``fold=True`` is for a reader that cannot distinguish
dashes, bullets, ellipses, quotes and compatibility forms, nor look-alikes such as I, l and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from visioneval.graders.text.alphabet import fold_character, unreadable
from visioneval.graders.text.copy_diff import differences, nearest, split
from visioneval.graders.text.copy_gaps import assign_gaps, gap_occurrences, has_gaps, is_illegible
from visioneval.graders.text.copy_match import (
    Copy,
    Match,
    Page,
    Reading,
    assign,
    copy_of,
    covered,
    in_lower_case,
    inside,
    lower_case,
    occurrences,
    page_of,
    skeleton,
)
from visioneval.graders.text.extras import Extra, extras
from visioneval.graders.text.reading import reading_order
from visioneval.suite.cases.case import ExpectText

Doubt = Literal["look-alikes", "weak", "faint", "unread"]
"""Why a line cannot be decided: it was read with look-alikes; it is another text that was read, but the line is likely
too; it was read at a confidence that is too low; or there is text that could not be read."""

_UNREAD = 0.8
"""A reading below this confidence may be other text, such as curved words or a logo. Half of the letters of a line are
read right at this confidence."""
_MIN_UNREAD = 3
"""Characters: shapes are read as one or two."""


@dataclass(frozen=True, slots=True)
class CopyPair:
    """An expected line and the text that matches it. ``readings`` are indices into the given readings.

    ``unreadable`` are the characters for which the reader may have read others, or nothing; ``read`` is empty if that
    leaves too little of the line to be found.
    """

    line: str
    read: str
    readings: tuple[int, ...]
    doubt: Doubt | None = None
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """The text of a reading, by its index, with a required line in place of what was read instead."""

    reading: int
    text: str


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


@dataclass(frozen=True, slots=True)
class CopyCheck:
    """The result of the comparison.

    ``passed``: nothing required is missing, nothing forbidden is present, and nothing extra if that is
    forbidden; ``None`` if only look-alikes decide, or characters that cannot be read. ``recall`` is the share
    (0 to 1) of required lines found. ``cer`` (0 to 1, lower is better) is the character error rate: Levenshtein
    edits between each required line and the reading nearest to it, over the characters of all required lines,
    white space left out (Rice, Jenkins and Nartker 1996). Both are ``None`` without required lines, and if one is
    undecided. ``doubtful_extra`` is extra text that may be a shape; it does not fail. ``unsettled_extra`` is text
    that may be extra, or an expected line with characters that cannot be read.
    ``folded`` maps characters of expected lines to their compared form.
    """

    passed: bool | None
    recall: float | None
    cer: float | None
    matched: tuple[CopyPair, ...]
    missing: tuple[Miss, ...]
    unsettled: tuple[CopyPair, ...]
    unsettled_forbidden: tuple[CopyPair, ...]
    forbidden: tuple[CopyPair, ...]
    extra: tuple[Extra, ...]
    doubtful_extra: tuple[Extra, ...]
    unsettled_extra: tuple[CopyPair, ...]
    folded: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Lines:
    """The expected lines, prepared for comparison. Blank lines are dropped."""

    required: tuple[Copy, ...]
    allowed: tuple[Copy, ...]
    forbidden: tuple[Copy, ...]

    @classmethod
    def of(cls, expected: ExpectText, *, fold: bool) -> _Lines:
        groups = (expected.required, expected.allowed, expected.forbidden)
        return cls(*(tuple(c for c in (copy_of(line, fold=fold) for line in lines) if c.chars) for lines in groups))

    @property
    def all(self) -> tuple[Copy, ...]:
        return (*self.required, *self.allowed, *self.forbidden)


_Hit = tuple[Copy, Match]
"""An expected line and its match."""


def check(
    readings: Sequence[Reading],
    expected: ExpectText,
    *,
    fold: bool,
    min_confidence: float = 0.0,
    legible: AbstractSet[str] = frozenset(),
) -> CopyCheck:
    """Compares readings with expected lines. Readings below ``min_confidence`` (0 to 1) do not count.

    ``legible`` are lines that were read by a reader that knows all of their characters.
    """
    lines = _Lines.of(expected, fold=fold)
    with_text = [index for index, reading in enumerate(readings) if copy_of(reading.text, fold=fold).chars]
    counted = [index for index in with_text if readings[index].confidence >= min_confidence]
    page = _page(readings, counted, lines, fold=fold)
    matched, unsettled, absent = _required(page, lines, legible, fold=fold)
    instead = _read_instead(page, absent, covered(match for _, match in (*matched, *unsettled)), fold=fold)
    faint = {} if len(counted) == len(with_text) else _faint_readings(readings, with_text, absent, lines, fold=fold)
    weak = _weak(readings, counted, absent, lines)
    joined: list[_Hit] = []
    doubts = list(_pairs(page, counted, unsettled, "look-alikes"))
    missing: list[Miss] = []
    for index, (line, other) in enumerate(zip(absent, instead, strict=True)):
        miss = _miss(page, counted, line, other, faint.get(line.chars), lines, matched)
        if other.parts and _is_one_line(page, other.parts):
            joined.append((line, tuple(span for _, match in other.parts for span in match)))
        elif index in weak:
            doubts.append(weak[index])
        elif fold and miss.faint is not None:
            read = " ".join(readings[at].text for at in miss.readings)
            doubts.append(CopyPair(line.text, read, miss.readings, "faint"))
        elif fold and miss.nearest is None and not miss.parts and (unread := _unread(readings, counted, matched)):
            doubts.append(CopyPair(line.text, " ".join(readings[at].text for at in unread), unread, "unread"))
        else:
            missing.append(miss)
    matched += joined
    forbidden, uncertain = _forbidden(page, lines, unsettled, legible, fold=fold)
    extra: tuple[Extra, ...] = ()
    unsettled_extra: tuple[CopyPair, ...] = ()
    if expected.extra == "forbid":
        allowed = [(line, match) for line in lines.allowed for match in occurrences(page, line.chars, alike=fold)]
        hits = [match for _, match in (*matched, *unsettled, *forbidden, *uncertain, *allowed)]
        hits += [match for other in instead for match in other.matches]
        in_doubt = {at for doubt in doubts for at in doubt.readings}
        hits += [((index, 0, page.length(index)),) for index, at in enumerate(counted) if at in in_doubt]
        explained = covered(hits)
        maybe = _maybe_allowed(page, lines, explained) if fold else []
        unsettled_extra = _pairs(page, counted, maybe)
        explained |= covered(match for _, match in maybe)
        extra = extras(page, [readings[index] for index in counted], explained, lines.all, doubt=fold)
        extra = tuple(replace(item, reading=counted[item.reading]) for item in extra)
        if fold:
            extra, foreign = _without_illegible(extra, [line for line in lines.all if line.text not in legible])
            unsettled_extra += foreign

    certain_extra = tuple(item for item in extra if not item.is_doubtful)
    is_open = bool(doubts or uncertain or unsettled_extra)
    measured = bool(lines.required) and not doubts
    return CopyCheck(
        passed=False if missing or forbidden or certain_extra else None if is_open else True,
        recall=len(matched) / len(lines.required) if measured else None,
        cer=_error_rate(lines.required, missing) if measured else None,
        matched=_pairs(page, counted, matched),
        missing=tuple(missing),
        unsettled=tuple(doubts),
        forbidden=_pairs(page, counted, forbidden),
        unsettled_forbidden=_pairs(page, counted, uncertain),
        extra=certain_extra,
        doubtful_extra=tuple(item for item in extra if item.is_doubtful),
        unsettled_extra=unsettled_extra,
        folded=_folded(lines) if fold else {},
    )


def candidates(
    readings: Sequence[Reading], expected: ExpectText, *, min_confidence: float, legible: AbstractSet[str] = frozenset()
) -> list[Candidate]:
    """For each missing line that was nearly read, the readings as they would be with the line."""
    lines = _Lines.of(expected, fold=True)
    counted = [index for index, reading in enumerate(readings) if reading.confidence >= min_confidence]
    page = _page(readings, counted, lines, fold=True)
    matched, unsettled, absent = _required(page, lines, legible, fold=True)
    found: list[Candidate] = []
    for line in absent:
        closest = nearest(page, line, covered(match for _, match in (*matched, *unsettled)))
        if closest is not None and closest.is_close(line):
            segments = ["".join(page.copies[index].chars[start:end]) for index, start, end in closest.match]
            for (index, start, end), part in zip(closest.match, split(line, segments), strict=True):
                copy = page.copies[index]
                text = copy.text[: copy.source[start]] + part + copy.text[copy.source[end - 1] + 1 :]
                if copy_of(text, fold=True).chars != copy.chars:
                    found.append(Candidate(counted[index], text))
    return found


def _page(readings: Sequence[Reading], counted: Sequence[int], lines: _Lines, *, fold: bool) -> Page:
    page_readings = [readings[index] for index in counted]
    follows, near = reading_order.follows(page_readings), reading_order.near(page_readings)
    return page_of(page_readings, follows, near, lines.all, fold=fold)


def _required(
    page: Page, lines: _Lines, legible: AbstractSet[str], *, fold: bool
) -> tuple[list[_Hit], list[_Hit], list[Copy]]:
    """The required lines that were read, those that may have been, and the rest."""
    exact = assign([occurrences(page, line.chars) for line in lines.required])
    matched = [(line, match) for line, match in zip(lines.required, exact, strict=True) if match is not None]
    absent = [line for line, match in zip(lines.required, exact, strict=True) if match is None]
    if not fold:
        return matched, [], absent
    alike = assign([occurrences(page, line.chars, alike=True) for line in absent], [match for _, match in matched])
    unsettled = [(line, match) for line, match in zip(absent, alike, strict=True) if match is not None]
    absent = [line for line, match in zip(absent, alike, strict=True) if match is None]
    gaps = assign_gaps(page, absent, [match for _, match in (*matched, *unsettled)], legible)
    unsettled += [(line, match) for line, match in zip(absent, gaps, strict=True) if match is not None]
    return matched, unsettled, [line for line, match in zip(absent, gaps, strict=True) if match is None]


def _maybe_allowed(page: Page, lines: _Lines, explained: AbstractSet[tuple[int, int]]) -> list[_Hit]:
    """The text that no other line explains, and that may be an allowed line whose characters cannot be read."""
    hits: list[_Hit] = []
    for line in lines.allowed:
        for match in gap_occurrences(page, line):
            if not covered([match]) & (explained | covered(match for _, match in hits)):
                hits.append((line, match))
    return hits


def _without_illegible(extra: Sequence[Extra], lines: Iterable[Copy]) -> tuple[tuple[Extra, ...], tuple[CopyPair, ...]]:
    """The extra text that is surely extra, and what may be a line of another script: it has up to twice its length."""
    illegible = [line for line in lines if is_illegible(line)]
    certain: list[Extra] = []
    pairs: list[CopyPair] = []
    for item in extra:
        size = len(copy_of(item.text, fold=True).chars)
        line = next((line for line in illegible if size <= 2 * len(line.chars)), None)
        if line is None or item.is_doubtful:
            certain.append(item)
        else:
            pairs.append(CopyPair(line.text, item.text, (item.reading,), unreadable=tuple(unreadable(line.text))))
    return tuple(certain), tuple(pairs)


def _weak(
    readings: Sequence[Reading], counted: Sequence[int], absent: Sequence[Copy], lines: _Lines
) -> dict[int, CopyPair]:
    """The missing lines, by their index, that are there if readings say what they possibly say."""
    possible = [replace(reading, text=reading.possible or reading.text, shown=()) for reading in readings]
    if not absent or not any(reading.possible for reading in readings):
        return {}
    page = _page(possible, counted, lines, fold=True)
    pairs: dict[int, CopyPair] = {}
    for index, match in enumerate(assign([occurrences(page, line.chars) for line in absent])):
        if match is not None and any(readings[counted[at]].possible for at, _, _ in match):
            at = tuple(counted[reading] for reading, _, _ in match)
            pairs[index] = CopyPair(absent[index].text, " ".join(readings[reading].text for reading in at), at, "weak")
    return pairs


def _is_one_line(page: Page, parts: Sequence[_Hit]) -> bool:
    """Whether parts are whole readings that may be read one after the other: a large number and a small word."""
    spans = [span for _, match in parts for span in match]
    is_whole = all((start, end) == (0, page.length(index)) for index, start, end in spans)
    return is_whole and all(after[0] in page.near[before[0]] for before, after in pairwise(spans))


def _unread(readings: Sequence[Reading], counted: Sequence[int], matched: Sequence[_Hit]) -> tuple[int, ...]:
    """The readings that may be of other text: not confident, and part of no required line."""
    explained = {counted[index] for _, match in matched for index, _, _ in match}
    return tuple(
        index
        for index, reading in enumerate(readings)
        if reading.confidence < _UNREAD and index not in explained and len(reading.text.strip()) >= _MIN_UNREAD
    )


@dataclass(frozen=True, slots=True)
class _Instead:
    """What was read in place of a missing line. ``match`` is close to it; ``parts`` are words of it, or none."""

    edits: int
    match: Match | None
    parts: tuple[_Hit, ...]

    @property
    def matches(self) -> tuple[Match, ...]:
        return (*(match for _, match in self.parts), *([self.match] if self.match else []))


def _read_instead(
    page: Page, absent: Sequence[Copy], taken: AbstractSet[tuple[int, int]], *, fold: bool
) -> list[_Instead]:
    """For each missing line, the same text in another case, the nearest text, and the parts that are all of it."""
    lower_page = in_lower_case(page) if absent else page
    found: list[_Instead] = []
    for line in absent:
        closest = nearest(page, line, taken)
        match = _first_free(occurrences(lower_page, lower_case(line.chars)), taken)
        if match is None and closest is not None and closest.is_close(line):
            match = closest.match
        edits = len(line.chars) if closest is None else closest.edits
        found.append(_Instead(edits, match, _parts(page, line, taken, fold=fold)))
    return found


def _first_free(matches: Iterable[Match], taken: AbstractSet[tuple[int, int]]) -> Match | None:
    return next((match for match in matches if taken.isdisjoint(covered([match]))), None)


def _parts(page: Page, line: Copy, taken: AbstractSet[tuple[int, int]], *, fold: bool) -> tuple[_Hit, ...]:
    """The longest runs of words that were read, in the order of the line; none if a word was not read."""
    stops = sorted({0, len(line.chars)} | line.gaps)
    parts: list[_Hit] = []
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


def _faint_readings(
    readings: Sequence[Reading],
    with_text: Sequence[int],
    absent: Sequence[Copy],
    lines: _Lines,
    *,
    fold: bool,
) -> dict[str, _Faint]:
    """The most confident of the faint readings of missing lines, by their compared characters."""
    page = _page(readings, with_text, lines, fold=fold)
    sure: dict[str, _Faint] = {}
    for line in absent:
        for match in occurrences(page, line.chars):
            indices = tuple(with_text[index] for index, _, _ in match)
            weakest = min(readings[index].confidence for index in indices)
            if line.chars not in sure or weakest > sure[line.chars][0]:
                sure[line.chars] = weakest, indices
    return sure


def _miss(
    page: Page,
    counted: Sequence[int],
    line: Copy,
    instead: _Instead,
    faint: _Faint | None,
    lines: _Lines,
    matched: Sequence[_Hit],
) -> Miss:
    match = instead.match or ()
    read = "".join(page.copies[index].chars[start:end] for index, start, end in match)
    confidence, readings = faint or (None, tuple(counted[index] for index, _, _ in match))
    return Miss(
        line=line.text,
        edits=instead.edits,
        nearest=page.shown(match) if match else None,
        differences=differences(line, read) if match else (),
        have=sum(other.chars == line.chars for other, _ in matched),
        want=sum(other.chars == line.chars for other in lines.required),
        faint=confidence,
        readings=readings,
        parts=_pairs(page, counted, instead.parts),
    )


def _forbidden(
    page: Page, lines: _Lines, unsettled: Sequence[_Hit], legible: AbstractSet[str], *, fold: bool
) -> tuple[list[_Hit], list[_Hit]]:
    """The forbidden lines that were read, and those that may have been, with one match each.

    Matches inside required or allowed lines are ignored. A line with characters that cannot be read is never surely
    absent if the rest of it was read, or if it is of another script.
    """
    permitted = [match for line in (*lines.required, *lines.allowed) for match in occurrences(page, line.chars)]
    permitted += [match for _, match in unsettled]
    hits: list[_Hit] = []
    uncertain: list[_Hit] = []
    for line in lines.forbidden:
        for alike, target in ((False, hits), (True, uncertain))[: 1 + fold]:
            matches = occurrences(page, line.chars, alike=alike)
            free_matches = [m for m in matches if not any(inside(m, other) for other in permitted)]
            free_matches.sort(key=lambda match: _has_inner_spaces(page, line, match))
            if free_matches:
                is_uncertain = fold and _has_inner_spaces(page, line, free_matches[0])
                (uncertain if is_uncertain else target).append((line, free_matches[0]))
                break
        else:
            if fold and has_gaps(line) and line.text not in legible:
                uncertain += _maybe_forbidden(page, line, lines)
    return hits, uncertain


def _maybe_forbidden(page: Page, line: Copy, lines: _Lines) -> list[_Hit]:
    """One match of the readable rest of a forbidden line, also within other lines unless they contain the line."""
    containing = [other for other in (*lines.required, *lines.allowed) if line.chars in other.chars]
    permitted = [
        match for other in containing for match in (*occurrences(page, other.chars), *gap_occurrences(page, other))
    ]
    matches = (m for m in gap_occurrences(page, line) if not any(inside(m, other) for other in permitted))
    match = next(matches, () if is_illegible(line) else None)
    return [] if match is None else [(line, match)]


def _has_inner_spaces(page: Page, line: Copy, match: Match) -> bool:
    """Whether the reading has spaces inside the line's words: "log in to" may not be "into".

    Spaces between all letters are letter spacing and do not count.
    """
    position, spaced, letters = 0, 0, 0
    for index, start, end in match:
        for offset in range(start, end):
            if position and position not in line.gaps:
                letters += 1
                spaced += offset == start or offset in page.copies[index].gaps
            position += 1
    return 0 < spaced < letters


def _error_rate(required: Sequence[Copy], missing: Sequence[Miss]) -> float:
    return sum(miss.edits for miss in missing) / sum(len(line.chars) for line in required)


def _pairs(
    page: Page, counted: Sequence[int], hits: Iterable[_Hit], doubt: Doubt | None = None
) -> tuple[CopyPair, ...]:
    return tuple(
        CopyPair(
            line.text,
            page.shown(match),
            tuple(counted[index] for index, _, _ in match),
            doubt,
            _gaps(page, line, match),
        )
        for line, match in hits
    )


def _gaps(page: Page, line: Copy, match: Match) -> tuple[str, ...]:
    """The unreadable characters of a line that was not read as it is."""
    read = "".join(page.copies[index].chars[start:end] for index, start, end in match)
    return () if skeleton(read) == skeleton(line.chars) else tuple(unreadable(line.text))


def _folded(lines: _Lines) -> dict[str, str]:
    """The characters of expected lines that are folded for the comparison."""
    chars = {char for line in lines.all for char in line.text if not char.isspace()}
    return {char: fold_character(char) for char in sorted(chars) if fold_character(char) != char}
