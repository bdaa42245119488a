"""Cluster bootstrap: resamples whole cases, as cells of a case are not independent. Pure, seeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visioneval.analysis.stats.basic import Interval

Rows = NDArray[np.intp]
Floats = NDArray[np.float64]
MIN_CLUSTERS = 6
"""The fewest clusters for an interval. With fewer, exact tests cannot be significant either."""
MANY_CLUSTERS = 10_000
"""With this many clusters, the bootstrap of a mean equals its normal limit at printed precision."""


def clusters_of(names: Sequence[Any]) -> list[Rows]:
    """Groups row numbers by the cluster name of each row, in order of first appearance."""
    clusters: dict[Any, list[int]] = {}
    for row, name in enumerate(names):
        clusters.setdefault(name, []).append(row)
    return [np.asarray(rows, dtype=np.intp) for rows in clusters.values()]


def cluster_bootstrap(
    clusters: Sequence[Rows],
    statistic: Callable[[Rows], float],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """The percentile interval of any statistic, sampling whole clusters with replacement.

    ``clusters`` are the row numbers of each cluster. ``statistic`` takes the row numbers of a resample, in which the
    rows of a cluster repeat as often as it was sampled. Ignores resamples with a NaN statistic, such as a correlation
    of constants. The same seed gives the same interval. Raises ``ValueError`` for fewer than two clusters, or if every
    resample is NaN.

    Source: B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13; for clusters, A. C.
    Davison and D. V. Hinkley, "Bootstrap Methods and their Application" (1997), section 3.8.
    """
    _check(len(clusters), resamples)
    random = np.random.default_rng(seed)
    rows_by_cluster = np.concatenate(clusters)
    sizes = np.asarray([len(rows) for rows in clusters], dtype=np.intp)
    starts = np.cumsum(sizes) - sizes
    values = np.empty(resamples)
    for index in range(resamples):
        sample = random.integers(0, len(clusters), len(clusters))
        values[index] = statistic(_rows_of(sample, rows_by_cluster, starts, sizes))
    return _percentile(values[~np.isnan(values)], level)


def _rows_of(sample: Rows, rows_by_cluster: Rows, starts: Rows, sizes: Rows) -> Rows:
    """The rows of the sampled clusters, in order, computed without a loop."""
    sample_sizes = sizes[sample]
    shifts = starts[sample] - (np.cumsum(sample_sizes) - sample_sizes)
    return rows_by_cluster[np.repeat(shifts, sample_sizes) + np.arange(int(sample_sizes.sum()))]


def cluster_bootstrap_mean(
    sums: ArrayLike, counts: ArrayLike, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """``cluster_bootstrap`` of the mean of all rows, from each cluster's sum and number of rows (shape ``(k,)``).

    Identical clusters are sampled together with a multinomial distribution of their counts, which is equivalent. With
    ``MANY_CLUSTERS`` or more distinct clusters, the normal limit is used, with the variance of a ratio between
    clusters. Raises the errors of ``cluster_bootstrap``, and ``ValueError`` for a cluster without rows.
    """
    clusters = np.column_stack([np.asarray(sums, dtype=float), np.asarray(counts, dtype=float)])
    _check(len(clusters), resamples)
    if (clusters[:, 1] <= 0).any():
        raise ValueError("a cluster without rows has no mean")
    kinds, times = np.unique(clusters, axis=0, return_counts=True)
    if len(kinds) >= MANY_CLUSTERS:
        return _normal(clusters[:, 0], clusters[:, 1], level)
    random = np.random.default_rng(seed)
    share = times / times.sum()
    step = max(1, 2_000_000 // len(kinds))
    values = [
        _ratio(random.multinomial(len(clusters), share, size=min(step, resamples - start)), kinds)
        for start in range(0, resamples, step)
    ]
    return _percentile(np.concatenate(values), level)


def _ratio(samples: NDArray[np.int64], kinds: Floats) -> Floats:
    totals = samples @ kinds
    return np.asarray(totals[:, 0] / totals[:, 1], dtype=float)


def _normal(sums: Floats, counts: Floats, level: float) -> Interval:
    k, mean = len(sums), float(sums.sum() / counts.sum())
    spread = float(np.sqrt(k / (k - 1) * np.square(sums - mean * counts).sum()) / counts.sum())
    half = NormalDist().inv_cdf(0.5 + level / 2) * spread
    return Interval(mean - half, mean + half, level)


def _percentile(values: Floats, level: float) -> Interval:
    if not len(values):
        raise ValueError("the statistic is NaN in every resample")
    low, high = np.quantile(values, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(low), float(high), level)


def _check(clusters: int, resamples: int) -> None:
    if clusters < 2:
        raise ValueError(f"an interval needs two or more clusters, not {clusters}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, not {resamples}")
