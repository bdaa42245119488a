"""Correlation of two columns of numbers, and in how many pairs of rows both give the same order. Pure.

Undefined results are NaN.

Of each two rows, people prefer the first, the second or neither, and so does a metric. A metric with any numbers hardly
ever gives two rows the same one, so rank correlations give it no credit for rows that people find equal. In the
tie-calibrated pairwise accuracy, two rows whose numbers differ by at most a threshold are a tie of the metric, and the
threshold is the one with the highest accuracy.

The interval of each number:

- quadratic kappa, correlations, pairwise accuracy, other alphas: jackknife over cases on Fisher's scale; from 20
  cases, 5 of them with another answer

Source: D. Deutsch, G. Foster and M. Freitag, "Ties Matter: Meta-Evaluating Modern Metrics with Pairwise Accuracy and
Tie Calibration", EMNLP 2023: ``acc_eq`` over all pairs, without groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
MOST_ROWS = 1500
"""The threshold is sought among the pairs of at most so many rows, spread evenly. Pairs grow with the square."""
_CHUNK = 1 << 21
"""Pairs that are compared at a time."""
_DIGITS = 9
"""Differences that are equal when rounded to so many digits are equal."""


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


class PairwiseAccuracy:
    """The pairs of two columns of shape ``(n,)``: the answers of ``people`` and the numbers of a ``metric``.

    ``threshold`` is the largest difference of the metric that is a tie, and ``orders`` is whether it leaves any pair of
    the metric that is none. Both columns have more than one value, or ``threshold`` is NaN.
    """

    def __init__(self, people: ArrayLike, metric: ArrayLike) -> None:
        """Seeks the threshold, and counts the pairs in which both agree."""
        self._people, self._metric = np.asarray(people, dtype=float), np.asarray(metric, dtype=float)
        self.threshold = _best_threshold(self._people, self._metric)
        self.orders = bool(len(self._metric)) and _rounded(np.ptp(self._metric)) > self.threshold
        self._agreeing = self._agreeing_by_row()

    def of(self, rows: Rows) -> float:
        """The accuracy over the pairs of some rows, most of them, 0..1. NaN if a column has a single value there.

        The threshold is that of all rows. That one row less moves it changes the accuracy by less than the row itself,
        as the accuracy is at its highest there.
        """
        if len(rows) < 2 or np.isnan(self.threshold):
            return np.nan
        if np.ptp(self._people[rows]) == 0 or np.ptp(self._metric[rows]) == 0:
            return np.nan
        is_out = np.ones(len(self._people), dtype=bool)
        is_out[rows] = False
        out = np.flatnonzero(is_out)
        # A pair of two rows that are left out is in the sums of both.
        within = (sum(int(pairs.sum()) for pairs in self._agreements(out, out)) - len(out)) / 2
        agreeing = self._agreeing.sum() / 2 - self._agreeing[out].sum() + within
        return float(agreeing / (len(rows) * (len(rows) - 1) / 2))

    def _agreeing_by_row(self) -> NDArray[np.int64]:
        """In how many pairs of each row with another one both agree."""
        if np.isnan(self.threshold):
            return np.zeros(len(self._people), dtype=np.int64)
        every = np.arange(len(self._people))
        return np.concatenate([pairs.sum(axis=1) for pairs in self._agreements(every, every)]) - 1  # without itself

    def _agreements(self, rows: Rows, others: Rows) -> Iterator[NDArray[np.bool_]]:
        """Whether both agree about each pair of a row and another one, some rows at a time."""
        size = max(1, _CHUNK // max(1, len(others)))
        for start in range(0, len(rows), size):
            some = rows[start : start + size, None]
            metric = _rounded(self._metric[some] - self._metric[others])
            order = np.where(np.abs(metric) <= self.threshold, 0.0, np.sign(metric))
            yield order == np.sign(self._people[some] - self._people[others])


def pairwise_accuracy(people: ArrayLike, metric: ArrayLike) -> float:
    """The tie-calibrated pairwise accuracy of a metric: 0..1. NaN for fewer than two rows or a constant column."""
    pairs = PairwiseAccuracy(people, metric)
    return pairs.of(np.arange(len(np.asarray(people))))


def _best_threshold(people: Floats, metric: Floats) -> float:
    """The smallest of the thresholds with the highest accuracy: 0, or the difference of a pair."""
    if len(people) < 2 or np.ptp(people) == 0 or np.ptp(metric) == 0:
        return np.nan
    if len(people) > MOST_ROWS:
        rows = np.linspace(0, len(people) - 1, MOST_ROWS).round().astype(np.intp)
        people, metric = people[rows], metric[rows]
    first, second = np.triu_indices(len(people), 1)
    difference, order = _rounded(metric[first] - metric[second]), np.sign(people[first] - people[second])
    distances, kinds = np.unique(np.abs(difference), return_inverse=True)
    # A larger threshold wins the pairs that people tie, and loses those that both order alike.
    change = np.where(order == 0, 1, np.where(order == np.sign(difference), -1, 0))
    gains = np.cumsum(np.bincount(kinds, weights=change))
    if distances[0] > 0:
        distances, gains = np.concatenate([[0.0], distances]), np.concatenate([[0.0], gains])
    return float(distances[np.argmax(gains)])


def _rounded(values: Floats) -> Floats:
    return np.round(values, _DIGITS)
