"""The bootstrap over clusters: cells of one case are not independent, so whole cases are drawn. Pure, seeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visioneval.analysis.stats.basic import Interval

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]
LEAST = 6
"""Clusters from which resampled ones have a spread worth showing, and exact tests can be significant at all."""
MANY = 10_000
"""Clusters from which the bootstrap distribution of a mean is its normal limit, for all that can be printed."""


def clusters_of(names: Sequence[Any]) -> list[Rows]:
    """The rows of each cluster, given the cluster that each row belongs to, in the order of first appearance."""
    found: dict[Any, list[int]] = {}
    for row, name in enumerate(names):
        found.setdefault(name, []).append(row)
    return [np.asarray(rows, dtype=np.intp) for rows in found.values()]


def cluster_bootstrap(
    clusters: Sequence[Rows],
    statistic: Callable[[Rows], float],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """The percentile interval of any statistic, with whole clusters drawn with replacement.

    ``clusters`` holds the row numbers of each cluster; ``statistic`` gets the row numbers of one resample, in which
    rows come back as often as their cluster was drawn. A resample over which it is NaN (say, a correlation of
    constants) is left out. The same seed gives the same interval. Raises ``ValueError`` for fewer than two clusters,
    or where every resample was NaN.

    Source: B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13; for clusters, A. C.
    Davison and D. V. Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8.
    """
    _check(len(clusters), resamples)
    random = np.random.default_rng(seed)
    every = np.concatenate(clusters)
    sizes = np.asarray([len(rows) for rows in clusters], dtype=np.intp)
    starts = np.cumsum(sizes) - sizes
    found = np.empty(resamples)
    for at in range(resamples):
        drawn = random.integers(0, len(clusters), len(clusters))
        found[at] = statistic(_rows_of(drawn, every, starts, sizes))
    return _percentile(found[~np.isnan(found)], level)


def _rows_of(drawn: Rows, every: Rows, starts: Rows, sizes: Rows) -> Rows:
    """The rows of the clusters that were drawn, in that order, without a step for each of them."""
    own = sizes[drawn]
    shifts = starts[drawn] - (np.cumsum(own) - own)
    return every[np.repeat(shifts, own) + np.arange(int(own.sum()))]


def cluster_bootstrap_mean(
    sums: ArrayLike, counts: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """``cluster_bootstrap`` of the mean of all rows, from each cluster's sum and number of rows (shape ``(k,)``).

    Clusters that are alike are drawn together, by a multinomial draw of how often each kind comes, which has the same
    distribution. From ``MANY`` different clusters on the normal limit is taken, with the variance of a ratio between
    clusters. Raises as ``cluster_bootstrap``, and for a cluster without rows.
    """
    own = np.column_stack([np.asarray(sums, dtype=float), np.asarray(counts, dtype=float)])
    _check(len(own), resamples)
    if (own[:, 1] <= 0).any():
        raise ValueError("a cluster without rows has no mean")
    kinds, times = np.unique(own, axis=0, return_counts=True)
    if len(kinds) >= MANY:
        return _normal(own[:, 0], own[:, 1], level)
    random = np.random.default_rng(seed)
    share = times / times.sum()
    step = max(1, 2_000_000 // len(kinds))
    found = [
        _ratio(random.multinomial(len(own), share, size=min(step, resamples - start)), kinds)
        for start in range(0, resamples, step)
    ]
    return _percentile(np.concatenate(found), level)


def _ratio(drawn: NDArray[np.int64], kinds: Floats) -> Floats:
    totals = drawn @ kinds
    return np.asarray(totals[:, 0] / totals[:, 1], dtype=float)


def _normal(sums: Floats, counts: Floats, level: float) -> Interval:
    k, mean = len(sums), float(sums.sum() / counts.sum())
    spread = float(np.sqrt(k / (k - 1) * np.square(sums - mean * counts).sum()) / counts.sum())
    half = NormalDist().inv_cdf(0.5 + level / 2) * spread
    return Interval(mean - half, mean + half, level)


def _percentile(found: Floats, level: float) -> Interval:
    if not len(found):
        raise ValueError("the statistic is NaN over every resample")
    low, high = np.quantile(found, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(low), float(high), level)


def _check(clusters: int, resamples: int) -> None:
    if clusters < 2:
        raise ValueError(f"an interval needs two clusters or more, not {clusters}")
    if resamples < 1:
        raise ValueError(f"resamples: {resamples} is not a number of resamples")
