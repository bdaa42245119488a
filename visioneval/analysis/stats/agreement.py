"""Agreement beyond chance and its intervals over cases, with sources. Undefined results are NaN. Pure.

Ratings are finite numbers: category codes or values of a scale.

The interval of each number:

- accuracy (``agreement``): each case counts once (Wilson, exact where at most three cases differ)
- precision and recall of FAIL: as a rate, exact where at most three cases differ
- kappa, nominal alpha, Fleiss' kappa: intervals of observed and expected disagreement, combined; from 10 cases, 3 of
  them with another answer than the most common
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import atanh, exp, fsum, log, sqrt, tanh
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visioneval.analysis.stats.basic import Interval, Statistic, t_quantile
from visioneval.analysis.stats.correlation import PairwiseAccuracy
from visioneval.analysis.stats.intervals import CaseSums, cautious_interval, rare_event_interval
from visioneval.errors import count_of

Floats = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]
Rows = NDArray[np.intp]
MIN_GROUPS, MAX_GROUPS, MAX_ROWS = 20, 200, 2_000_000
"""With more cases than ``MAX_GROUPS``, groups of cases are left out. With many rows there are fewer groups, so that at
most about ``MAX_ROWS`` rows are evaluated in all."""
NOTHING = "nothing to compare"
ORDERS_NOTHING = "no interval: the accuracy is highest if the grader ties all pairs, so it orders none"
HARDLY_DIFFER = "no interval: the two sides agree, or differ, in nearly all cases"


def cohen_kappa(first: ArrayLike, second: ArrayLike) -> float:
    """Cohen's kappa of two columns of categories, each of shape ``(n,)``: -1..1, 0 is chance, 1 is full agreement.

    NaN without rows, or if all ratings are in one category.

    Source: J. Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20
    (1960).
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if not len(a):
        return np.nan
    categories, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
    share_a, share_b = (np.bincount(half, minlength=len(categories)) / len(a) for half in np.split(codes, 2))
    by_chance = float(share_a @ share_b)
    observed = float(np.mean(a == b))
    return np.nan if len(categories) == 1 else (observed - by_chance) / (1 - by_chance)


