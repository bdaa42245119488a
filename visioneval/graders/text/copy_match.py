"""Where a line of copy stands in what was read, however the reader cut it up. Pure: no image, no OCR.

Readings are compared without their white space, which readers drop and add: "BOSTONAND" is "BOSTON AND".
What keeps "PLANE" out of "PLANET" are edges: a line begins and ends at an edge, never inside a word. Edges
are the ends of a reading, its white space, punctuation around a word, both sides of an ideograph, and the
seam in a word that is nothing but complete expected words that the reader joined.
"""

# ruff: noqa: RUF001 - characters that are easily confused are the subject here
from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from visioneval.characters import is_ignorable
from visioneval.graders.text.alphabet import APOSTROPHE, BULLET, ELLIPSIS, HYPHEN, QUOTE, fold_character

Corners = tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
Span = tuple[int, int, int]
"""A reading's index, and the first and the last-but-one of its compared characters."""
Match = tuple[Span, ...]
"""A line that was found: one span, or several where it goes on in the next reading."""

_SEPARATORS = frozenset(f"|,;:!?()[]{{}}{BULLET}{ELLIPSIS}{QUOTE}、。，；：！？（）【】「」『』《》〈〉")
_LEADING = frozenset(f".*_~{HYPHEN}{APOSTROPHE}")
_TRAILING = frozenset(f".*_~{APOSTROPHE}")
_MIN_JOINED = 2
_MAX_STEPS = 20_000

# In a sans-serif these are one shape, or one shape in two sizes, so a reader picks by context.
_ALIKE = ("Il1|丨ı", "O0o〇○", "cC", "sS", "vV", "wW", "xX×", "zZ", "-一ー")
_SKELETON = str.maketrans({char: shapes[0] for shapes in _ALIKE for char in shapes})


