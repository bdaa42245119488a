"""The mean of scores that are added one at a time, with its interval over cases. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain, islice, repeat
from math import fsum
from typing import Any

from visioneval.analysis.stats.clusters import case_sums, mean_interval, rate_interval
from visioneval.suite.turns import chain_of
from visioneval.types import Frozen, Metric

_MOST_PARTS = 4096
_MOST_ROWS = 8192
"""Scores that are stored one by one before equal ones are counted together."""
_MOST_DISTINCT = 256
"""Distinct scores of a metric whose equal scores are worth counting together."""
RATE = Metric(type="bool")
"""The metric of a share: passed cells, or questions that scored 1."""


class Estimate(Frozen):
    """The mean of ``n`` values, or their rate if they are yes or no, with its 95 % interval over ``cases`` cases.

    ``value`` is ``null`` if nothing was measured. ``low`` and ``high`` are ``null`` too for the mean of a single case
    or of cases that are all equal, as their variance is unknown. ``unmeasured`` more values are missing.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    cases: int = 0
    unmeasured: int = 0


class CaseNumbers(dict[str, int]):
    """The number of each case id, in order of first use. Shared by all counters of a run to save memory.

    The turns of a case have one number: each edits the output of the one before, so they are not independent.
    """

    def __missing__(self, case_id: str) -> int:
        """Gives a new case the next number."""
        first = chain_of(case_id)
        self[case_id] = len(self) if first == case_id else self[first]
        return self[case_id]


class SampleNumbers(dict[tuple[str, str], int]):
    """The number of each case on each model run, whose samples differ by chance alone. Shared like ``CaseNumbers``."""

    def __missing__(self, names: tuple[str, str]) -> int:
        """Gives a new case and label the next number."""
        self[names] = len(self)
        return self[names]


def empty_array() -> array[float]:
    """An empty array of doubles."""
    return array("d")


def empty_case_array() -> array[int]:
    """An empty array of case numbers, at four bytes each."""
    return array("i")


class ExactSum:
    """A sum that does not depend on the order of its numbers, in memory that does not grow with them."""

    __slots__ = ("_parts", "count")

    def __init__(self) -> None:
        """The sum of no numbers."""
        self.count = 0
        self._parts = empty_array()

    def add(self, number: float) -> None:
        """Adds a number."""
        self.count += 1
        self._parts.append(number)
        if len(self._parts) >= _MOST_PARTS:
            self._parts = self._fewest_parts()

    def _fewest_parts(self) -> array[float]:
        """A few numbers with exactly the same sum: each is the rounded sum of what those before it leave."""
        parts, rest = empty_array(), self._parts
        while (part := fsum(rest)) or not parts:
            parts.append(part)
            rest.append(-part)
        return parts

    @property
    def value(self) -> float:
        """The sum, rounded once."""
        return fsum(self._parts)


class CountedRows:
    """Rows of numbers, a column at a time, in which equal rows are counted together once there are many.

    If the last column has more values than a scale has, they never are.
    """

    __slots__ = ("_columns", "_limit", "_times")

    def __init__(self, *columns: array[Any]) -> None:
        """Without rows, given empty columns. Subclasses append to each, and call ``_count_together`` at the limit."""
        self._columns = columns
        self._times: array[int] = array("q")
        """How often each of the first rows came; the others came once."""
        self._limit = _MOST_ROWS

    def _count_together(self) -> None:
        last = self._columns[-1]
        self._limit = 2 * len(last)
        if len(set(islice(last, _MOST_ROWS))) > _MOST_DISTINCT:
            return
        rows: dict[tuple[Any, ...], int] = {}
        for row, number in self._rows():
            rows[row] = rows.get(row, 0) + number
        for at, column in enumerate(self._columns):
            column[:] = array(column.typecode, (row[at] for row in rows))
        self._times = array("q", rows.values())
        self._limit = max(_MOST_ROWS, 2 * len(rows))

    def _rows(self) -> Iterator[tuple[tuple[Any, ...], int]]:
        """The rows, each with how often it came."""
        return zip(zip(*self._columns, strict=True), chain(self._times, repeat(1)), strict=False)

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self._columns[0]) - len(self._times) + sum(self._times)


class Scores(CountedRows):
    """Scores of one metric, each with the number of its case. Anything but a number is unmeasured.

    On a scale, memory grows with the cases and not with their samples: by 20 bytes for each case and each of its
    values. Of a metric with any numbers, each score takes 12 bytes.
    """

    __slots__ = ("_cases", "_values", "unmeasured")

    def __init__(self) -> None:
        """No scores."""
        self._cases, self._values = empty_case_array(), empty_array()
        super().__init__(self._cases, self._values)
        self.unmeasured = 0

    def add(self, score: object, case: int) -> None:
        """Counts a score."""
        if isinstance(score, (int, float)):
            self._values.append(score)
            self._cases.append(case)
            if len(self._values) >= self._limit:
                self._count_together()
        else:
            self.unmeasured += 1

    def values(self) -> Iterator[float]:
        """The measured scores, in no particular order."""
        return chain.from_iterable(repeat(value, number) for (_, value), number in self._rows())

    def by_case(self) -> dict[int, list[float]]:
        """The measured scores by the number of their case."""
        groups: dict[int, list[float]] = {}
        for (case, value), number in self._rows():
            groups.setdefault(case, []).extend(repeat(value, number))
        return groups

    def estimate(self, metric: Metric = RATE) -> Estimate:
        """Returns the mean with its interval."""
        n = self.n
        if not n:
            return Estimate(unmeasured=self.unmeasured)
        sums = case_sums(self.by_case())
        is_rate = metric.type == "bool"
        interval = rate_interval(sums) if is_rate else mean_interval(sums, metric.range or (None, None))
        return Estimate(
            value=fsum(self.values()) / n,
            low=interval and interval.low,
            high=interval and interval.high,
            n=n,
            cases=len(sums),
            unmeasured=self.unmeasured,
        )
