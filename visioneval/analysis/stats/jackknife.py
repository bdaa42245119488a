"""Jackknife over cases: the interval of a coefficient between -1 and 1 that has no formula of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import atanh, sqrt, tanh

import numpy as np
from numpy.typing import NDArray

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.student import t_quantile

Rows = NDArray[np.intp]
MIN_GROUPS, MAX_GROUPS, MAX_ROWS = 20, 200, 2_000_000
"""With more cases than ``MAX_GROUPS``, groups of cases are left out. With many rows there are fewer groups, so that at
most about ``MAX_ROWS`` rows are evaluated in all."""


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