@dataclass(frozen=True, slots=True)
class Reading:
    """One stretch of text that a reader saw.

    ``confidence`` is 0 to 1. ``corners`` are pixels (x, y), clockwise from the top left of the text; ``None``
    from a reader that gives no place.
    """

    text: str
    confidence: float = 1.0
    corners: Corners | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A text as it is compared: NFC, without white space, and folded where the reader folds.

    ``source[i]`` is the place in ``text`` of ``chars[i]``; ``gaps`` are the places in ``chars`` where white
    space stood.
    """

    text: str
    chars: str
    source: tuple[int, ...]
    gaps: frozenset[int]

    def cut(self, start: int, end: int) -> str:
        """The text as written behind ``chars[start:end]``."""
        return self.text[self.source[start] : self.source[end - 1] + 1] if end > start else ""


def copy_of(text: str, *, fold: bool) -> Copy:
    """Prepares a text for comparison."""
    text = unicodedata.normalize("NFC", text)
    chars: list[str] = []
    source: list[int] = []
    gaps: set[int] = set()
    for place, char in enumerate(text):
        if char.isspace():
            gaps.add(len(chars))
            continue
        for part in fold_character(char) if fold else ("" if is_ignorable(char) else char):
            merged = _merge(chars[-1], part) if fold and chars else None
            if merged:
                chars[-1] = merged
            else:
                chars.append(part)
                source.append(place)
    return Copy(text, "".join(chars), tuple(source), frozenset(gaps))


def _merge(before: str, char: str) -> str | None:
    """What two marks in a row are read as: "..." and "…" are one, and so are "--" and "—"."""
    if char == HYPHEN and before == HYPHEN:
        return HYPHEN
    if char == APOSTROPHE and before == APOSTROPHE:
        return QUOTE
    if char in (".", ELLIPSIS) and before in (".", ELLIPSIS):
        return ELLIPSIS
    return None


def skeleton(chars: str) -> str:
    """The text with each group of look-alikes as one character; its length is kept."""
    return chars.translate(_SKELETON)


@dataclass(frozen=True, slots=True)
class Page:
    """All that was read: texts, the edges in each, and which readings a line may go on in after each."""

    copies: tuple[Copy, ...]
    skeletons: tuple[str, ...]
    edges: tuple[frozenset[int], ...]
    follows: tuple[tuple[int, ...], ...]

    def length(self, index: int) -> int:
        """How many compared characters a reading has."""
        return len(self.copies[index].chars)

    def shown(self, match: Match) -> str:
        """What was read where a match stands."""
        return " ".join(self.copies[index].cut(start, end) for index, start, end in match)


def page_of(texts: Sequence[str], follows: Sequence[Sequence[int]], expected: Iterable[Copy], *, fold: bool) -> Page:
    """Prepares readings for the search. ``expected`` are the lines that a reader may have joined."""
    copies = tuple(copy_of(text, fold=fold) for text in texts)
    pieces = frozenset(piece for line in expected for piece in _word_runs(line))
    if fold:
        pieces |= frozenset(map(skeleton, pieces))
    return Page(
        copies,
        tuple(skeleton(copy.chars) if fold else copy.chars for copy in copies),
        tuple(frozenset(_edges(copy, pieces)) for copy in copies),
        tuple(tuple(after) for after in follows),
    )


def occurrences(page: Page, needle: str, *, alike: bool = False) -> list[Match]:
    """Every place where ``needle`` stands between edges, the plainest first: one whole reading, then parts.

    With ``alike``, look-alikes count as equal. ``needle`` is compared characters (``Copy.chars``).
    """
    texts = page.skeletons if alike else tuple(copy.chars for copy in page.copies)
    wanted = skeleton(needle) if alike else needle
    found: dict[Match, None] = {}
    for index, text in enumerate(texts):
        for start in sorted(page.edges[index]):
            if start < len(text) and wanted and text[start] == wanted[0]:
                found.update(dict.fromkeys(_from(page, texts, index, start, wanted)))
    return sorted(found, key=lambda match: (len(match), _left_over(page, match), match))


def _from(page: Page, texts: Sequence[str], index: int, start: int, wanted: str) -> Iterator[Match]:
    """The matches of ``wanted`` that begin at one place."""
    here = texts[index][start:]
    if len(wanted) <= len(here):
        end = start + len(wanted)
        if here.startswith(wanted) and end in page.edges[index]:
            yield ((index, start, end),)
    elif wanted.startswith(here):
        for after in page.follows[index]:
            for rest in _from(page, texts, after, 0, wanted[len(here) :]):
                yield ((index, start, len(texts[index])), *rest)


def _left_over(page: Page, match: Match) -> int:
    return sum(page.length(index) - (end - start) for index, start, end in match)


def overlap(one: Match, other: Match) -> bool:
    """Whether two matches share a character."""
    return any(a[0] == b[0] and a[1] < b[2] and b[1] < a[2] for a in one for b in other)


def inside(one: Match, other: Match) -> bool:
    """Whether ``one`` lies within ``other``."""
    return all(any(a[0] == b[0] and b[1] <= a[1] and a[2] <= b[2] for b in other) for a in one)


def _edges(copy: Copy, pieces: frozenset[str]) -> Iterator[int]:
    """The places where a line may begin or end."""
    stops = sorted({0, len(copy.chars)} | copy.gaps)
    yield from stops
    for start, end in pairwise(stops):
        word = copy.chars[start:end]
        yield from (start + place for place in _edges_in_word(word))
        yield from (start + place for place in _seams(word, pieces) | _seams(skeleton(word), pieces))


def _edges_in_word(word: str) -> Iterator[int]:
    first = len(word) - len(word.lstrip("".join(_LEADING)))
    if not (word[:first].endswith(HYPHEN) and word[first : first + 1].isdigit()):  # "-20" is not 20
        yield from range(1, first + 1)
    yield from range(len(word.rstrip("".join(_TRAILING))), len(word))
    for place in range(1, len(word)):
        pair = word[place - 1 : place + 1]
        if any(map(_ideographic, pair)) or any(_separates(word, at) for at in (place - 1, place)):
            yield place


def _separates(word: str, at: int) -> bool:
    """Whether a separator stands here, and not within a number: "1,000" and "7:30" are one."""
    within_number = word[max(at - 1, 0) : at].isdigit() and word[at + 1 : at + 2].isdigit()
    return word[at] in _SEPARATORS and not within_number


def _ideographic(char: str) -> bool:
    """Whether a script writes this character without spaces between words: Han and kana."""
    return "\u3040" <= char <= "\u30ff" or "\u3400" <= char <= "\u9fff" or char == "々"


def _word_runs(line: Copy) -> Iterator[str]:
    """The runs of complete words of a line, joined, with and without the punctuation around them.

    One letter explains too much: "O", "THE" and "R" would make "OTHER".
    """
    stops = sorted({0, len(line.chars)} | line.gaps)
    for first, start in enumerate(stops):
        for end in stops[first + 1 :]:
            run = line.chars[start:end]
            for piece in (run, run.strip("".join(_SEPARATORS | _LEADING))):
                if len(piece) >= _MIN_JOINED:
                    yield piece


def _seams(word: str, pieces: frozenset[str]) -> set[int]:
    """The places within a word where complete expected words meet, if they explain the whole word."""
    sizes = sorted({len(piece) for piece in pieces if len(piece) < len(word)})
    left = _reach(word, pieces, sizes)
    if len(word) not in left:
        return set()
    backwards = frozenset(piece[::-1] for piece in pieces)
    right = {len(word) - place for place in _reach(word[::-1], backwards, sizes)}
    return left & right


def _reach(word: str, pieces: frozenset[str], sizes: Sequence[int]) -> set[int]:
    """How far pieces, and separators between them, explain a word from its start."""
    reached = {0}
    for place in range(len(word)):
        if place not in reached:
            continue
        if word[place] in _SEPARATORS:
            reached.add(place + 1)
        reached.update(place + size for size in sizes if word[place : place + size] in pieces)
    return reached


def assign(options: Sequence[Sequence[Match]], taken: Sequence[Match] = ()) -> list[Match | None]:
    """One of its options for as many lines as possible; no two share a character, nor one in ``taken``.

    Longer lines choose first, and each takes its plainest option; where that leaves out a line that has
    options, other choices are tried.
    """
    order = sorted(range(len(options)), key=lambda line: -max(map(_size, options[line]), default=0))
    free = [[match for match in options[line] if not _clashes(match, taken)] for line in order]
    search = _AssignmentSearch(free)
    search.go(0, ())
    chosen: list[Match | None] = [None] * len(options)
    for line, match in zip(order, search.best, strict=True):
        chosen[line] = match
    return chosen


def _size(match: Match) -> int:
    return sum(end - start for _, start, end in match)


def _clashes(match: Match, others: Iterable[Match | None]) -> bool:
    return any(other is not None and overlap(match, other) for other in others)


class _AssignmentSearch:
    """Depth first, the best so far kept; the first way down is the greedy one. Bounded in steps."""

    def __init__(self, options: Sequence[Sequence[Match]]) -> None:
        self.options = options
        self.possible = sum(bool(matches) for matches in options)
        self.best: list[Match | None] = [None] * len(options)
        self.found = -1
        self.steps = _MAX_STEPS

    def go(self, line: int, chosen: tuple[Match | None, ...]) -> None:
        self.steps -= 1
        have = sum(match is not None for match in chosen)
        if line == len(self.options):
            if have > self.found:
                self.found, self.best = have, list(chosen)
            return
        if have + len(self.options) - line <= self.found:
            return
        for match in (*self.options[line], None):
            if match is None or not _clashes(match, chosen):
                self.go(line + 1, (*chosen, match))
            if self.steps <= 0 or self.found == self.possible:
                return
