"""The mean of scores that are added one at a time, with its interval over cases. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping
from math import fsum
from sys import intern

from visioneval.analysis.stats.basic import Interval, ends, grouped
from visioneval.analysis.stats.intervals import LEVEL, CaseSums, case_sums, mean_interval, rate_interval
from visioneval.suite.filters import chain_of
from visioneval.types import Frozen, Metric, Score, Verdict

RATE = Metric(type="bool")
"""The metric of a share: passed cells, or questions that scored 1."""
WORD_SHARE = Metric(type="bool", better="none")
"""The metric of the share of a word, of a metric that is one word of a list."""


def counted_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Metrics with a mean or a rate. One of words has the share of each word instead, such as ``style: flat``."""
    counted: dict[str, Metric] = {}
    for name, metric in metrics.items():
        shares = metric.share_names(name)
        counted |= dict.fromkeys(shares.values(), WORD_SHARE) if shares else {name: metric}
    return counted


def word_shares(metrics: Mapping[str, Metric]) -> dict[str, dict[str, str]]:
    """The names of the shares of each metric of words, by word."""
    return {name: metric.share_names(name) for name, metric in metrics.items() if metric.choices}


def number_of(score: Score) -> float | None:
    """A score as a number, a yes as 1; ``None`` without one, and for a word."""
    return None if score is None or isinstance(score, str) else float(score)


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


def case_of(case_id: str) -> str:
    """The case of a cell: all turns of a case are one, as each edits the output of the one before.

    Equal names are one string, so that a score of a cell takes only a reference to it.
    """
    return intern(chain_of(case_id))


class Scores:
    """Scores of one metric, each with its case, at 16 bytes a score. Anything but a number is unmeasured."""

    __slots__ = ("_cases", "unmeasured", "values")

    def __init__(self) -> None:
        """No scores."""
        self.values = array("d")
        self._cases: list[Hashable] = []
        self.unmeasured = 0

    def add(self, score: object, case: Hashable) -> None:
        """Counts a score."""
        if isinstance(score, (int, float)):
            self.values.append(score)
            self._cases.append(case)
        else:
            self.unmeasured += 1

    @property
    def n(self) -> int:
        """The number of measured scores."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """The mean of the measured scores. Raises ``ZeroDivisionError`` without scores."""
        return fsum(self.values) / len(self.values)

    def by_case(self) -> dict[Hashable, list[float]]:
        """The measured scores of each case, in the order of their first scores."""
        return grouped(zip(self._cases, self.values, strict=True))

    def estimate(self, metric: Metric = RATE) -> Estimate:
        """Returns the mean with its interval."""
        if not self.n:
            return Estimate(unmeasured=self.unmeasured)
        (low, high), cases = ends(self.interval(metric)), len(set(self._cases))
        return Estimate(value=self.mean, low=low, high=high, n=self.n, cases=cases, unmeasured=self.unmeasured)

    def interval(self, metric: Metric, level: float = LEVEL) -> Interval | None:
        """The interval of the mean over cases, at the ``level`` of each bound; ``None`` if it is unknown."""
        return interval_of(case_sums(self.by_case()), metric, level)


def interval_of(sums: CaseSums, metric: Metric, level: float = LEVEL) -> Interval | None:
    """The interval of the mean of a metric, from the sum and the number of the values of each case."""
    if metric.type == "bool":
        return rate_interval(sums, level=level)
    return mean_interval(sums, metric.range or (None, None), level)


def verdict_rate(verdicts: Iterable[tuple[str, Verdict]]) -> Estimate:
    """The pass rate of cells, each given by its case and verdict."""
    passes = Scores()
    for case, verdict in verdicts:
        passes.add(verdict.passed, case_of(case))
    return passes.estimate()
