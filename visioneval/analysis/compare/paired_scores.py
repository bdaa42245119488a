"""Scores of both sides that are added pair by pair, and become sums by case. Pure.

Sums are exact, so that they do not depend on the order of the pairs.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any, NamedTuple

from visioneval.records.cell_names import view_of
from visioneval.types import Score

if TYPE_CHECKING:
    import numpy as np

_SAFE = 1e6
"""Whole numbers up to this size have exact sums of floats, however many there are."""


class PairedSums(NamedTuple):
    """For each case: the number of its pairs, the sum of the scores of A, and that of B's differences from A."""

    pairs: Sequence[int]
    before: Sequence[float]
    change: Sequence[float]


class PairedScores:
    """The scores of pairs, in memory that grows with the cases: by 24 bytes for each, if its pairs come in a row.

    ``higher`` and ``lower`` count pairs in which B is higher or lower, ``unmeasured`` those that lack a score.
    """

    __slots__ = ("_after", "_before", "_case", "_cases", "_pairs", "_start", "higher", "lower", "unmeasured")

    def __init__(self) -> None:
        """No scores."""
        self.higher = self.lower = self.unmeasured = 0
        self._cases, self._pairs = array("i"), array("i")
        self._before, self._after = array("d"), array("d")
        self._case, self._start = -1, 0
        """The last case, and the first of its rows in these columns."""

    def add(self, case: int, a: Score, b: Score) -> None:
        """Adds the scores of a pair. ``case`` is the number of its case, 0 or more."""
        if a is None or b is None:
            self.unmeasured += 1
            return
        if a != b:
            if b > a:
                self.higher += 1
            else:
                self.lower += 1
        if case != self._case:
            self._close(case)
        self._cases.append(case)
        self._pairs.append(1)
        self._before.append(a)
        self._after.append(b)

    def _close(self, case: int) -> None:
        """Replaces the rows of the last case by their sums, often a single row, and begins a case."""
        start, self._case = self._start, case
        pairs = len(self._cases) - start
        if pairs > 1:
            before, after = (_exact_parts(column[start:]) for column in (self._before, self._after))
            rows = max(len(before), len(after))
            self._cases[start:] = array("i", [self._cases[start]] * rows)
            self._pairs[start:] = array("i", [pairs, *[0] * (rows - 1)])
            for column, parts in ((self._before, before), (self._after, after)):
                column[start:] = array("d", [*parts, *[0.0] * (rows - len(parts))])
        self._start = len(self._cases)

    def numbers(self) -> list[int]:
        """The numbers of the cases, in the order of their sums."""
        return sorted(set(self._cases))

    def by_case(self) -> PairedSums:
        """The sums of each case, rounded once."""
        import numpy as np

        self._close(-1)
        cases, pairs = view_of(self._cases), view_of(self._pairs)
        before, after = np.frombuffer(self._before), np.frombuffer(self._after)
        order = np.argsort(cases, kind="stable")
        first = np.flatnonzero(np.diff(cases[order], prepend=-1))
        if not len(first):
            return PairedSums((), (), ())
        number = np.add.reduceat(pairs[order], first)
        if len(first) < len(order) and not (_is_safe(before) and _is_safe(after)):
            ends = [*first[1:].tolist(), len(order)]
            groups = [order[start:end] for start, end in zip(first.tolist(), ends, strict=True)]
            sums = [fsum(before[rows].tolist()) for rows in groups]
            changes = [fsum([*after[rows].tolist(), *(-before[rows]).tolist()]) for rows in groups]
            return PairedSums(number.tolist(), sums, changes)
        total = np.add.reduceat(before[order], first)
        change = np.add.reduceat(after[order], first) - total
        return PairedSums(number.tolist(), total.tolist(), change.tolist())


def _is_safe(values: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Whether sums of these numbers are exact."""
    import numpy as np

    return bool((np.abs(values) <= _SAFE).all() and (np.rint(values) == values).all())


def _exact_parts(values: Iterable[float]) -> list[float]:
    """A few numbers with exactly the same sum, most often a single one."""
    rest = list(values)
    parts = [fsum(rest)]
    rest.append(-parts[0])
    while part := fsum(rest):
        parts.append(part)
        rest.append(-part)
    return parts
