"""How far what was read is from a line of copy: the nearest reading, and the characters that differ.

The distance is Levenshtein's (1966): the fewest characters to insert, delete or replace. The search for the
nearest stretch of a text is Sellers' (1980), on stretches that begin and end at edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from visioneval.graders.text.copy_match import Copy, Match, Page

_MAX_DIFFERENCES = 4
_ONE = 1 << 32
_FAR = 1 << 20

_Column = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Near:
    """The stretch of the page that is nearest to a line. ``edits`` is less than the line's length."""

    match: Match
    edits: int

    def close(self, line: Copy) -> bool:
        """Whether a person would call this the line gone wrong, and not another text."""
        return 2 * self.edits <= len(line.chars)


def nearest(page: Page, line: Copy, taken: AbstractSet[tuple[int, int]]) -> Near | None:
    """The free stretch with the fewest edits to ``line``; ``None`` where nothing is nearer than no text.

    ``taken`` are the characters (reading, place) that belong to other lines.
    """
    search = _NearestSearch(page, line.chars, taken)
    for index in _in_order(page.follows):
        search.read(index)
    return search.best


def _in_order(follows: Sequence[Sequence[int]]) -> list[int]:
    """The readings, each after those that it may follow."""
    before: dict[int, list[int]] = {index: [] for index in range(len(follows))}
    for index, after in enumerate(follows):
        for other in after:
            before[other].append(index)
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError:
        return list(before)


class _NearestSearch:
    """Sellers' column of distances, carried from character to character and from reading to reading.

    ``column[i]`` is the least distance of ``i`` characters wanted to a stretch that ends here, times
    ``_ONE``, plus the number of that stretch's origin, so that one minimum keeps both.
    """

    def __init__(self, page: Page, wanted: str, taken: AbstractSet[tuple[int, int]]) -> None:
        self.page, self.taken = page, taken
        self.wanted = np.array([ord(char) for char in wanted], dtype=np.int64)
        self.ladder = np.arange(len(wanted) + 1, dtype=np.int64) * _ONE
        self.nothing = self.ladder + _FAR * _ONE
        self.origins: list[tuple[Match, int]] = []
        self.carried: dict[int, _Column] = {}
        self.best: Near | None = None

    def read(self, index: int) -> None:
        """Goes through one reading, and hands its last column to the readings that may follow."""
        chars, edges = self.page.copies[index].chars, self.page.edges[index]
        column = self.carried.pop(index, self.nothing)
        for place, char in enumerate(chars):
            if (index, place) in self.taken:
                column = self.nothing
                continue
            if place in edges:
                column = np.minimum(column, self.ladder + self._origin((), place))
            column = self._step(column, char)
            if place + 1 in edges:
                self._note(index, place + 1, int(column[-1]))
        for after in self.page.follows[index]:
            onward = self._moved_on(column, index, len(chars))
            self.carried[after] = np.minimum(onward, self.carried.get(after, self.nothing))

    def _step(self, column: _Column, char: str) -> _Column:
        changed = column[:-1] + (self.wanted != ord(char)) * _ONE
        column = np.minimum(column + _ONE, np.concatenate((column[:1] + _ONE, changed)))
        return np.minimum.accumulate(column - self.ladder) + self.ladder

    def _note(self, index: int, end: int, cell: int) -> None:
        edits, origin = divmod(cell, _ONE)
        if edits < (len(self.wanted) if self.best is None else self.best.edits):
            before, start = self.origins[origin]
            self.best = Near((*before, (index, start, end)), edits)

    def _moved_on(self, column: _Column, index: int, end: int) -> _Column:
        onward = column.copy()
        for place, cell in enumerate(column.tolist()):
            edits, origin = divmod(cell, _ONE)
            if edits < _FAR:
                before, start = self.origins[origin]
                onward[place] = edits * _ONE + self._origin((*before, (index, start, end)), 0)
        return onward

    def _origin(self, before: Match, start: int) -> int:
        self.origins.append((before, start))
        return len(self.origins) - 1


def _next_row(row: list[int], wanted: str, char: str) -> list[int]:
    """One more character of the reading: ``row[i]`` is its distance to the first ``i`` characters wanted."""
    following = [row[0] + 1]
    for place, want in enumerate(wanted):
        following.append(min(following[-1] + 1, row[place + 1] + 1, row[place] + (want != char)))
    return following


def differences(line: Copy, read: str) -> tuple[str, ...]:
    """What to change in words, such as "missing T at 4". Places count from 1 in the line as it was written.

    ``read`` is compared characters. At most four are named, then how many more.
    """
    steps = tuple(_steps(line, read))
    if len(steps) <= _MAX_DIFFERENCES:
        return steps
    return (*steps[:_MAX_DIFFERENCES], f"{len(steps) - _MAX_DIFFERENCES} more")


def _steps(line: Copy, read: str) -> list[str]:
    rows = [list(range(len(line.chars) + 1))]
    for char in read:
        rows.append(_next_row(rows[-1], line.chars, char))
    steps: list[str] = []
    at, of = len(line.chars), len(read)
    while at or of:
        here = rows[of][at]
        # A gap before a match: of two equal letters the second is then the one that is missing.
        if at and here == rows[of][at - 1] + 1:
            at -= 1
            steps.append(f"missing {line.chars[at]} at {line.source[at] + 1}")
        elif of and here == rows[of - 1][at] + 1:
            of -= 1
            steps.append(f"extra {read[of]} at {_place(line, at)}")
        else:
            at, of = at - 1, of - 1
            if line.chars[at] != read[of]:
                steps.append(f"{read[of]} instead of {line.chars[at]} at {line.source[at] + 1}")
    return steps[::-1]


def _place(line: Copy, at: int) -> int:
    """Where in the written line something stands that it does not have."""
    return (line.source[at] if at < len(line.source) else len(line.text)) + 1
