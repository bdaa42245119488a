"""Checks that an image shows the required copy and no forbidden copy: compares readings with expected lines.

Pure: it takes the output of a reader (OCR or a judge) and never opens an image. The comparison is
exact and case-sensitive, except for white space; ``fold=True`` is for a reader that cannot distinguish
dashes, bullets, ellipses, quotes and compatibility forms, nor look-alikes such as I, l and 1.

Text outside all expected lines may be a shape: an icon, a bullet, a part of a drawing. OCR always answers with
characters: a circle is read as "O", a magnifier as "Q", a menu icon as "三". A sign is doubtful if it stands alone, and
is of a script that no expected line has, or has a low confidence, or is one that plain shapes are read as, at any
confidence. So are brackets around a whole expected line: the round ends of a button.
"""

# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from visioneval.graders.text.alphabet import BULLET, ELLIPSIS, HYPHEN, fold_character, unreadable
from visioneval.graders.text.edits import nearest, split
from visioneval.graders.text.layout import Reading, in_one_row
from visioneval.graders.text.match import (
    Copy,
    Match,
    Page,
    assign,
    assign_gaps,
    copy_of,
    covered,
    gap_occurrences,
    has_gaps,
    inside,
    is_illegible,
    occurrences,
    page_of,
)
from visioneval.graders.text.missing import CopyPair, Hit, Lines, Miss, in_whole_readings, pairs, settle
from visioneval.graders.text.spaces import LineLook, SpaceFinding, findings
from visioneval.suite.case import ExpectText

_MARKS = frozenset(f".,:;!?{ELLIPSIS}。，、：；！？")
"""Punctuation behind a line."""


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
    ``folded`` maps characters of expected lines to their compared form. ``spaces`` are the places of matched lines that
    were read with other spaces; ``with_spaces`` decides whether they count.
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
    spaces: tuple[SpaceFinding, ...] = ()


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
    lines = Lines.of(expected, fold=fold)
    page = page_of(readings, lines.all, fold=fold, min_confidence=min_confidence)
    matched, unsettled, absent = _required(page, lines, legible)
    joined, doubtful, missing, instead = settle(page, lines, absent, matched, unsettled)
    matched += joined
    doubts = (*pairs(page, unsettled, "look-alikes"), *doubtful)
    forbidden, uncertain = _forbidden(page, lines, [*unsettled, *joined], legible, fold=fold)
    known = [match for _, match in (*matched, *unsettled, *forbidden, *uncertain)]
    extra: tuple[Extra, ...] = ()
    unsettled_extra: tuple[CopyPair, ...] = ()
    if expected.extra == "forbid":
        extra, unsettled_extra = _extra(page, lines, [*known, *instead], doubts, legible)
    certain_extra = tuple(item for item in extra if not item.is_doubtful)
    matched_pairs = pairs(page, matched)
    if expected.extra == "allow":
        known_chars = covered(known)
        marks = [_mark(page, match, known_chars) for _, match in matched]
        matched_pairs = tuple(replace(pair, mark=mark) for pair, mark in zip(matched_pairs, marks, strict=True))
    is_open = bool(doubts or uncertain or unsettled_extra)
    measured = bool(lines.required) and not doubts
    chars = {char for line in lines.all for char in line.text if not char.isspace()}
    return CopyCheck(
        passed=False if missing or forbidden or certain_extra else None if is_open else True,
        recall=len(matched) / len(lines.required) if measured else None,
        cer=sum(miss.edits for miss in missing) / sum(len(line.chars) for line in lines.required) if measured else None,
        matched=matched_pairs,
        missing=tuple(missing),
        unsettled=doubts,
        forbidden=pairs(page, forbidden),
        unsettled_forbidden=pairs(page, uncertain),
        extra=certain_extra,
        doubtful_extra=tuple(item for item in extra if item.is_doubtful),
        unsettled_extra=unsettled_extra,
        folded={char: fold_character(char) for char in sorted(chars) if fold and fold_character(char) != char},
        spaces=tuple(finding for pair in matched_pairs for finding in _space_findings(pair, readings, fold=fold)),
    )


