"""Edit distances: the reading nearest to a line of copy, the characters that differ, and scores of benchmarks.

The distance is Levenshtein's (1966): the fewest characters to insert, delete or replace. The search for the
nearest segment of a text is Sellers' (1980), on segments that begin and end at edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from visioneval.graders.text.alphabet import words
from visioneval.graders.text.match import Copy, Match, Page

_MAX_DIFFERENCES = 4
_EDIT = 1 << 32
_FAR = 1 << 20

_Column = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class NearestMatch:
    """The segment of the page nearest to a line. ``edits`` is less than the line's length."""

    match: Match
    edits: int

    def is_close(self, line: Copy) -> bool:
        """Whether a person would see this as a misspelled line and not as another text."""
        return 2 * self.edits <= len(line.chars)


def nearest(page: Page, line: Copy, taken: AbstractSet[tuple[int, int]]) -> NearestMatch | None:
    """The free segment with the fewest edits to ``line``; ``None`` if no segment is nearer than the empty text.

    ``taken`` are the characters (reading, position) that belong to other lines.
    """
    search = _NearestSearch(page, line.chars, taken)
    before: dict[int, list[int]] = {index: [] for index in range(len(page.follows))}
    for index, after in enumerate(page.follows):
        for other in after:
            before[other].append(index)
    try:
        order = list(TopologicalSorter(before).static_order())
    except CycleError:
        order = list(before)
    for index in order:
        search.read(index)
    return search.best


class _NearestSearch:
    """Sellers' column of distances, passed from character to character and from reading to reading.

    ``column[i]`` is the smallest distance of ``i`` characters wanted to a stretch that ends here, times
    ``_ONE``, plus the number of that stretch's origin, so that one minimum keeps both.
    """

    def __init__(self, page: Page, target: str, taken: AbstractSet[tuple[int, int]]) -> None:
        self.page, self.taken = page, taken
        self.target = np.array([ord(char) for char in target], dtype=np.int64)
        self.ladder = np.arange(len(target) + 1, dtype=np.int64) * _EDIT
        self.nothing = self.ladder + _FAR * _EDIT
        self.origins: list[tuple[Match, int]] = []
        self.pending: dict[int, _Column] = {}
        self.best: NearestMatch | None = None

    def read(self, index: int) -> None:
        """Processes one reading, and passes its last column to the readings that may follow."""
        chars, edges = self.page.copies[index].chars, self.page.edges[index]
        column = self.pending.pop(index, self.nothing)
        for position, char in enumerate(chars):
            if (index, position) in self.taken:
                column = self.nothing
                continue
            if position in edges:
                column = np.minimum(column, self.ladder + self._origin((), position))
            column = self._step(column, char)
            if position + 1 in edges:
                self._note(index, position + 1, int(column[-1]))
        for after in self.page.follows[index]:
            continued = self._continued(column, index, len(chars))
            self.pending[after] = np.minimum(continued, self.pending.get(after, self.nothing))

    def _step(self, column: _Column, char: str) -> _Column:
        changed = column[:-1] + (self.target != ord(char)) * _EDIT
        column = np.minimum(column + _EDIT, np.concatenate((column[:1] + _EDIT, changed)))
        return np.minimum.accumulate(column - self.ladder) + self.ladder

    def _note(self, index: int, end: int, cell: int) -> None:
        edits, origin = divmod(cell, _EDIT)
        if edits < (len(self.target) if self.best is None else self.best.edits):
            before, start = self.origins[origin]
            self.best = NearestMatch((*before, (index, start, end)), edits)

    def _continued(self, column: _Column, index: int, end: int) -> _Column:
        continued = column.copy()
        for position, cell in enumerate(column.tolist()):
            edits, origin = divmod(cell, _EDIT)
            if edits < _FAR:
                before, start = self.origins[origin]
                continued[position] = edits * _EDIT + self._origin((*before, (index, start, end)), 0)
        return continued

    def _origin(self, before: Match, start: int) -> int:
        self.origins.append((before, start))
        return len(self.origins) - 1