def quadratic_kappa(first: ArrayLike, second: ArrayLike) -> float:
    """Quadratic-weighted Cohen's kappa of two columns of numbers, shape ``(n,)``.

    Values need not be whole steps: means of several raters need no rounding. NaN as in ``cohen_kappa``.

    Sources: J. Cohen, "Weighted kappa: nominal scale agreement with provision for scaled disagreement or partial
    credit", Psychological Bulletin 70 (1968); computation from means and variances: J. L. Fleiss and J. Cohen,
    "The equivalence of weighted kappa and the intraclass correlation coefficient as measures of reliability",
    Educational and Psychological Measurement 33 (1973).
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if not len(a):
        return np.nan
    by_chance = float(a.var() + b.var() + (a.mean() - b.mean()) ** 2)
    return np.nan if by_chance == 0 else 1 - float(np.mean(np.square(a - b))) / by_chance


def fleiss_kappa(counts: ArrayLike) -> float:
    """Fleiss' kappa of ``counts``, shape ``(units, categories)``: the ratings of each unit by category.

    Every unit needs the same number of ratings, two or more. NaN without units, or if all ratings are in one category.

    Source: J. L. Fleiss, "Measuring nominal scale agreement among many raters", Psychological Bulletin 76 (1971).
    """
    table = np.asarray(counts, dtype=float)
    if not len(table):
        return np.nan
    raters = table[0].sum()
    if raters < 2 or (table.sum(axis=1) != raters).any():
        raise ValueError("every unit needs the same number of ratings, two or more")
    observed = float(np.mean((np.square(table).sum(axis=1) - raters) / (raters * (raters - 1))))
    by_chance = float(np.square(table.sum(axis=0) / table.sum()).sum())
    return np.nan if by_chance == 1 else (observed - by_chance) / (1 - by_chance)


def krippendorff_alpha(counts: ArrayLike, values: ArrayLike, level: Level) -> float:
    """Krippendorff's alpha of ``counts``, shape ``(units, values)``: the ratings of each unit by value.

    ``values``, shape ``(values,)``, are ascending; ``ordinal`` uses only their order, ``nominal`` only their identity.
    Ratings may be missing: units with fewer than two are ignored. At most 1; 0 is chance. NaN if no unit has two
    ratings, or if all ratings are equal.

    Source: K. Krippendorff, "Content Analysis" (2004), chapter 11; worked examples in his "Computing Krippendorff's
    alpha-reliability" (2011).
    """
    table = np.asarray(counts, dtype=float)
    table = table[table.sum(axis=1) >= 2] if len(table) else table
    if not len(table):
        return np.nan
    weighted = table / (table.sum(axis=1) - 1)[:, None]
    coincidences = table.T @ weighted - np.diag(weighted.sum(axis=0))
    totals = coincidences.sum(axis=1)
    # the ordinal distance is the number of ratings between two values, whose own ratings count half
    ends = np.cumsum(totals) - totals / 2 if level == "ordinal" else np.asarray(values, dtype=float)
    distances = 1 - np.eye(len(ends)) if level == "nominal" else np.square(ends[:, None] - ends[None, :])
    by_chance = float(totals @ distances @ totals)
    if by_chance == 0:
        return np.nan
    return 1 - (float(totals.sum()) - 1) * float((coincidences * distances).sum()) / by_chance


def interval_alpha(sizes: ArrayLike, sums: ArrayLike, squares: ArrayLike) -> float:
    """Krippendorff's alpha at the interval level, from the moments of each unit's ratings, each of shape ``(units,)``.

    ``sizes`` are the numbers of ratings, ``sums`` the sums of their values and ``squares`` those of their squares. The
    same as ``krippendorff_alpha``, in memory that does not grow with the number of distinct values. For ratings of 0
    and 1, it is also the nominal alpha. NaN as in ``krippendorff_alpha``.

    Source: as ``krippendorff_alpha``; the sum of the squared differences of all pairs of m values is m times the sum
    of their squares, minus the square of their sum.
    """
    n, total, square = (np.asarray(column, dtype=float) for column in (sizes, sums, squares))
    shared = n >= 2
    n, total, square = n[shared], total[shared], square[shared]
    if not len(n):
        return np.nan
    ratings = float(n.sum())
    by_chance = ratings * float(square.sum()) - float(total.sum()) ** 2
    if by_chance <= 1e-12 * ratings * float(square.sum()):
        return np.nan
    observed = float(((n * square - np.square(total)) / (n - 1)).sum())
    return 1 - (ratings - 1) * observed / by_chance


def chance_corrected_interval(
    disagreement: CaseSums, first: Floats, second: Floats, correction: float = 1.0
) -> Interval | None:
    """The 95 % interval of ``1 - D / E``, the observed disagreement over that expected by chance, within -1..1.

    ``disagreement`` are the sums and numbers of the disagreements (0..1) of each case, ``first`` and ``second`` the
    counts of the categories on each side, shape ``(cases, categories)``; the same twice for interchangeable raters.
    ``correction`` multiplies E. Combines the interval of D, a rate, with that of E, a jackknife over cases on the logit
    scale, as if both were independent; as D raises E, that is on the safe side. Complete agreement has an interval too.
    ``None`` if E is 0 or 1 without one of the cases.

    Source: A. Donner and G. Y. Zou, "Closed-form confidence intervals for functions of the normal mean and standard
    deviation", Statistical Methods in Medical Research 21 (2012), for a ratio. Coverage:
    ``tests/calibration/agreement.py``.
    """
    observed = rare_event_interval(disagreement)
    chance = _chance_interval(first, second)
    if observed is None or chance is None:
        return None
    rate = fsum(total for total, _ in disagreement) / sum(count for _, count in disagreement)
    expected = float(_by_chance(first.sum(axis=0), second.sum(axis=0))) * correction
    low, high = _ratio_interval(rate, expected, observed, (chance.low * correction, chance.high * correction))
    return Interval(max(-1.0, 1 - high), 1 - low)


def _by_chance(first: Floats, second: Floats) -> Floats:
    """The share of different categories if both sides choose independently, along the last axis."""
    shares = [side / side.sum(axis=-1, keepdims=True) for side in (first, second)]
    return np.asarray(1 - (shares[0] * shares[1]).sum(axis=-1), dtype=float)


def _chance_interval(first: Floats, second: Floats) -> Interval | None:
    number = len(first)
    totals = first.sum(axis=0), second.sum(axis=0)
    rest = totals[0] - first, totals[1] - second
    if number < 2 or min(side.sum(axis=1).min() for side in rest) <= 0:
        return None
    value, values = float(_by_chance(*totals)), _by_chance(*rest)
    if not 0 < value < 1 or not bool(((values > 1e-12) & (values < 1 - 1e-12)).all()):
        return None
    logits = np.log(values / (1 - values))
    half = t_quantile(0.975, number - 1) * sqrt((number - 1) * float(np.var(logits)))
    middle = log(value / (1 - value))
    return Interval(1 / (1 + exp(half - middle)), 1 / (1 + exp(-half - middle)))


def _ratio_interval(d: float, e: float, observed: Interval, chance: tuple[float, float]) -> tuple[float, float]:
    """The interval of ``d / e`` from those of both. The lower bound is written without a difference of roots."""
    low, high = chance
    square = (d * e) ** 2
    upper_root = sqrt(max(0.0, square - observed.high * low * (2 * d - observed.high) * (2 * e - low)))
    upper = (d * e + upper_root) / (low * (2 * e - low))
    if d == 0:
        return 0.0, upper
    least = observed.low * (2 * d - observed.low)
    return max(0.0, least / (d * e + sqrt(max(0.0, square - least * high * (2 * e - high))))), upper


def jackknife_interval(statistic: Callable[[Rows], float], cases: NDArray[np.intp]) -> Interval | None:
    """The 95 % interval of a coefficient in -1..1. ``statistic`` takes the numbers of the rows to use.

    ``cases`` are the case numbers of all rows, from 0, shape ``(rows,)``. Leaves out one case at a time, on Fisher's
    scale (atanh). The degrees of freedom follow from the kurtosis of the leave-one-out values: where few cases decide
    the variance, it is known badly and the interval is wide. ``None`` for fewer than two cases, or if the coefficient
    is undefined or exactly -1 or 1 with all rows or without one of the cases.

    Source: R. G. Miller, "The jackknife: a review", Biometrika 61 (1974); degrees of freedom after F. E. Satterthwaite,
    "An approximate distribution of estimates of variance components", Biometrics Bulletin 2 (1946), from the variance
    of a sample variance, halved because small samples underestimate their kurtosis. Coverage:
    ``tests/calibration/agreement.py``.
    """
    number = int(cases.max(initial=-1)) + 1
    if number < 2:
        return None
    number = min(number, MAX_GROUPS, max(MIN_GROUPS, MAX_ROWS // len(cases)))
    groups = cases % number
    values = np.asarray([statistic(np.flatnonzero(groups != group)) for group in range(number)])
    value = statistic(np.arange(len(cases)))
    if not (abs(value) < 1 and bool((np.abs(values) < 1).all())):
        return None
    deviations = np.arctanh(values)
    deviations -= deviations.mean()
    variance = float(np.mean(deviations**2))
    if variance <= 1e-24:
        return None
    kurtosis = float(np.mean(deviations**4)) / variance**2
    freedom = int(max(1, min(number - 1, number / max(kurtosis - 1, 1e-9))))
    half = t_quantile(0.975, freedom) * sqrt((number - 1) * variance)
    return Interval(tanh(atanh(value) - half), tanh(atanh(value) + half))


@dataclass(frozen=True, slots=True)
class Needed:
    """The fewest cases for an interval, and of these the fewest with another answer than the most common one."""

    cases: int
    others: int

    def problem(self, cases: Rows, is_other: NDArray[np.bool_]) -> str | None:
        """Why there are too few cases. ``is_other`` marks the rows with another answer, shape ``(rows,)``."""
        number, others = len(np.unique(cases)), len(np.unique(cases[is_other]))
        if number < self.cases:
            return f"no interval: {count_of(number, 'case')}, {self.cases} are needed"
        if others < self.others:
            rarer = f"{count_of(others, 'case')} with another answer than the most common one"
            return f"no interval: {rarer}, {self.others} are needed"
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
    first_counts, second_counts = (_table_by_case(side[:, None] == categories, numbers) for side in (a, b))
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
    by_case = _table_by_case(counts, numbers)
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


def _table_by_case(rows: NDArray[Any], numbers: Rows) -> Floats:
    """The sums of the rows of each case, in the order of their ``numbers``."""
    table = np.zeros((int(numbers.max()) + 1, rows.shape[1]))
    np.add.at(table, numbers, rows)
    return table


def _measure(value: float, n: int, interval: Interval | None) -> Statistic:
    if interval is None:
        return Statistic(value=value, n=n, note=HARDLY_DIFFER)
    return Statistic(value=value, low=min(value, interval.low), high=max(value, interval.high), n=n)


def _is_other(first: Floats, second: Floats) -> NDArray[np.bool_]:
    values, times = np.unique(np.concatenate([first, second]), return_counts=True)
    most_common = values[times.argmax()]
    return np.asarray((first != most_common) | (second != most_common), dtype=bool)