def candidates(readings: Sequence[Reading], expected: ExpectText, *, min_confidence: float) -> list[tuple[int, str]]:
    """For each missing line that was nearly read, the readings, by index, and their text as it would be with the line.

    Not those of which a part may be a forbidden line: what must not be there is not read as what must.
    """
    page, missed, _ = _nearly_read(readings, expected, min_confidence)
    nearly_read = []
    for line, match in missed:
        segments = ["".join(page.copies[index].chars[start:end]) for index, start, end in match]
        for (index, start, end), part in zip(match, split(line, segments), strict=True):
            copy = page.copies[index]
            text = copy.text[: copy.source[start]] + part + copy.text[copy.source[end - 1] + 1 :]
            if copy_of(text, fold=True).chars != copy.chars:
                nearly_read.append((index, text))
    return nearly_read


def torn_lines(readings: Sequence[Reading], expected: ExpectText, *, min_confidence: float) -> list[list[int]]:
    """The readings, by their indices, of each missing line that was nearly read in several readings of one row.

    As :func:`candidates`, not those of which a part may be a forbidden line, nor those with a part of another line.
    """
    _, missed, taken = _nearly_read(readings, expected, min_confidence)
    of_lines = {index for index, _ in taken}
    torn = []
    for _, match in missed:
        pieces = [index for index, _, _ in match]
        first, *others = pieces
        if others and of_lines.isdisjoint(pieces) and all(in_one_row(readings[first], readings[n]) for n in others):
            torn.append(pieces)
    return torn


def _nearly_read(
    readings: Sequence[Reading], expected: ExpectText, min_confidence: float
) -> tuple[Page, list[tuple[Copy, Match]], set[tuple[int, int]]]:
    """The missing lines that were nearly read, each with what is nearest to it and belongs to no other line; and the
    characters (reading, position) that do."""
    lines = Lines.of(expected, fold=True)
    page = page_of(readings, lines.all, fold=True, min_confidence=min_confidence)
    matched, unsettled, absent = _required(page, lines, frozenset())
    forbidden, uncertain = _forbidden(page, lines, unsettled, frozenset(), fold=True)
    taken = covered(match for _, match in (*matched, *unsettled, *forbidden, *uncertain))
    closest = [(line, nearest(page, line, taken)) for line in absent]
    nearly_read = [(line, match.match) for line, match in closest if match is not None and match.is_close(line)]
    return page, nearly_read, taken


def other_spaces(comparison: CopyCheck, readings: Sequence[Reading]) -> list[int]:
    """The readings of matched lines that OCR read with other spaces, by their indices."""
    pairs = [pair for pair in comparison.matched if _space_findings(pair, readings, fold=True)]
    return sorted({index for pair in pairs for index in pair.readings})


def with_spaces(
    comparison: CopyCheck,
    readings: Sequence[Reading],
    *,
    fold: bool,
    looks: Mapping[int, LineLook | None] | None = None,
) -> CopyCheck:
    """The result if spaces count, as read, or by second ``looks`` at readings, by their indices.

    A line with a missing or added space is not found, and one with an unclear space is undecided. ``cer`` is unchanged.
    """
    by_line = [_space_findings(pair, readings, fold=fold, looks=looks) for pair in comparison.matched]
    kinds = [{finding.kind for finding in line} for line in by_line]
    wrong = sum(not line <= {"unclear"} for line in kinds)
    is_undecided = any(line == {"unclear"} for line in kinds)
    recall = comparison.recall
    if recall is not None:
        required = len(comparison.matched) + len(comparison.missing)
        recall = None if is_undecided else (len(comparison.matched) - wrong) / required
    return replace(
        comparison,
        passed=False if wrong or comparison.passed is False else None if is_undecided else comparison.passed,
        recall=recall,
        spaces=tuple(finding for line in by_line for finding in line),
    )


def _space_findings(
    pair: CopyPair, readings: Sequence[Reading], *, fold: bool, looks: Mapping[int, LineLook | None] | None = None
) -> tuple[SpaceFinding, ...]:
    return tuple(findings(copy_of(pair.line, fold=fold), pair.spans, readings, fold=fold, looks=looks))


def _mark(page: Page, match: Match, known: AbstractSet[tuple[int, int]]) -> str:
    """The punctuation that directly follows a match and is no part of another."""
    index, _, start = match[-1]
    copy = page.copies[index]
    end = start
    while end < len(copy.chars) and copy.chars[end] in _MARKS and (index, end) not in known:
        end += 1
    if end == start:
        return ""
    return copy.text[copy.source[start] : copy.source[end] if end < len(copy.chars) else None].rstrip()


