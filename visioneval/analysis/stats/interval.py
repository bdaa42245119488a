"""Statistics of labeled cells with their intervals over cases, or a note why there is none.

An interval is given only where simulations show that it holds (``tests/calibration/agreement.py``): too few cases, or
too few that differ from the most common answer, have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visioneval.analysis.stats.agreement.chance import Level, cohen_kappa, krippendorff_alpha
from visioneval.analysis.stats.agreement.chance_interval import chance_corrected_interval
from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.jackknife import Rows, jackknife_interval
from visioneval.analysis.stats.measure import Statistic
from visioneval.analysis.stats.ranks.pairwise_accuracy import PairwiseAccuracy
from visioneval.analysis.stats.rare_events import cautious_interval

Floats = NDArray[np.float64]
NOTHING = "nothing to compare"
ORDERS_NOTHING = "no interval: the accuracy is highest if the grader ties all pairs, so it orders none"
HARDLY_DIFFER = "no interval: the two sides agree, or differ, in nearly all cases"


@dataclass(frozen=True, slots=True)
class Needed:
    """The fewest cases for an interval, and of these the fewest with another answer than the most common one."""

    cases: int
    others: int

    def problem(self, cases: Rows, is_other: NDArray[np.bool_]) -> str | None:
        """Why there are too few cases. ``is_other`` marks the rows with another answer, shape ``(rows,)``."""
        number, others = len(np.unique(cases)), len(np.unique(cases[is_other]))
        if number < self.cases:
            return f"no interval: {_cases(number)}, {self.cases} are needed"
        if others < self.others:
            return (
                f"no interval: {_cases(others)} with another answer than the most common one, {self.others} are needed"
            )
        return None


FOR_CATEGORIES, FOR_NUMBERS = Needed(10, 3), Needed(20, 5)


def rate_measure(values: ArrayLike, cases: Sequence[Any], *, undefined: str = NOTHING) -> Statistic:
    """The mean of values in 0..1; ``cases`` are the cases of the rows. ``undefined`` is the note if there are none.

    The interval counts each case once (``cautious_interval``).
    """
    column, numbers = np.asarray(values, dtype=float), case_numbers(cases)
    if not len(column):
        return Statistic(note=undefined)
    value, n = float(column.mean()), len(column)
    if numbers.max() == 0:
        return Statistic(value=value, n=n, note="no interval: 1 case, 2 are needed")
    return _measure(value, n, cautious_interval(sums_by_case(column, numbers)))


def kappa_measure(first: ArrayLike, second: ArrayLike, cases: Sequence[Any], *, undefined: str) -> Statistic:
    """Cohen's kappa of two columns of categories. ``undefined`` notes that all ratings are in one category."""
    a, b, numbers = np.asarray(first, dtype=float), np.asarray(second, dtype=float), case_numbers(cases)
    value = cohen_kappa(a, b)
    if np.isnan(value):
        return Statistic(n=len(a), note=undefined if len(a) else NOTHING)
    problem = FOR_CATEGORIES.problem(numbers, _is_other(a, b))
    if problem:
        return Statistic(value=value, n=len(a), note=problem)
    categories = np.unique(np.concatenate([a, b]))
    first_counts, second_counts = (
        _counts_by_case(np.searchsorted(categories, side), len(categories), numbers) for side in (a, b)
    )
    disagreement = sums_by_case((a != b).astype(float), numbers)
    return _measure(value, len(a), chance_corrected_interval(disagreement, first_counts, second_counts))


