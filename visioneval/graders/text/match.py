"""Finds a line of copy in the readings, however the reader split it. Pure: no image, no OCR.

Readings are compared without white space, which readers drop and add: "BOSTONAND" is "BOSTON AND".
Edges keep "PLANE" from matching in "PLANET": a line begins and ends at an edge, never inside a word. Edges
are the ends of a reading, its white space, punctuation around a word, a long dash after a word, both sides of an
ideograph, and the seams in a word that consists of complete expected words, joined by the reader.

A character that the reader cannot read leaves a gap. It is shown as nothing, or as one or two others: "ť" as "t", "Œ"
as "CE". So the line may be there if everything else was read in its place. Of a line of another script, no reading says
anything.
"""

# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from visioneval.graders.text import layout
from visioneval.graders.text.alphabet import (
    APOSTROPHE,
    BULLET,
    COMMA,
    DEGREE,
    ELLIPSIS,
    HYPHEN,
    LOW_QUOTE,
    QUOTE,
    fold_character,
    unreadable,
)
from visioneval.graders.text.layout import Reading
from visioneval.media import is_ignorable

Span = tuple[int, int, int]
"""A reading's index, and the start and (exclusive) end of its compared characters."""
Match = tuple[Span, ...]
"""A matched line: one span, or several if it continues in other readings."""

_SEPARATORS = frozenset(f"|,;:!?()[]{{}}{BULLET}{ELLIPSIS}{QUOTE}、。，；：！？（）【】「」『』《》〈〉")
_LEADING = frozenset(f".*_~{HYPHEN}{APOSTROPHE}")
_TRAILING = frozenset(f".*_~{APOSTROPHE}")
_LONG_DASHES = "—―"
_MERGED = {
    HYPHEN * 2: HYPHEN,
    APOSTROPHE * 2: QUOTE,
    COMMA * 2: LOW_QUOTE,
    DEGREE * 2: DEGREE,
    **{before + after: ELLIPSIS for before in (".", ELLIPSIS) for after in (".", ELLIPSIS)},
}
"""The single character for two marks in a row: "..." becomes "…", "--" becomes "—", and ",," becomes "„".

"5°℃" is "5°C" too.
"""
_MIN_JOINED = 2
_MAX_STEPS = 20_000

# In a sans-serif font these have the same shape, maybe in two sizes, so a reader picks by context.
_ALIKE = ("Il1|丨ı", "O0o〇○", "cC", "sS", "vV", "wW", "xX×", "zZ", "-一ー")
_SKELETON = str.maketrans({char: shapes[0] for shapes in _ALIKE for char in shapes})


@dataclass(frozen=True, slots=True)
class Copy:
    """A text in its compared form: NFC, without white space, and folded if the reader folds.

    ``source[i]`` is the index in ``text`` of ``chars[i]``; ``gaps`` are the indices in ``chars`` where white
    space was removed.
    """

    text: str
    chars: str
    source: tuple[int, ...]
    gaps: frozenset[int]

    def cut(self, start: int, end: int) -> str:
        """The original text of ``chars[start:end]``."""
        return self.text[self.source[start] : self.source[end - 1] + 1] if end > start else ""


def copy_of(text: str, *, fold: bool) -> Copy:
    """Prepares a text for comparison."""
    text = unicodedata.normalize("NFC", text)
    chars: list[str] = []
    source: list[int] = []
    gaps: set[int] = set()
    for position, char in enumerate(text):
        if char.isspace():
            gaps.add(len(chars))
            continue
        for part in fold_character(char) if fold else ("" if is_ignorable(char) else char):
            merged = _MERGED.get(chars[-1] + part) if fold and chars else None
            if merged:
                chars[-1] = merged
            else:
                chars.append(part)
                source.append(position)
    return Copy(text, "".join(chars), tuple(source), frozenset(gaps))


def skeleton(chars: str) -> str:
    """Replaces each look-alike with one character per group; the length does not change."""
    return chars.translate(_SKELETON)


def lower_case(chars: str) -> str:
    """The characters in lower case, each as one; the length does not change."""
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in chars)