def split(line: Copy, reads: Sequence[str]) -> list[str]:
    """The parts of a line, in its own words and spaces, that stand in place of the texts that were read."""
    read, ends = "".join(reads), set(accumulate(map(len, reads)))
    rows = _rows(line, read)
    line_end, read_end = len(line.chars), len(read)
    cuts = {read_end: line_end}
    while line_end and read_end:
        distance = rows[read_end][line_end]
        if distance == rows[read_end - 1][line_end - 1] + (line.chars[line_end - 1] != read[read_end - 1]):
            line_end, read_end = line_end - 1, read_end - 1
        elif distance == rows[read_end][line_end - 1] + 1:
            line_end -= 1
        else:
            read_end -= 1
        if read_end in ends:
            cuts.setdefault(read_end, line_end)
    stops = [0, *(cuts.get(end, 0) for end in accumulate(map(len, reads)))]
    return [line.cut(start, end) for start, end in pairwise(stops)]


def differences(line: Copy, read: str) -> tuple[str, ...]:
    """The edits in words, such as "missing T at 4". Positions count from 1 in the line as written.

    ``read`` contains compared characters. Lists at most four edits, then the number of others.
    """
    rows = _rows(line, read)
    steps: list[str] = []
    line_end, read_end = len(line.chars), len(read)
    while line_end or read_end:
        distance = rows[read_end][line_end]
        # Prefer a gap to a match: of two equal letters, the second one is missing.
        if line_end and distance == rows[read_end][line_end - 1] + 1:
            line_end -= 1
            steps.append(f"missing {line.chars[line_end]} at {line.source[line_end] + 1}")
        elif read_end and distance == rows[read_end - 1][line_end] + 1:
            read_end -= 1
            position = line.source[line_end] if line_end < len(line.source) else len(line.text)
            steps.append(f"extra {read[read_end]} at {position + 1}")
        else:
            line_end, read_end = line_end - 1, read_end - 1
            if line.chars[line_end] != read[read_end]:
                steps.append(f"{read[read_end]} instead of {line.chars[line_end]} at {line.source[line_end] + 1}")
    steps.reverse()
    more = len(steps) - _MAX_DIFFERENCES
    return (*steps[:_MAX_DIFFERENCES], *([f"{more} more"] if more > 0 else []))


def _rows(line: Copy, read: str) -> list[list[int]]:
    """Row i has the distances of the first i characters that were read to each start of the line."""
    rows = [list(range(len(line.chars) + 1))]
    for char in read:
        before, row = rows[-1], [rows[-1][0] + 1]
        for position, expected in enumerate(line.chars):
            row.append(min(row[-1] + 1, before[position + 1] + 1, before[position] + (expected != char)))
        rows.append(row)
    return rows


def word_accuracy(expected: Sequence[str], read: Sequence[str]) -> float:
    """The share (0 to 1) of the words of the expected lines that were read, in any order; 1 is best.

    A word that is expected twice must be read twice. Additional words do not matter. Raises ``ValueError`` if the
    expected lines have no word.

    Source: the word accuracy of J. Chang et al., "OneIG-Bench: Omni-dimensional Nuanced Evaluation for Image
    Generation" (2025), for one image; LongText-Bench of Z. Geng et al., "X-Omni" (2025), reports it too.
    """
    required = Counter(words(expected))
    if not required:
        raise ValueError("the expected lines contain no words")
    return (required & Counter(words(read))).total() / required.total()


def normalized_edit_distance(expected: Sequence[str], read: Sequence[str]) -> float:
    """The edit distance between all expected and all read text over the length of the longer, from 0 (equal) to 1.

    Counts Levenshtein edits of characters, without case, punctuation and white space, in the order of the reader.
    Additional text counts.

    Source: the normalized edit distance of ICDAR's competitions, such as C. K. Chng et al., "ICDAR2019 Robust Reading
    Challenge on Arbitrary-Shaped Text" (2019), and of Y. Tuo et al., "AnyText: Multilingual Visual Text Generation and
    Editing" (2024). Both report 1 minus it.
    """
    expected_text, read_text = ("".join(words(lines)) for lines in (expected, read))
    longest = max(len(expected_text), len(read_text))
    return levenshtein(expected_text, read_text) / longest if longest else 0.0


def levenshtein(a: str, b: str) -> int:
    """The fewest characters to insert, delete or replace to turn one text into the other.

    Source: V. I. Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", Soviet Physics
    Doklady 10 (1966).
    """
    shorter, longer = sorted((a, b), key=len)
    codes = np.array([ord(char) for char in longer], dtype=np.int64)
    steps = np.arange(len(longer) + 1, dtype=np.int64)
    row = steps
    for number, char in enumerate(shorter, 1):
        changed = row[:-1] + (codes != ord(char))
        row = np.minimum(row + 1, np.concatenate(([number], changed)))
        row = np.minimum.accumulate(row - steps) + steps  # insertions, one after another
    return int(row[-1])