def coefficient_measure(
    statistic: Callable[[Floats, Floats], float],
    first: ArrayLike,
    second: ArrayLike,
    cases: Sequence[Any],
    *,
    undefined: str,
) -> Statistic:
    """A coefficient in -1..1 of two columns of numbers. ``undefined`` notes that it is NaN although there are rows."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if not len(a):
        return Statistic(note=NOTHING)
    return row_measure(lambda rows: statistic(a[rows], b[rows]), _is_other(a, b), cases, undefined=undefined)


def row_measure(
    statistic: Callable[[Rows], float], is_other: NDArray[np.bool_], cases: Sequence[Any], *, undefined: str
) -> Statistic:
    """A coefficient in -1..1 that is computed from row numbers, of which there is at least one.

    ``is_other`` marks the rows with another answer than the most common one, shape ``(rows,)``.
    """
    n, numbers = len(cases), case_numbers(cases)
    value = statistic(np.arange(n))
    if np.isnan(value):
        return Statistic(n=n, note=undefined)
    problem = FOR_NUMBERS.problem(numbers, is_other)
    if problem:
        return Statistic(value=value, n=n, note=problem)
    return _measure(value, n, jackknife_interval(statistic, numbers))


def pairwise_accuracy_measure(
    people: ArrayLike, metric: ArrayLike, cases: Sequence[Any], *, undefined: str
) -> Statistic:
    """Tie-calibrated pairwise accuracy, 0..1, with its interval. It has none if the best threshold ties every pair: a
    metric that orders nothing is then as good, and the accuracy is the share of pairs that people tie."""
    a, b = np.asarray(people, dtype=float), np.asarray(metric, dtype=float)
    if not len(a):
        return Statistic(note=NOTHING)
    pairs = PairwiseAccuracy(a, b)
    if not pairs.orders and not np.isnan(pairs.threshold):
        return Statistic(value=pairs.of(np.arange(len(a))), n=len(a), note=ORDERS_NOTHING)
    signed = row_measure(lambda rows: 2 * pairs.of(rows) - 1, _is_other(a, b), cases, undefined=undefined)
    shares = {name: None if end is None else (end + 1) / 2 for name, end in signed if name in ("value", "low", "high")}
    return signed.model_copy(update=shares)


def category_measure(
    value: float, counts: NDArray[np.int64], cases: Sequence[Any], *, correction: float, undefined: str
) -> Statistic:
    """A chance-corrected agreement of interchangeable raters, with its interval.

    ``counts`` are the ratings of each item by category, shape ``(items, categories)``, two or more per item.
    ``correction`` multiplies the disagreement by chance of all ratings together.
    """
    n, numbers = len(counts), case_numbers(cases)
    if np.isnan(value):
        return Statistic(n=n, note=undefined)
    sizes = counts.sum(axis=1)
    problem = FOR_CATEGORIES.problem(numbers, sizes > counts[:, counts.sum(axis=0).argmax()])
    if problem:
        return Statistic(value=value, n=n, note=problem)
    disagreement = sizes - (counts * (counts - 1)).sum(axis=1) / (sizes - 1)
    by_case = np.zeros((int(numbers.max()) + 1, counts.shape[1]))
    np.add.at(by_case, numbers, counts)
    sums = np.bincount(numbers, weights=disagreement)
    rates = [(float(total), int(size)) for total, size in zip(sums, by_case.sum(axis=1), strict=True)]
    return _measure(value, n, chance_corrected_interval(rates, by_case, by_case, correction))


def alpha_measure(
    counts: NDArray[np.int64], values: Floats, level: Level, cases: Sequence[Any], *, undefined: str
) -> Statistic:
    """Krippendorff's alpha. ``counts`` and ``values`` are as for ``krippendorff_alpha``: one item or more, and two or
    more ratings of each."""
    if level == "nominal":
        ratings = int(counts.sum())
        value = krippendorff_alpha(counts, values, level)
        return category_measure(value, counts, cases, correction=ratings / (ratings - 1), undefined=undefined)
    is_other = counts.sum(axis=1) > counts[:, counts.sum(axis=0).argmax()]
    return row_measure(
        lambda rows: krippendorff_alpha(counts[rows], values, level), is_other, cases, undefined=undefined
    )


def case_numbers(cases: Sequence[Any]) -> Rows:
    """The number of each row's case, from 0 in order of first appearance."""
    numbers: dict[Any, int] = {}
    return np.asarray([numbers.setdefault(case, len(numbers)) for case in cases], dtype=np.intp)


def sums_by_case(values: Floats, numbers: Rows) -> list[tuple[float, int]]:
    """The sum and the number of the values of each case, in the order of their ``numbers``."""
    sums, counts = np.bincount(numbers, weights=values), np.bincount(numbers)
    return [(float(total), int(count)) for total, count in zip(sums, counts, strict=True)]


def _measure(value: float, n: int, interval: Interval | None) -> Statistic:
    if interval is None:
        return Statistic(value=value, n=n, note=HARDLY_DIFFER)
    return Statistic(value=value, low=min(value, interval.low), high=max(value, interval.high), n=n)


def _is_other(first: Floats, second: Floats) -> NDArray[np.bool_]:
    values, times = np.unique(np.concatenate([first, second]), return_counts=True)
    most_common = values[times.argmax()]
    return np.asarray((first != most_common) | (second != most_common), dtype=bool)


def _counts_by_case(codes: Rows, categories: int, numbers: Rows) -> Floats:
    cells = np.bincount(numbers * categories + codes, minlength=(int(numbers.max()) + 1) * categories)
    return np.asarray(cells.reshape(-1, categories), dtype=float)


def _cases(number: int) -> str:
    return f"{number} case{'s' * (number != 1)}"