@dataclass(frozen=True, slots=True)
class Page:
    """All readings: texts as read and as the glyphs show them, the edges in each, what may follow each, and what may
    follow it if both are whole. Those that are not ``counted`` have no edges, and nothing follows them."""

    readings: Sequence[Reading]
    fold: bool
    min_confidence: float
    counted: tuple[int, ...]
    copies: tuple[Copy, ...]
    shown_chars: tuple[str, ...]
    skeletons: tuple[str, ...]
    edges: tuple[frozenset[int], ...]
    follows: tuple[tuple[int, ...], ...]
    near: tuple[frozenset[int], ...]

    def length(self, index: int) -> int:
        """The number of compared characters of a reading."""
        return len(self.copies[index].chars)

    def shown(self, match: Match) -> str:
        """The original text of a match."""
        return " ".join(self.copies[index].cut(start, end) for index, start, end in match)


def page_of(readings: Sequence[Reading], expected: Sequence[Copy], *, fold: bool, min_confidence: float = 0.0) -> Page:
    """Prepares readings for the search. Those with text that are at least as confident (0 to 1) count.

    ``expected`` are lines whose words the reader may have joined.
    """
    copies = tuple(copy_of(reading.text, fold=fold) for reading in readings)
    counted = [at for at, copy in enumerate(copies) if readings[at].confidence >= min_confidence and copy.chars]
    on_page = [readings[index] for index in counted]
    follows = dict(zip(counted, layout.follows(on_page), strict=True))
    near = dict(zip(counted, layout.near(on_page), strict=True))
    pieces = frozenset(piece for line in expected for piece in _word_runs(line))
    if fold:
        pieces |= frozenset(map(skeleton, pieces))
    return Page(
        readings,
        fold,
        min_confidence,
        tuple(counted),
        copies,
        shown_chars=tuple(copy_of(reading.shown_text, fold=fold).chars for reading in readings),
        skeletons=tuple(skeleton(copy.chars) if fold else copy.chars for copy in copies),
        edges=tuple(frozenset(_edges(copy, pieces) if at in follows else ()) for at, copy in enumerate(copies)),
        follows=tuple(tuple(counted[after] for after in follows.get(at, ())) for at in range(len(readings))),
        near=tuple(frozenset(counted[other] for other in near.get(at, ())) for at in range(len(readings))),
    )


def in_lower_case(page: Page) -> Page:
    """The page with all text in lower case, at the same positions."""
    copies = tuple(replace(copy, chars=lower_case(copy.chars)) for copy in page.copies)
    return replace(page, copies=copies, shown_chars=tuple(map(lower_case, page.shown_chars)))


def occurrences(page: Page, needle: str, *, alike: bool = False) -> list[Match]:
    """All matches of ``needle`` between edges, simplest first: one whole reading, then parts.

    With ``alike``, look-alikes are equal; without, both the text as read and as the glyphs show it count.
    ``needle`` contains compared characters (``Copy.chars``).
    """
    target = skeleton(needle) if alike else needle
    as_read = tuple(copy.chars for copy in page.copies)
    matches: dict[Match, None] = {}
    for texts in (page.skeletons,) if alike else dict.fromkeys((as_read, page.shown_chars)):
        for index, text in enumerate(texts):
            for start in sorted(page.edges[index]):
                if start < len(text) and target and text[start] == target[0]:
                    matches.update(dict.fromkeys(_matches_at(page, texts, index, start, target)))
    return simplest_first(page, matches)


def simplest_first(page: Page, matches: Iterable[Match]) -> list[Match]:
    """One whole reading first, then parts of one, then several."""

    def unmatched(match: Match) -> int:
        return sum(page.length(index) - (end - start) for index, start, end in match)

    return sorted(matches, key=lambda match: (len(match), unmatched(match), match))


def _matches_at(page: Page, texts: Sequence[str], index: int, start: int, target: str) -> Iterator[Match]:
    """The matches of ``target`` that begin at one place."""
    rest_of_reading = texts[index][start:]
    if len(target) <= len(rest_of_reading):
        end = start + len(target)
        if rest_of_reading.startswith(target) and end in page.edges[index]:
            yield ((index, start, end),)
    elif target.startswith(rest_of_reading):
        for after in page.follows[index]:
            for tail in _matches_at(page, texts, after, 0, target[len(rest_of_reading) :]):
                yield ((index, start, len(texts[index])), *tail)


