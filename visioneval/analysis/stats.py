"""Statistics, pure, each with its source."""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The Wilson score interval of a rate, as ``(low, high)`` in 0..1. Raises ``ValueError`` for ``n < 1``.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22 (1927). No continuity correction.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"no rate: {successes} of {n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == n else min(1.0, middle + half)
    return low, high
