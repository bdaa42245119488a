"""Whether an image shows the copy that it must and none that it must not: readings against expected lines.

Pure: it takes what a reader saw (OCR, or a judge that looked) and never opens an image. The comparison is
exact and case-sensitive, but for white space; ``fold=True`` is for a reader that cannot tell apart
dashes, bullets, ellipses, quotes and compatibility forms, nor look-alikes such as I, l and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from visioneval.graders.text import reading_order
from visioneval.graders.text.alphabet import BULLET, HYPHEN, fold_character
from visioneval.graders.text.copy_diff import Near, differences, nearest
from visioneval.graders.text.copy_match import (
    Copy,
    Match,
    Page,
    Reading,
    assign,
    copy_of,
    inside,
    occurrences,
    page_of,
)
from visioneval.suite.case import ExpectText

_MEANT = frozenset("!?%&@#$€£¥")
_ORNAMENT = frozenset(f"{HYPHEN}{BULLET}|_~*=<>")


@dataclass(frozen=True, slots=True)
class CopyPair:
    """An expected line and the reading that shows it. ``readings`` are indices of the readings given."""

    line: str
    read: str
    readings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """A required line that was not read.

    ``nearest`` is the text most like it, with ``differences`` in words; ``edits`` counts characters, at
    most those of the line. ``have`` of ``want`` copies of this line were found. ``faint`` is the
    confidence (0 to 1) at which it was read, where that was too low to count.
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
    """What the comparison found.

    ``passed``: nothing required is missing, nothing forbidden is there, and nothing extra where that is
    forbidden; ``None`` where that hangs on look-alikes alone. ``recall`` is the share (0 to 1) of required
    lines found. ``cer`` (0 to 1, lower is better) is the character error rate: Levenshtein edits
    between each required line and the reading nearest to it, over the characters of all required lines,
    white space left out (Rice, Jenkins and Nartker 1996). Both are ``None`` without required lines, and where
    look-alikes leave one unsettled. ``folded`` maps a character of an expected line to what it counts as.
    """

    passed: bool | None
    recall: float | None
    cer: float | None
    found: tuple[CopyPair, ...]
    missing: tuple[Miss, ...]
    unsettled: tuple[CopyPair, ...]
    unsettled_forbidden: tuple[CopyPair, ...]
    forbidden: tuple[CopyPair, ...]
    extra: tuple[str, ...]
    folded: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Lines:
    """The expected lines, prepared. A line of nothing but white space asks for nothing."""

    required: tuple[Copy, ...]
    allowed: tuple[Copy, ...]
    forbidden: tuple[Copy, ...]

    @classmethod
    def of(cls, expected: ExpectText, *, fold: bool) -> _Lines:
        given = (expected.required, expected.allowed, expected.forbidden)
        return cls(*(tuple(c for c in (copy_of(line, fold=fold) for line in lines) if c.chars) for lines in given))

    @property
    def all(self) -> tuple[Copy, ...]:
        return (*self.required, *self.allowed, *self.forbidden)


_Hit = tuple[Copy, Match]
"""An expected line and where it stands."""


def check(readings: Sequence[Reading], expected: ExpectText, *, fold: bool, min_confidence: float = 0.0) -> CopyCheck:
    """Compares readings with expected lines. Readings below ``min_confidence`` (0 to 1) are not text."""
    lines = _Lines.of(expected, fold=fold)
    with_text = [index for index, reading in enumerate(readings) if copy_of(reading.text, fold=fold).chars]
    kept = [index for index in with_text if readings[index].confidence >= min_confidence]
    page = _page(readings, kept, lines, fold=fold)
    found, unsettled, absent = _required(page, lines, fold=fold)
    near = [_nearest(page, line, [*found, *unsettled]) for line in absent]
    faint = {} if len(kept) == len(with_text) else _faint(readings, with_text, absent, lines, fold=fold)
    missing = tuple(
        _miss(page, line, closest, faint.get(line.chars), lines, found)
        for line, closest in zip(absent, near, strict=True)
    )
    forbidden, unsure = _forbidden(page, lines, unsettled, fold=fold)
    extra: tuple[str, ...] = ()
    if expected.extra == "forbid":
        allowed = [(line, match) for line in lines.allowed for match in occurrences(page, line.chars, alike=fold)]
        close = [(c, n.match) for c, n in zip(absent, near, strict=True) if n is not None and n.close(c)]
        extra = _extra(page, [match for _, match in (*found, *unsettled, *forbidden, *unsure, *allowed, *close)])

    measured = bool(lines.required) and not unsettled
    return CopyCheck(
        passed=False if missing or forbidden or extra else None if unsettled or unsure else True,
        recall=len(found) / len(lines.required) if measured else None,
        cer=_error_rate(lines.required, missing) if measured else None,
        found=_pairs(page, kept, found),
        missing=missing,
        unsettled=_pairs(page, kept, unsettled),
        forbidden=_pairs(page, kept, forbidden),
        unsettled_forbidden=_pairs(page, kept, unsure),
        extra=extra,
        folded=_folded(lines) if fold else {},
    )


def _page(readings: Sequence[Reading], kept: Sequence[int], lines: _Lines, *, fold: bool) -> Page:
    shown = [readings[index] for index in kept]
    texts = [reading.text for reading in shown]
    return page_of(texts, reading_order.follows(shown), lines.all, fold=fold)