def covered(matches: Iterable[Match]) -> set[tuple[int, int]]:
    """The characters (reading, position) of the matches."""
    return {(index, position) for match in matches for index, start, end in match for position in range(start, end)}


def inside(inner: Match, outer: Match) -> bool:
    """Whether ``inner`` lies within ``outer``."""
    return all(any(a[0] == b[0] and b[1] <= a[1] and a[2] <= b[2] for b in outer) for a in inner)


def _edges(copy: Copy, pieces: frozenset[str]) -> Iterator[int]:
    """The positions where a line may begin or end."""
    stops = sorted({0, len(copy.chars)} | copy.gaps)
    yield from stops
    yield from (stop - 1 for stop in stops if stop and copy.text[copy.source[stop - 1]] in _LONG_DASHES)
    for start, end in pairwise(stops):
        word = copy.chars[start:end]
        yield from (start + position for position in _edges_in_word(word))
        yield from (start + position for position in _seams(word, pieces) | _seams(skeleton(word), pieces))


def _edges_in_word(word: str) -> Iterator[int]:
    first = len(word) - len(word.lstrip("".join(_LEADING)))
    if not (word[:first].endswith(HYPHEN) and word[first : first + 1].isdigit()):  # "-20" is not 20
        yield from range(1, first + 1)
    yield from range(len(word.rstrip("".join(_TRAILING))), len(word))
    for index, char in enumerate(word):
        # "1,000" and "7:30" are single words.
        within_number = word[max(index - 1, 0) : index].isdigit() and word[index + 1 : index + 2].isdigit()
        if is_ideographic(char) or (char in _SEPARATORS and not within_number):
            yield from {index, index + 1} - {0, len(word)}


def is_ideographic(char: str) -> bool:
    """Whether the script of the character has no spaces between words: Han and kana."""
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or char == "々"


def _word_runs(line: Copy) -> Iterator[str]:
    """The runs of complete words of a line, joined, with and without the punctuation around them.

    Single letters are excluded: "O", "THE" and "R" would explain "OTHER".
    """
    stops = sorted({0, len(line.chars)} | line.gaps)
    for first, start in enumerate(stops):
        for end in stops[first + 1 :]:
            run = line.chars[start:end]
            for piece in (run, run.strip("".join(_SEPARATORS | _LEADING))):
                if len(piece) >= _MIN_JOINED:
                    yield piece


def _seams(word: str, pieces: frozenset[str]) -> set[int]:
    """The positions in a word where complete expected words meet, if they explain the whole word."""
    sizes = _sizes(pieces)
    from_left = _explained_ends(word, pieces, sizes)
    if len(word) not in from_left:
        return set()
    backwards = frozenset(piece[::-1] for piece in pieces)
    from_right = {len(word) - position for position in _explained_ends(word[::-1], backwards, sizes)}
    return from_left & from_right


@lru_cache(maxsize=2)
def _sizes(pieces: frozenset[str]) -> tuple[int, ...]:
    return tuple(sorted({len(piece) for piece in pieces}))


def _explained_ends(word: str, pieces: frozenset[str], sizes: Sequence[int]) -> set[int]:
    """The positions in a word up to which shorter pieces and separators explain it from its start."""
    ends = {0}
    for position in range(len(word)):
        if position not in ends:
            continue
        if word[position] in _SEPARATORS:
            ends.add(position + 1)
        fitting = (size for size in sizes if size < len(word) and word[position : position + size] in pieces)
        ends.update(position + size for size in fitting)
    return ends


