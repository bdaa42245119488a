"""The level of a test that is repeated every night over the last runs, so that its total error rate is known. Pure.

- drift: the test of the pass rate over the samples of several runs, at one level for all nights (Pocock)
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from statistics import NormalDist

DRIFT_ALPHA = 0.05
"""How often a series of ``NIGHTS`` runs of equal quality has an alarm, at most."""
NIGHTS = 20
_PATHS = 100_000
_SEED = 0
"""Fixed, so that the same series always has the same limit."""


def drift_limit(baseline_runs: float, window: int) -> float:
    """The one-sided p below which the last ``window`` runs, of as many as there are, show a drift.

    The error rate is spent in equal parts, as one level for every night: the chance that any of the first ``NIGHTS``
    runs (or ``window`` ones, if these are more) after the baseline has a lower p is ``DRIFT_ALPHA``. The tests of two
    nights share runs of the window and all runs of the baseline, so that the level is far above one divided by the
    number of nights. ``baseline_runs`` is the number of samples of the baseline as a multiple of those of a night.

    Source: the constant level of S. J. Pocock, "Group sequential methods in the design and analysis of clinical
    trials", Biometrika 64 (1977), here for a moving mean that is compared with a mean which is itself uncertain; the
    level is a quantile of 100,000 simulated series of normal means, with four decimals. Size and power: ``make
    calibration``.
    """
    return _limit(max(0.1, round(baseline_runs, 1)), window)


@lru_cache(maxsize=256)
def _limit(baseline_runs: float, window: int) -> float:
    import numpy as np

    random = np.random.default_rng(_SEED)
    baseline = random.standard_normal(_PATHS) / sqrt(baseline_runs)
    sums = [np.zeros(_PATHS)]
    lowest = np.full(_PATHS, np.inf)
    for night in range(1, max(NIGHTS, window) + 1):
        sums.append(sums[-1] + random.standard_normal(_PATHS))
        runs = min(night, window)
        mean = (sums[-1] - sums[-1 - runs]) / runs
        lowest = np.minimum(lowest, (mean - baseline) / sqrt(1 / runs + 1 / baseline_runs))
        if len(sums) > window:
            sums[-1 - window] = sums[0]  # no later mean needs it
    return round(NormalDist().cdf(float(np.quantile(lowest, DRIFT_ALPHA))), 4)
