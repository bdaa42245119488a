"""Intervals, groups of values, Wilson's interval of a rate and Student's t, with sources. Imports no NumPy, so that a
list of runs starts quickly. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import atan, cos, erfc, pi, sin, sqrt
from statistics import NormalDist
from typing import TypeVar

from visioneval.types import Frozen

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")
MANY = 2000
"""From this many degrees of freedom on, an expansion around the normal distribution is within 1e-7."""


class Statistic(Frozen):
    """A value over ``n`` rows with its 95 % interval. ``note`` explains a missing value or interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval in the unit of its statistic."""

    low: float
    high: float


def ends(interval: Interval | None) -> tuple[float, float] | tuple[None, None]:
    """Both ends of an interval, ``None`` without one."""
    return (interval.low, interval.high) if interval else (None, None)


def grouped(items: Iterable[tuple[KeyT, ValueT]]) -> dict[KeyT, list[ValueT]]:
    """The values by key, in the order of the first value of each."""
    groups: dict[KeyT, list[ValueT]] = {}
    for key, value in items:
        groups.setdefault(key, []).append(value)
    return groups


def wilson_interval(successes: float, n: float) -> tuple[float, float]:
    """The Wilson score interval of a rate as ``(low, high)`` in 0..1. A tie is half a success.

    The formula, for ``n`` independent observations or an effective number of them. Cells of one case are not
    independent: the interval of a pass rate is ``intervals.rate_interval``, which gives this the effective number, and
    that of a rate that must reach a minimum is ``intervals.whole_case_interval``.

    Raises ``ValueError`` for ``n <= 0``, or if ``successes`` is not in 0..``n``.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22 (1927). No continuity correction.
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"not a rate: {successes} of {n}")
    z = NormalDist().inv_cdf(0.975)
    rate = successes / n
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    high = 1.0 if successes == n else min(1.0, middle + half)
    return low, high


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