def assign(options: Sequence[Sequence[Match]], taken: Sequence[Match] = ()) -> list[Match | None]:
    """Assigns a match to as many lines as possible, without shared characters or overlap with ``taken``.

    Longer lines come first, each with its simplest option. If that leaves out a line with options, other
    combinations are tried.
    """

    def length(match: Match) -> int:
        return sum(end - start for _, start, end in match)

    order = sorted(range(len(options)), key=lambda line: -max(map(length, options[line]), default=0))
    free = [[match for match in options[line] if not _clashes(match, taken)] for line in order]
    possible = sum(map(bool, free))
    best: list[Match | None] = [None] * len(options)
    best_count, steps = -1, _MAX_STEPS

    def search(line: int, chosen: tuple[Match | None, ...]) -> None:
        """Depth first; the first path is the greedy one. Bounded in steps."""
        nonlocal best, best_count, steps
        steps -= 1
        count = sum(match is not None for match in chosen)
        if line == len(free):
            if count > best_count:
                best_count, best = count, list(chosen)
            return
        if count + len(free) - line <= best_count:
            return
        for match in (*free[line], None):
            if match is None or not _clashes(match, chosen):
                search(line + 1, (*chosen, match))
            if steps <= 0 or best_count == possible:
                return

    search(0, ())
    by_line = dict(zip(order, best, strict=True))
    return [by_line[line] for line in range(len(options))]


def _clashes(match: Match, others: Iterable[Match | None]) -> bool:
    """Whether a match shares a character with one of the others."""
    spans = [span for other in others if other is not None for span in other]
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in match for b in spans)


_MOST_READ = 2
"""As so many characters, or fewer, an unreadable one is read."""


def has_gaps(line: Copy) -> bool:
    """Whether a character of the line cannot be read."""
    return bool(unreadable(line.text))


def is_illegible(line: Copy) -> bool:
    """Whether more than half of the line's letters and digits cannot be read; of other characters, if it has none."""
    pattern = _pattern(line)
    letters = [read for char, read in zip(line.chars, pattern, strict=True) if char.isalnum()] or pattern
    return 2 * letters.count(None) > len(letters)


def assign_gaps(
    page: Page, lines: Sequence[Copy], taken: Sequence[Match], legible: AbstractSet[str]
) -> list[Match | None]:
    """For each line the text that may be it, apart from ``taken``: empty for an illegible one that matches nothing.

    ``None`` for a line that is not there, and for one of ``legible``, which another reader can read.
    """
    options = [[] if line.text in legible else gap_occurrences(page, line) for line in lines]
    return [
        () if match is None and line.text not in legible and is_illegible(line) else match
        for line, match in zip(lines, assign(options, taken), strict=True)
    ]


def gap_occurrences(page: Page, line: Copy) -> list[Match]:
    """All matches of the line's readable characters with a gap for each of the others; none without a gap."""
    pattern = _pattern(line)
    if None not in pattern or not any(pattern):
        return []
    matches: dict[Match, None] = {}
    for index, edges in enumerate(page.edges):
        for start in sorted(edges):
            matches.update(dict.fromkeys(_matches_from(page, pattern, index, start)))
    return simplest_first(page, matches)


def _pattern(line: Copy) -> list[str | None]:
    """The characters to be found, look-alikes as one; ``None`` for each that cannot be read."""
    missing = {*unreadable(line.text)}
    sources = (line.text[position] for position in line.source)
    return [None if source in missing else char for source, char in zip(sources, skeleton(line.chars), strict=True)]


def _matches_from(page: Page, pattern: Sequence[str | None], index: int, start: int) -> Iterator[Match]:
    """The matches that begin at one place; of those that end at the same place, one."""
    seen: set[tuple[int, int, int]] = set()
    pending: list[tuple[int, int, int, int, Match]] = [(0, index, start, start, ())]
    while pending:
        done, index, first, position, before = pending.pop()
        if (done, index, position) in seen:
            continue
        seen.add((done, index, position))
        text = page.skeletons[index]
        span = (index, first, position)
        if done == len(pattern):
            if position > first and position in page.edges[index]:
                yield (*before, span)
            continue
        if position == len(text):
            if position > first:
                pending += [(done, after, 0, 0, (*before, span)) for after in page.follows[index]]
        elif pattern[done] == text[position]:
            pending.append((done + 1, index, first, position + 1, before))
        if pattern[done] is None:
            last = min(position + _MOST_READ, len(text))
            pending += [(done + 1, index, first, end, before) for end in range(last, position - 1, -1)]
