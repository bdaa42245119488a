"""Checks that an image shows the required copy and no forbidden copy: compares readings with expected lines.

Pure: it takes the output of a reader (OCR or a judge) and never opens an image. The comparison is
exact and case-sensitive, except for white space; ``fold=True`` is for a reader that cannot distinguish
dashes, bullets, ellipses, quotes and compatibility forms, nor look-alikes such as I, l and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from visioneval.graders.text.alphabet import fold_character, unreadable
from visioneval.graders.text.copy_diff import NearestMatch, differences, nearest
from visioneval.graders.text.copy_gaps import assign_gaps, gap_occurrences, has_gaps, is_illegible
from visioneval.graders.text.copy_match import (
    Copy,
    Match,
    Page,
    Reading,
    assign,
    copy_of,
    covered,
    inside,
    occurrences,
    page_of,
    skeleton,
)
from visioneval.graders.text.extras import Extra, extras
from visioneval.graders.text.reading import reading_order
from visioneval.suite.cases.case import ExpectText


@dataclass(frozen=True, slots=True)
class CopyPair:
    """An expected line and the text that matches it. ``readings`` are indices into the given readings.

    ``unreadable`` are the characters for which the reader may have read others, or nothing; ``read`` is empty if that
    leaves too little of the line to be found.
    """

    line: str
    read: str
    readings: tuple[int, ...]
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Miss:
    """A required line that was not read.

    ``nearest`` is the most similar text, with ``differences`` in words; ``edits`` counts characters, at
    most those of the line. ``have`` of ``want`` copies of this line were found. ``faint`` is the
    confidence (0 to 1) of a reading that was too low to count.
    """

    line: str
    edits: int
    nearest: str | None
    differences: tuple[str, ...]
    have: int
    want: int
    faint: float | None


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
    nearest_matches = [_nearest(page, line, [*matched, *unsettled]) for line in absent]
    faint = {} if len(counted) == len(with_text) else _faint_confidences(readings, with_text, absent, lines, fold=fold)
    missing = tuple(
        _miss(page, line, closest, faint.get(line.chars), lines, matched)
        for line, closest in zip(absent, nearest_matches, strict=True)
    )
    forbidden, uncertain = _forbidden(page, lines, unsettled, legible, fold=fold)
    extra: tuple[Extra, ...] = ()
    unsettled_extra: tuple[CopyPair, ...] = ()
    if expected.extra == "forbid":
        allowed = [(line, match) for line in lines.allowed for match in occurrences(page, line.chars, alike=fold)]
        close = [
            (c, nearest_match.match)
            for c, nearest_match in zip(absent, nearest_matches, strict=True)
            if nearest_match is not None and nearest_match.is_close(c)
        ]
        explained = covered(match for _, match in (*matched, *unsettled, *forbidden, *uncertain, *allowed, *close))
        maybe = _maybe_allowed(page, lines, explained) if fold else []
        unsettled_extra = _pairs(page, counted, maybe)
        explained |= covered(match for _, match in maybe)
        extra = extras(page, [readings[index] for index in counted], explained, lines.all, doubt=fold)
        extra = tuple(replace(item, reading=counted[item.reading]) for item in extra)
        if fold:
            extra, foreign = _without_illegible(extra, [line for line in lines.all if line.text not in legible])
            unsettled_extra += foreign

    certain_extra = tuple(item for item in extra if not item.is_doubtful)
    is_open = bool(unsettled or uncertain or unsettled_extra)
    measured = bool(lines.required) and not unsettled
    return CopyCheck(
        passed=False if missing or forbidden or certain_extra else None if is_open else True,
        recall=len(matched) / len(lines.required) if measured else None,
        cer=_error_rate(lines.required, missing) if measured else None,
        matched=_pairs(page, counted, matched),
        missing=missing,
        unsettled=_pairs(page, counted, unsettled),
        forbidden=_pairs(page, counted, forbidden),
        unsettled_forbidden=_pairs(page, counted, uncertain),
        extra=certain_extra,
        doubtful_extra=tuple(item for item in extra if item.is_doubtful),
        unsettled_extra=unsettled_extra,
        folded=_folded(lines) if fold else {},
    )


def _page(readings: Sequence[Reading], counted: Sequence[int], lines: _Lines, *, fold: bool) -> Page:
    page_readings = [readings[index] for index in counted]
    return page_of(page_readings, reading_order.follows(page_readings), lines.all, fold=fold)


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
            pairs.append(CopyPair(line.text, item.text, (item.reading,), tuple(unreadable(line.text))))
    return tuple(certain), tuple(pairs)


def _nearest(page: Page, line: Copy, hits: Sequence[_Hit]) -> NearestMatch | None:
    return nearest(page, line, covered(match for _, match in hits))


def _faint_confidences(
    readings: Sequence[Reading],
    with_text: Sequence[int],
    absent: Sequence[Copy],
    lines: _Lines,
    *,
    fold: bool,
) -> dict[str, float]:
    """The confidence of faint readings of missing lines, by their compared characters."""
    page = _page(readings, with_text, lines, fold=fold)
    sure: dict[str, float] = {}
    for line in absent:
        for match in occurrences(page, line.chars):
            weakest = min(readings[with_text[index]].confidence for index, _, _ in match)
            sure[line.chars] = max(weakest, sure.get(line.chars, 0.0))
    return sure


def _miss(
    page: Page,
    line: Copy,
    nearest_match: NearestMatch | None,
    faint: float | None,
    lines: _Lines,
    matched: Sequence[_Hit],
) -> Miss:
    edits = nearest_match.edits if nearest_match is not None else len(line.chars)
    nearest_text: str | None = None
    changes: tuple[str, ...] = ()
    if nearest_match is not None and nearest_match.is_close(line):
        nearest_text = page.shown(nearest_match.match)
        changes = differences(
            line, "".join(page.copies[index].chars[start:end] for index, start, end in nearest_match.match)
        )
    return Miss(
        line=line.text,
        edits=edits,
        nearest=nearest_text,
        differences=changes,
        have=sum(other.chars == line.chars for other, _ in matched),
        want=sum(other.chars == line.chars for other in lines.required),
        faint=faint,
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


def _pairs(page: Page, counted: Sequence[int], hits: Iterable[_Hit]) -> tuple[CopyPair, ...]:
    return tuple(
        CopyPair(line.text, page.shown(match), tuple(counted[index] for index, _, _ in match), _gaps(page, line, match))
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
