"""Wilcoxon's signed-rank test. Pure."""

from __future__ import annotations

from math import erfc, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

EXACT = 100
"""Up to this many differences the exact distribution is used, beyond it the normal one."""
_DIGITS = 10


def signed_rank(differences: ArrayLike) -> float:
    """The two-sided p-value of Wilcoxon's signed-rank test of paired differences, shape ``(n,)``. 1 if all are 0.

    Ignores zeros; ties share their mean rank. Exact over all signs up to ``EXACT`` differences, ties included, then by
    the normal approximation with a tie correction. Differences are rounded to ten digits first, so that 0.3 - 0.2 and
    0.2 - 0.1 tie. Cells of a case are not independent: pass one mean difference per case.

    Source: F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945); ties as W. J.
    Conover, "Practical Nonparametric Statistics" (1999), section 5.7.
    """
    values = np.round(np.asarray(differences, dtype=float), _DIGITS)
    values = values[values != 0]
    if not len(values):
        return 1.0
    doubled = _doubled_ranks(np.abs(values))
    positive = int(doubled[values > 0].sum())
    if len(values) <= EXACT:
        return _exact(doubled, positive)
    mean, spread = doubled.sum() / 2, sqrt(float(np.square(doubled.astype(float)).sum()) / 4)
    return erfc(abs(positive - mean) / spread / sqrt(2))


def _doubled_ranks(sizes: NDArray[np.float64]) -> NDArray[np.int64]:
    """Twice the mean ranks, which are whole numbers even with ties."""
    _, kind, times = np.unique(sizes, return_inverse=True, return_counts=True)
    last = np.cumsum(times)
    return np.asarray((2 * last - times + 1)[kind], dtype=np.int64)


def _exact(doubled: NDArray[np.int64], observed: int) -> float:
    """The share of all signs whose rank sum is at least as far from the middle as the observed one."""
    total = int(doubled.sum())
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(ways)
        shifted[rank:] = ways[: total + 1 - rank]
        ways = (ways + shifted) / 2
    return min(1.0, 2 * float(ways[: min(observed, total - observed) + 1].sum()))
