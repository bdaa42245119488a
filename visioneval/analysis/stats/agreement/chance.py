"""Agreement beyond chance, with sources. Undefined results are NaN. Pure.

Ratings are finite numbers: category codes or values of a scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Level = Literal["nominal", "ordinal", "interval"]


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


def krippendorff_alpha(counts: ArrayLike, values: ArrayLike, level: Level, times: ArrayLike | None = None) -> float:
    """Krippendorff's alpha of ``counts``, shape ``(units, values)``: the ratings of each unit by value.

    ``times``, shape ``(units,)``, is how many units have these ratings; by default one.

    ``values``, shape ``(values,)``, are ascending; ``ordinal`` uses only their order, ``nominal`` only their identity.
    Ratings may be missing: units with fewer than two are ignored. At most 1; 0 is chance. NaN if no unit has two
    ratings, or if all ratings are equal.

    Source: K. Krippendorff, "Content Analysis" (2004), chapter 11; worked examples in his "Computing Krippendorff's
    alpha-reliability" (2011).
    """
    table = np.asarray(counts, dtype=float)
    weights = np.ones(len(table)) if times is None else np.asarray(times, dtype=float)
    is_shared = table.sum(axis=1) >= 2 if len(table) else np.zeros(0, dtype=bool)
    table, weights = table[is_shared], weights[is_shared]
    if not len(table):
        return np.nan
    weighted = table * (weights / (table.sum(axis=1) - 1))[:, None]
    coincidences = table.T @ weighted - np.diag(weighted.sum(axis=0))
    totals = coincidences.sum(axis=1)
    distances = _DISTANCES[level](np.asarray(values, dtype=float), totals)
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


def _nominal(values: Floats, totals: Floats) -> Floats:  # noqa: ARG001 - one signature for all
    return 1 - np.eye(len(values))


def _interval(values: Floats, totals: Floats) -> Floats:  # noqa: ARG001 - one signature for all
    return np.square(values[:, None] - values[None, :])


def _ordinal(values: Floats, totals: Floats) -> Floats:  # noqa: ARG001 - one signature for all
    """The number of ratings between two values, whose own ratings count half."""
    middle = np.cumsum(totals) - totals / 2
    return np.square(middle[:, None] - middle[None, :])


_DISTANCES: dict[Level, Callable[[Floats, Floats], Floats]] = {
    "nominal": _nominal,
    "interval": _interval,
    "ordinal": _ordinal,
}
