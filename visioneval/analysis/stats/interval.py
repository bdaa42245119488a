"""A statistic of two columns with its interval, or a note why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.stats.measure import Measure
from visioneval.analysis.stats.resampling import cluster_bootstrap, clusters_of

Floats = NDArray[np.float64]
Statistic = Callable[[Floats, Floats], float]
RESAMPLES, RESAMPLES_OF_MANY = 1000, 200
MANY_ROWS = 5000
"""With this many rows, ``RESAMPLES_OF_MANY`` resamples are enough, as the interval is narrow."""


def measure(
    statistic: Statistic,
    first: Sequence[float] | Floats,
    second: Sequence[float] | Floats,
    cases: Sequence[Any],
    *,
    undefined: str,
    interval: bool = True,
) -> Measure:
    """A statistic of two columns, with an interval from a bootstrap over ``cases``, the case of each row.

    ``undefined`` is the note if the statistic is NaN although there are rows.
    """
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    value = statistic(a, b) if len(a) else np.nan
    if np.isnan(value):
        return Measure(n=len(a), note="nothing to compare" if not len(a) else undefined)
    if not interval:
        return Measure(value=value, n=len(a))
    return with_interval(value, len(a), lambda rows: statistic(a[rows], b[rows]), cases)


def with_interval(
    value: float, n: int, statistic: Callable[[NDArray[np.intp]], float], cases: Sequence[Any]
) -> Measure:
    """A value with the interval of ``statistic``, a function of the row numbers of a resample."""
    clusters = clusters_of(cases)
    if len(clusters) < 2:
        return Measure(value=value, n=n, note="only one case: no interval")
    try:
        bounds = cluster_bootstrap(clusters, statistic, resamples=RESAMPLES if n < MANY_ROWS else RESAMPLES_OF_MANY)
    except ValueError:
        return Measure(value=value, n=n, note="too little data for an interval")
    return Measure(value=value, low=bounds.low, high=bounds.high, n=n)