def _required(page: Page, lines: _Lines, *, fold: bool) -> tuple[list[_Hit], list[_Hit], list[Copy]]:
    """The required lines that were read, those that look-alikes alone keep from it, and the rest."""
    exact = assign([occurrences(page, line.chars) for line in lines.required])
    found = [(line, match) for line, match in zip(lines.required, exact, strict=True) if match is not None]
    absent = [line for line, match in zip(lines.required, exact, strict=True) if match is None]
    if not fold:
        return found, [], absent
    alike = assign([occurrences(page, line.chars, alike=True) for line in absent], [match for _, match in found])
    unsettled = [(line, match) for line, match in zip(absent, alike, strict=True) if match is not None]
    return found, unsettled, [line for line, match in zip(absent, alike, strict=True) if match is None]


def _nearest(page: Page, line: Copy, hits: Sequence[_Hit]) -> Near | None:
    return nearest(page, line, _covered(match for _, match in hits))


def _covered(matches: Iterable[Match]) -> set[tuple[int, int]]:
    return {(i, place) for match in matches for i, start, end in match for place in range(start, end)}


def _faint(
    readings: Sequence[Reading],
    with_text: Sequence[int],
    absent: Sequence[Copy],
    lines: _Lines,
    *,
    fold: bool,
) -> dict[str, float]:
    """The confidence at which missing lines were read after all, by their compared characters."""
    page = _page(readings, with_text, lines, fold=fold)
    sure: dict[str, float] = {}
    for line in absent:
        for match in occurrences(page, line.chars):
            weakest = min(readings[with_text[index]].confidence for index, _, _ in match)
            sure[line.chars] = max(weakest, sure.get(line.chars, 0.0))
    return sure


def _miss(page: Page, line: Copy, near: Near | None, faint: float | None, lines: _Lines, found: Sequence[_Hit]) -> Miss:
    edits = near.edits if near is not None else len(line.chars)
    shown: str | None = None
    changes: tuple[str, ...] = ()
    if near is not None and near.close(line):
        shown = page.shown(near.match)
        changes = differences(line, "".join(page.copies[i].chars[start:end] for i, start, end in near.match))
    return Miss(
        line=line.text,
        edits=edits,
        nearest=shown,
        differences=changes,
        have=sum(other.chars == line.chars for other, _ in found),
        want=sum(other.chars == line.chars for other in lines.required),
        faint=faint,
    )


def _forbidden(page: Page, lines: _Lines, unsettled: Sequence[_Hit], *, fold: bool) -> tuple[list[_Hit], list[_Hit]]:
    """Forbidden lines that were read, and those that may have been: one place each.

    What is part of a required or an allowed line is no offence.
    """
    permitted = [match for line in (*lines.required, *lines.allowed) for match in occurrences(page, line.chars)]
    permitted += [match for _, match in unsettled]
    hits: list[_Hit] = []
    unsure: list[_Hit] = []
    for line in lines.forbidden:
        for alike, into in ((False, hits), (True, unsure))[: 1 + fold]:
            places = occurrences(page, line.chars, alike=alike)
            open_places = [m for m in places if not any(inside(m, other) for other in permitted)]
            open_places.sort(key=lambda match: _torn(page, line, match))
            if open_places:
                torn = fold and _torn(page, line, open_places[0])
                (unsure if torn else into).append((line, open_places[0]))
                break
    return hits, unsure


def _torn(page: Page, line: Copy, match: Match) -> bool:
    """Whether the reading has spaces within the line's words: "log in to" may not be "into".

    Spaces between all letters are wide setting, and are none.
    """
    place, torn, letters = 0, 0, 0
    for index, start, end in match:
        for at in range(start, end):
            if place and place not in line.gaps:
                letters += 1
                torn += at == start or at in page.copies[index].gaps
            place += 1
    return 0 < torn < letters


def _extra(page: Page, explained: Sequence[Match]) -> tuple[str, ...]:
    """The text that nothing explains, with the reading around it; ornaments and lone marks are not text."""
    covered = _covered(explained)
    found: list[str] = []
    for index, copy in enumerate(page.copies):
        for start, end in _open_runs([(index, place) in covered for place in range(len(copy.chars))]):
            run, text = copy.chars[start:end], copy.cut(start, end)
            alone = all(place in copy.gaps or place in (0, len(copy.chars)) for place in (start, end))
            if _is_text(run, alone=alone):
                whole = end - start == len(copy.chars)
                found.append(text if whole else f"{text} (in {copy.text.strip()})")
    return tuple(found)


def _open_runs(covered: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The stretches of a reading that are not covered."""
    start = None
    for place, closed in enumerate((*covered, True)):
        if closed and start is not None:
            yield start, place
            start = None
        elif not closed and start is None:
            start = place


def _is_text(run: str, *, alone: bool) -> bool:
    if any(char.isalnum() or char in _MEANT for char in run):
        return True
    return not alone and not _ORNAMENT.issuperset(run)


def _error_rate(required: Sequence[Copy], missing: Sequence[Miss]) -> float:
    return sum(miss.edits for miss in missing) / sum(len(line.chars) for line in required)


def _pairs(page: Page, kept: Sequence[int], hits: Iterable[_Hit]) -> tuple[CopyPair, ...]:
    return tuple(
        CopyPair(line.text, page.shown(match), tuple(kept[index] for index, _, _ in match)) for line, match in hits
    )


def _folded(lines: _Lines) -> dict[str, str]:
    """The characters of expected lines that are compared as others."""
    chars = {char for line in lines.all for char in line.text if not char.isspace()}
    return {char: fold_character(char) for char in sorted(chars) if fold_character(char) != char}
