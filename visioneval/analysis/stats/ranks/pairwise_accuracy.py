"""Tie-calibrated pairwise accuracy: in how many pairs of rows two columns give the same order. Pure.

Of each two rows, people prefer the first, the second or neither, and so does a metric. A metric with any numbers hardly
ever gives two rows the same one, so rank correlations give it no credit for rows that people find equal. Here two rows
whose numbers differ by at most a threshold are a tie of the metric, and the threshold is the one with the highest
accuracy.

Source: D. Deutsch, G. Foster and M. Freitag, "Ties Matter: Meta-Evaluating Modern Metrics with Pairwise Accuracy and
Tie Calibration", EMNLP 2023: ``acc_eq`` over all pairs, without groups.
"""

from __future__ import annotations

from collections.abc import Iterator

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