def _required(page: Page, lines: Lines, legible: AbstractSet[str]) -> tuple[list[Hit], list[Hit], list[Copy]]:
    """The required lines that were read, with the right spaces if possible, those that may have been, and the rest."""

    def has_other_spaces(line: Copy, match: Match) -> bool:
        return any(findings(line, match, page.readings, fold=page.fold, looks=None))

    exact = assign(
        [sorted(occurrences(page, line.chars), key=partial(has_other_spaces, line)) for line in lines.required]
    )
    matched = [(line, match) for line, match in zip(lines.required, exact, strict=True) if match is not None]
    absent = [line for line, match in zip(lines.required, exact, strict=True) if match is None]
    if not page.fold:
        return matched, [], absent
    alike = assign([occurrences(page, line.chars, alike=True) for line in absent], [match for _, match in matched])
    unsettled = [(line, match) for line, match in zip(absent, alike, strict=True) if match is not None]
    absent = [line for line, match in zip(absent, alike, strict=True) if match is None]
    gaps = assign_gaps(page, absent, [match for _, match in (*matched, *unsettled)], legible)
    unsettled += [(line, match) for line, match in zip(absent, gaps, strict=True) if match is not None]
    return matched, unsettled, [line for line, match in zip(absent, gaps, strict=True) if match is None]


def _extra(
    page: Page, lines: Lines, known: Iterable[Match], doubts: Iterable[CopyPair], legible: AbstractSet[str]
) -> tuple[tuple[Extra, ...], tuple[CopyPair, ...]]:
    """The text that no line explains, and what may be a line with characters that cannot be read."""
    fold = page.fold
    allowed = [match for line in lines.allowed for match in occurrences(page, line.chars, alike=fold)]
    in_doubt = {index for doubt in doubts for index in doubt.readings}
    whole = [((index, 0, page.length(index)),) for index in page.counted if index in in_doubt]
    explained = covered([*known, *allowed, *whole])
    maybe: list[Hit] = []  # text that may be an allowed line whose characters cannot be read
    for line in lines.allowed if fold else ():
        for match in gap_occurrences(page, line):
            if explained.isdisjoint(places := covered([match])):
                maybe.append((line, match))
                explained |= places
    items = extras(page, explained, lines.all, doubt=fold)
    if not fold:
        return items, ()
    certain, foreign = _without_illegible(items, [line for line in lines.all if line.text not in legible])
    return certain, (*pairs(page, maybe), *foreign)


def _without_illegible(extra: Sequence[Extra], lines: Iterable[Copy]) -> tuple[tuple[Extra, ...], tuple[CopyPair, ...]]:
    """The extra text that is surely extra, and what may be a line of another script: it has up to twice its length."""
    illegible = [line for line in lines if is_illegible(line)]
    certain: list[Extra] = []
    pairs: list[CopyPair] = []
    for item in extra:
        size = len(copy_of(item.text, fold=True).chars)
        fitting = [line.text for line in illegible if size <= 2 * len(line.chars)]
        if item.is_doubtful or not fitting:
            certain.append(item)
        else:
            span = (item.reading, 0, size)
            pairs.append(CopyPair(fitting[0], item.text, (span,), unreadable=tuple(unreadable(fitting[0]))))
    return tuple(certain), tuple(pairs)


def _forbidden(
    page: Page, lines: Lines, others: Sequence[Hit], legible: AbstractSet[str], *, fold: bool
) -> tuple[list[Hit], list[Hit]]:
    """The forbidden lines that were read, and those that may have been, with one match each.

    Matches inside required or allowed lines are ignored; ``others`` are required lines that were read with look-alikes
    or in parts. A line with characters that cannot be read is never surely absent if the rest of it was read, or if it
    is of another script.
    """
    permitted = [match for line in (*lines.required, *lines.allowed) for match in occurrences(page, line.chars)]
    permitted += [match for _, match in others]
    hits: list[Hit] = []
    uncertain: list[Hit] = []
    for line in lines.forbidden:
        for alike, target in ((False, hits), (True, uncertain))[: 1 + fold]:
            matches = [*occurrences(page, line.chars, alike=alike), in_whole_readings(page, line)]
            free_matches = [m for m in matches if m and not any(inside(m, other) for other in permitted)]
            free_matches.sort(key=lambda match: _has_inner_spaces(page, line, match))
            if free_matches:
                is_uncertain = fold and _has_inner_spaces(page, line, free_matches[0])
                (uncertain if is_uncertain else target).append((line, free_matches[0]))
                break
        else:
            if fold and has_gaps(line) and line.text not in legible:
                uncertain += _maybe_forbidden(page, line, lines)
    return hits, uncertain


