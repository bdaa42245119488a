"""Correlation of two columns of numbers, of their values or ranks. Undefined results are NaN. Pure."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation of two columns of shape ``(n,)``: -1..1.

    NaN for fewer than two rows or a constant column.

    Source: K. Pearson, "Notes on regression and inheritance in the case of two parents", Proceedings of the Royal
    Society of London 58 (1895).
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return np.nan
    a, b = (side / np.abs(side).max() for side in (a - a.mean(), b - b.mean()))
    return max(-1.0, min(1.0, float(a @ b) / sqrt(float(a @ a) * float(b @ b))))


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation of two columns of shape ``(n,)``: -1..1. Ties share their mean rank.

    NaN for fewer than two rows or a constant column.

    Source: C. Spearman, "The proof and measurement of association between two things", American Journal of Psychology
    15 (1904); with ties, the correlation of mean ranks.
    """
    a, b = mean_ranks(first), mean_ranks(second)
    if len(a) < 2:
        return np.nan
    a, b = a - a.mean(), b - b.mean()
    spread = float(a @ a) * float(b @ b)
    return np.nan if spread == 0 else float(a @ b) / sqrt(spread)


def kendall(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's tau-b of two columns of shape ``(n,)``: -1..1, corrected for ties. Takes ``n log n`` time.

    NaN for fewer than two rows or a constant column.

    Source: M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945); discordant pairs counted
    as inversions, after W. R. Knight, "A computer method for calculating Kendall's tau with ungrouped data", Journal of
    the American Statistical Association 61 (1966).
    """
    a, b = _codes(first), _codes(second)
    order = np.lexsort((b, a))
    a, b = a[order], b[order]
    pairs = _pairs(np.asarray([len(a)]))
    tied_a, tied_b = _pairs(np.bincount(a)), _pairs(np.bincount(b))
    tied_both = _pairs(np.unique(a * (int(b.max(initial=0)) + 1) + b, return_counts=True)[1])
    spread = float(pairs - tied_a) * float(pairs - tied_b)
    if spread == 0:
        return np.nan
    return (pairs - tied_a - tied_b + tied_both - 2 * _inversions(b)) / sqrt(spread)


def _codes(column: ArrayLike) -> NDArray[np.int64]:
    return np.asarray(np.unique(np.asarray(column, dtype=float), return_inverse=True)[1], dtype=np.int64)


def mean_ranks(column: ArrayLike) -> NDArray[np.float64]:
    """The rank of each row, from 1. Ties share their mean rank."""
    _, kind, times = np.unique(np.asarray(column, dtype=float), return_inverse=True, return_counts=True)
    last = np.cumsum(times)
    return np.asarray((last - (times - 1) / 2)[kind], dtype=float)


def _pairs(sizes: NDArray[np.int64]) -> int:
    return int((sizes * (sizes - 1) // 2).sum())


def _inversions(codes: NDArray[np.int64]) -> int:
    """Counts pairs in descending order, each at the highest bit in which its codes differ."""
    inversions = 0
    for bit in range(int(codes.max(initial=0)).bit_length()):
        above = codes >> (bit + 1)
        order = np.argsort(above, kind="stable")
        ones = (codes[order] >> bit) & 1
        group = above[order]
        before = np.cumsum(ones) - ones
        start = np.searchsorted(group, group, side="left")
        inversions += int((before - before[start])[ones == 0].sum())
    return inversions
