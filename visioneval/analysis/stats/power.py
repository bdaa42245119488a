"""The smallest differences that a paired comparison can detect. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import comb, pi, sqrt
from statistics import NormalDist

from visioneval.analysis.stats.basic import mcnemar_exact

EXACT = 100
_STEPS = 30


def detectable_rate_difference(
    n: int, discordant: float = 0.0, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """The smallest difference of two paired rates that exact McNemar detects with ``power``, in 0..1.

    ``discordant`` is the share of the ``n`` pairs that differ, and at least the difference itself. ``None`` if no
    difference can reach ``alpha``: fewer than six pairs at 0.05. Exact up to ``EXACT`` pairs, then by the normal
    approximation.

    Source: S. W. Duffy, "Asymptotic and exact power for the McNemar test and its analogue with R controls per case",
    Biometrics 40 (1984); approximation by R. J. Connor, "Sample size for testing differences in proportions for the
    paired-sample design", Biometrics 43 (1987).
    """
    if n < 1 or mcnemar_exact(n, 0) > alpha:
        return None
    power_of = _exact_power if n <= EXACT else _normal_power

    def is_detectable(difference: float) -> bool:
        return power_of(n, max(discordant, difference), difference, alpha) >= power

    return _smallest(is_detectable)


def detectable_mean_difference(n: int, deviation: float, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """The smallest mean difference that the signed-rank test detects with ``power``, in the unit of ``deviation``.

    ``deviation`` is the standard deviation of the ``n`` paired differences. ``None`` if it is 0, as the noise is then
    unknown, or if ``n`` signs cannot reach ``alpha``. Uses the normal approximation, with the efficiency of the
    signed-rank test relative to the t test for normal differences.

    Source: J. L. Hodges and E. L. Lehmann, "The efficiency of some nonparametric competitors of the t-test", Annals of
    Mathematical Statistics 27 (1956): 3 / pi.
    """
    if n < 1 or deviation <= 0 or mcnemar_exact(n, 0) > alpha:
        return None
    normal = NormalDist()
    reach = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
    return reach * deviation / sqrt(n * 3 / pi)


def _smallest(is_detectable: Callable[[float], bool]) -> float | None:
    low, high = 0.0, 1.0
    if not is_detectable(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_detectable(middle) else (middle, high)
    return high


def _exact_power(n: int, discordant: float, difference: float, alpha: float) -> float:
    """Sums over every number of differing pairs and every split of them."""
    lean = (discordant + difference) / (2 * discordant)
    return sum(
        comb(n, m) * discordant**m * (1 - discordant) ** (n - m) * _rejection_rate(m, lean, alpha) for m in range(n + 1)
    )


def _rejection_rate(m: int, lean: float, alpha: float) -> float:
    critical = _critical_count(m, alpha)
    return sum(
        comb(m, k) * (lean ** (m - k) * (1 - lean) ** k + lean**k * (1 - lean) ** (m - k)) for k in range(critical + 1)
    )


@lru_cache(maxsize=1024)
def _critical_count(m: int, alpha: float) -> int:
    """The largest minority count of ``m`` differing pairs that is still significant, or -1."""
    critical = -1
    while critical + 1 <= m // 2 and mcnemar_exact(m - critical - 1, critical + 1) <= alpha:
        critical += 1
    return critical


def _normal_power(n: int, discordant: float, difference: float, alpha: float) -> float:
    normal = NormalDist()
    left = discordant - difference * difference
    reach = difference * sqrt(n) - normal.inv_cdf(1 - alpha / 2) * sqrt(discordant)
    return normal.cdf(reach / sqrt(left)) if left > 0 else float(reach >= 0)
