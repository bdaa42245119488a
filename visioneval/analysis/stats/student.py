"""Student's t distribution with whole degrees of freedom, without SciPy. Pure."""

from __future__ import annotations

from functools import lru_cache
from math import atan, cos, erfc, pi, sin, sqrt
from statistics import NormalDist

MANY = 2000
"""From this many degrees of freedom on, an expansion around the normal distribution is within 1e-7."""


def t_two_sided_p(t: float, df: int) -> float:
    """The probability that ``|T| >= |t|`` with ``df`` degrees of freedom. Raises ``ValueError`` for ``df < 1``.

    Source: M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions" (1964), 26.7.3 and 26.7.4, a finite
    series; with ``MANY`` degrees of freedom 26.7.8, a normal deviate.
    """
    if df < 1:
        raise ValueError(f"the t distribution needs one or more degrees of freedom, not {df}")
    t = abs(t)
    if df >= MANY:
        return erfc(t * (1 - 1 / (4 * df)) / sqrt(1 + t * t / (2 * df)) / sqrt(2))
    angle = atan(t / sqrt(df))
    cosine = cos(angle)
    is_odd = df % 2 == 1
    term = cosine if is_odd else 1.0
    total = term if df > 1 else 0.0
    for step in range(2 + is_odd, df - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    inside = 2 / pi * (angle + sin(angle) * total) if is_odd else sin(angle) * total
    return max(0.0, 1 - inside)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: int) -> float:
    """The quantile of the t distribution: ``t_quantile(0.975, df)`` is the factor of a 95 % interval.

    ``p`` is in 0..1, exclusive. Raises ``ValueError`` for ``df < 1`` or another ``p``.
    """
    if not 0 < p < 1:
        raise ValueError(f"not a probability between 0 and 1: {p}")
    if p < 0.5:
        return -t_quantile(1 - p, df)
    tail = 2 * (1 - p)
    low, high = 0.0, max(1.0, NormalDist().inv_cdf(p))
    while t_two_sided_p(high, df) > tail:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_two_sided_p(middle, df) > tail else (low, middle)
    return high