def _maybe_forbidden(page: Page, line: Copy, lines: Lines) -> list[Hit]:
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


_TEXT_SYMBOLS = frozenset("!?%&@#$€£¥")
_ORNAMENTS = frozenset(f"{HYPHEN}{BULLET}|_~*=<>")

_LATIN, _GREEK, _EAST_ASIAN, _COMMON, _OTHER = "LATIN", "GREEK", "EAST ASIAN", "COMMON", "OTHER"

_SHAPES = frozenset("CDIJLOQTUVXYZclovxz01ΛΔΓΠΣΩ〇一二三十工口日目田土厂人不囗ロエニハ")
"""The signs that rings, arcs, bars, crosses, corners, arrows, triangles and menu icons are read as."""
_BARS = frozenset("IlⅡ")
_STROKES = _BARS | frozenset("1|")
"""What rows of bars are read as, at a low confidence: the steps of a logo as 111."""
_BRACKETS = frozenset({"()", "[]", "{}"})
"""What the ends of a button are read as."""
_SURE = 0.9
"""Lone real characters have at least 0.9 in nearly all fonts; signs and pairs of signs below are doubtful."""
_MAX_SIGNS = 2


@dataclass(frozen=True, slots=True)
class Extra:
    """Text that no expected line explains. ``reading`` is its index, ``context`` the whole reading if it has more."""

    text: str
    reading: int
    confidence: float
    context: str | None
    is_doubtful: bool

    @property
    def label(self) -> str:
        """The text, with the reading around it."""
        return self.text if self.context is None else f"{self.text} (in {self.context})"


def extras(
    page: Page,
    explained: AbstractSet[tuple[int, int]],
    expected: Iterable[Copy],
    *,
    doubt: bool,
) -> tuple[Extra, ...]:
    """The text of ``page`` that is not ``explained``; ornaments and isolated marks are not text.

    Nothing is doubtful without ``doubt``: for a reader that can tell a shape from a letter.
    """
    scripts = {_script(char) for line in expected for char in line.chars} - {_COMMON} or {_LATIN}
    items: list[Extra] = []
    for index in page.counted:
        copy, confidence = page.copies[index], page.readings[index].confidence
        free = [position for position in range(len(copy.chars)) if (index, position) not in explained]
        is_button = free == [0, len(copy.chars) - 1] and copy.chars[0] + copy.chars[-1] in _BRACKETS
        places = set(free)
        starts = [position for position in free if position - 1 not in places]
        ends = [position + 1 for position in free if position + 1 not in places]
        for start, end in zip(starts, ends, strict=True):
            run = copy.chars[start:end]
            is_alone = all(position in copy.gaps or position in (0, len(copy.chars)) for position in (start, end))
            is_text = any(char.isalnum() or char in _TEXT_SYMBOLS for char in run)
            if is_text or not (is_alone or _ORNAMENTS.issuperset(run)):
                is_doubtful = doubt and (is_button or _may_be_shape(run, confidence, scripts, alone=is_alone))
                context = None if end - start == len(copy.chars) else copy.text.strip()
                items.append(Extra(copy.cut(start, end), index, confidence, context, is_doubtful))
    return tuple(items)


def _may_be_shape(run: str, confidence: float, scripts: AbstractSet[str], *, alone: bool) -> bool:
    if len(run) == 1 and _script(run) not in scripts | {_COMMON}:
        return True  # also next to a word: an icon in front of a label
    if not alone or len(run) > _MAX_SIGNS:
        return alone and confidence < _SURE and _STROKES.issuperset(run)
    return confidence < _SURE or (len(run) == 1 and run in _SHAPES) or _BARS.issuperset(run)


def _script(char: str) -> str:
    """The script of a character; digits and western punctuation have none of their own."""
    if unicodedata.east_asian_width(char) in "WF":
        return _EAST_ASIAN
    if (char.isascii() and not char.isalpha()) or unicodedata.category(char)[0] in "PN" or char in _TEXT_SYMBOLS:
        return _COMMON
    name = unicodedata.name(char, "")
    return next((script for script in (_LATIN, _GREEK) if name.startswith(script)), _OTHER)
