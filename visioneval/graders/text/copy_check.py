"""Checks that an image shows the required copy and no forbidden copy: compares readings with expected lines.

Pure: it takes the output of a reader (OCR or a judge) and never opens an image. The comparison is
exact and case-sensitive, except for white space; ``fold=True`` is for a reader that cannot distinguish
dashes, bullets, ellipses, quotes and compatibility forms, nor look-alikes such as I, l and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from visioneval.graders.text.alphabet import ELLIPSIS, fold_character
from visioneval.graders.text.copy_diff import NearestMatch, differences, nearest
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
)
from visioneval.graders.text.extras import Extra, extras
from visioneval.graders.text.reading import reading_order
from visioneval.graders.text.spaces import SecondLook, SpaceFinding, findings
from visioneval.suite.cases.case import ExpectText

_MARKS = frozenset(f".,:;!?{ELLIPSIS}。，、：；！？")  # noqa: RUF001
"""Punctuation behind a line."""


@dataclass(frozen=True, slots=True)
class CopyPair:
    """An expected line and the text that matches it.

    ``spans`` are the compared characters in the given readings, and ``mark`` is punctuation that directly follows and
    that no expected line explains.
    """

    line: str
    read: str
    spans: Match
    mark: str = ""

    @property
    def readings(self) -> tuple[int, ...]:
        """Indices into the given readings."""
        return tuple(index for index, _, _ in self.spans)


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
    forbidden; ``None`` if only look-alikes decide. ``recall`` is the share (0 to 1) of required
    lines found. ``cer`` (0 to 1, lower is better) is the character error rate: Levenshtein edits
    between each required line and the reading nearest to it, over the characters of all required lines,
    white space left out (Rice, Jenkins and Nartker 1996). Both are ``None`` without required lines, and if
    look-alikes leave one undecided. ``doubtful_extra`` is extra text that may be a shape; it does not fail.
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
    folded: Mapping[str, str]
    spaces: tuple[SpaceFinding, ...] = ()


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


def check(readings: Sequence[Reading], expected: ExpectText, *, fold: bool, min_confidence: float = 0.0) -> CopyCheck:
    """Compares readings with expected lines. Readings below ``min_confidence`` (0 to 1) do not count."""
    lines = _Lines.of(expected, fold=fold)
    with_text = [index for index, reading in enumerate(readings) if copy_of(reading.text, fold=fold).chars]
    counted = [index for index in with_text if readings[index].confidence >= min_confidence]
    page = _page(readings, counted, lines, fold=fold)
    differs = partial(_differs, [readings[index] for index in counted], fold=fold)
    matched, unsettled, absent = _required(page, lines, differs, fold=fold)
    nearest_matches = [_nearest(page, line, [*matched, *unsettled]) for line in absent]
    faint = {} if len(counted) == len(with_text) else _faint_confidences(readings, with_text, absent, lines, fold=fold)
    missing = tuple(
        _miss(page, line, closest, faint.get(line.chars), lines, matched)
        for line, closest in zip(absent, nearest_matches, strict=True)
    )
    forbidden, uncertain = _forbidden(page, lines, unsettled, fold=fold)
    extra: tuple[Extra, ...] = ()
    if expected.extra == "forbid":
        allowed = [(line, match) for line in lines.allowed for match in occurrences(page, line.chars, alike=fold)]
        close = [
            (c, nearest_match.match)
            for c, nearest_match in zip(absent, nearest_matches, strict=True)
            if nearest_match is not None and nearest_match.is_close(c)
        ]
        explained = [match for _, match in (*matched, *unsettled, *forbidden, *uncertain, *allowed, *close)]
        extra = extras(page, [readings[index] for index in counted], covered(explained), lines.all, doubt=fold)
        extra = tuple(replace(item, reading=counted[item.reading]) for item in extra)

    matched_pairs = _pairs(page, counted, matched)
    if expected.extra == "allow":
        known = covered(match for _, match in (*matched, *unsettled, *forbidden, *uncertain))
        marks = [_mark(page, match, known) for _, match in matched]
        matched_pairs = tuple(replace(pair, mark=mark) for pair, mark in zip(matched_pairs, marks, strict=True))
    certain_extra = tuple(item for item in extra if not item.is_doubtful)
    measured = bool(lines.required) and not unsettled
    return CopyCheck(
        passed=False if missing or forbidden or certain_extra else None if unsettled or uncertain else True,
        recall=len(matched) / len(lines.required) if measured else None,
        cer=_error_rate(lines.required, missing) if measured else None,
        matched=matched_pairs,
        missing=missing,
        unsettled=_pairs(page, counted, unsettled),
        forbidden=_pairs(page, counted, forbidden),
        unsettled_forbidden=_pairs(page, counted, uncertain),
        extra=certain_extra,
        doubtful_extra=tuple(item for item in extra if item.is_doubtful),
        folded=_folded(lines) if fold else {},
        spaces=tuple(found for pair in matched_pairs for found in _space_findings(pair, readings, fold=fold)),
    )


def other_spaces(comparison: CopyCheck, readings: Sequence[Reading]) -> list[int]:
    """The readings of matched lines that OCR read with other spaces, by their indices."""
    pairs = [pair for pair in comparison.matched if _space_findings(pair, readings, fold=True)]
    return sorted({index for pair in pairs for index in pair.readings})


def with_spaces(
    comparison: CopyCheck,
    readings: Sequence[Reading],
    *,
    fold: bool,
    looks: Mapping[int, SecondLook | None] | None = None,
) -> CopyCheck:
    """The result if spaces count, as read, or by second ``looks`` at readings, by their indices.

    A line with a missing or added space is not found, and one with an unclear space is undecided. ``cer`` is unchanged.
    """
    found = [_space_findings(pair, readings, fold=fold, looks=looks) for pair in comparison.matched]
    kinds = [{finding.kind for finding in line} for line in found]
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
        spaces=tuple(finding for line in found for finding in line),
    )


def _space_findings(
    pair: CopyPair, readings: Sequence[Reading], *, fold: bool, looks: Mapping[int, SecondLook | None] | None = None
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


def _page(readings: Sequence[Reading], counted: Sequence[int], lines: _Lines, *, fold: bool) -> Page:
    page_readings = [readings[index] for index in counted]
    return page_of(page_readings, reading_order.follows(page_readings), lines.all, fold=fold)


def _differs(readings: Sequence[Reading], line: Copy, match: Match, *, fold: bool) -> bool:
    """Whether a line was read with other spaces."""
    return any(findings(line, match, readings, fold=fold, looks=None))


def _required(
    page: Page, lines: _Lines, differs: Callable[[Copy, Match], bool], *, fold: bool
) -> tuple[list[_Hit], list[_Hit], list[Copy]]:
    """The required lines that were read, with the right spaces if possible, those that differ only in look-alikes, and
    the rest."""
    options = [sorted(occurrences(page, line.chars), key=partial(differs, line)) for line in lines.required]
    exact = assign(options)
    matched = [(line, match) for line, match in zip(lines.required, exact, strict=True) if match is not None]
    absent = [line for line, match in zip(lines.required, exact, strict=True) if match is None]
    if not fold:
        return matched, [], absent
    alike = assign([occurrences(page, line.chars, alike=True) for line in absent], [match for _, match in matched])
    unsettled = [(line, match) for line, match in zip(absent, alike, strict=True) if match is not None]
    return matched, unsettled, [line for line, match in zip(absent, alike, strict=True) if match is None]


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


def _forbidden(page: Page, lines: _Lines, unsettled: Sequence[_Hit], *, fold: bool) -> tuple[list[_Hit], list[_Hit]]:
    """The forbidden lines that were read, and those that may have been, with one match each.

    Matches inside required or allowed lines are ignored.
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
    return hits, uncertain


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
        CopyPair(line.text, page.shown(match), tuple((counted[index], start, end) for index, start, end in match))
        for line, match in hits
    )


def _folded(lines: _Lines) -> dict[str, str]:
    """The characters of expected lines that are folded for the comparison."""
    chars = {char for line in lines.all for char in line.text if not char.isspace()}
    return {char: fold_character(char) for char in sorted(chars) if fold_character(char) != char}
