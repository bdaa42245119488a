"""The mean of scores that are added one at a time, with its interval over cases. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import fsum

from visioneval.analysis.stats.clusters import by_case, case_sums, mean_interval, rate_interval
from visioneval.suite.turns import chain_of
from visioneval.types import Frozen, Metric

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
        chain = chain_of(case_id)
        self[case_id] = len(self) if chain == case_id else self[chain]
        return self[case_id]


def empty_array() -> array[float]:
    """An empty array of doubles. An order-independent sum needs every number, at eight bytes each."""
    return array("d")


def empty_case_array() -> array[int]:
    """An empty array of case numbers, at four bytes each."""
    return array("i")


@dataclass(slots=True)
class Scores:
    """Scores of one metric, each with the number of its case. Anything but a number is unmeasured."""

    measured: array[float] = field(default_factory=empty_array)
    cases: array[int] = field(default_factory=empty_case_array)
    unmeasured: int = 0

    def add(self, score: object, case: int) -> None:
        """Counts a score."""
        if isinstance(score, (int, float)):
            self.measured.append(float(score))
            self.cases.append(case)
        else:
            self.unmeasured += 1

    def estimate(self, metric: Metric = RATE) -> Estimate:
        """Returns the mean with its interval."""
        n = len(self.measured)
        if not n:
            return Estimate(unmeasured=self.unmeasured)
        sums = case_sums(by_case(self.measured, self.cases))
        is_rate = metric.type == "bool"
        interval = rate_interval(sums) if is_rate else mean_interval(sums, metric.range or (None, None))
        return Estimate(
            value=fsum(self.measured) / n,
            low=interval and interval.low,
            high=interval and interval.high,
            n=n,
            cases=len(sums),
            unmeasured=self.unmeasured,
        )
