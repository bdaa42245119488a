"""Quantiles of the values of cells, and their intervals over cases. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, floor, lgamma, log, log1p, sqrt

from visioneval.analysis.stats.clusters import case_sums, effective_number

Limits = tuple[float | None, float | None]
"""Both ends of an interval; ``None`` for an end that the cases cannot show."""


def quantile(values: Sequence[float], p: float) -> float:
    """The ``p`` quantile of values, linear between the two nearest of them. Raises ``ValueError`` without values.

    Source: definition 7 of R. J. Hyndman and Y. Fan, "Sample quantiles in statistical packages", The American
    Statistician 50 (1996).
    """
    if not values:
        raise ValueError("a quantile needs a value")
    ordered = sorted(values)
    position = (len(ordered) - 1) * p
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def quantile_interval(cases: Sequence[Sequence[float]], p: float, confidence: float = 0.95) -> Limits:
    """The interval of the ``p`` quantile of all values, given by case: two of the values themselves.

    Of independent values, the number below the quantile is binomial, whatever their distribution. Values of one case
    count as fewer, by the variance between cases of the share of values up to the quantile. An end is ``None`` if not
    even the largest (or smallest) value is beyond the quantile with enough confidence: at 95 %, the 0.95 quantile has
    an upper limit from 72 cases on.

    Source: order statistics, H. A. David and H. N. Nagaraja, "Order Statistics" (2003), section 7.1; the effective
    number of values follows R. S. Woodruff, "Confidence intervals for medians and other position measures", Journal of
    the American Statistical Association 47 (1952). Coverage: ``make calibration``.
    """
    ordered = sorted(value for values in cases for value in values)
    estimate = quantile(ordered, p)
    shares = case_sums({number: [float(value <= estimate) for value in values] for number, values in enumerate(cases)})
    n = max(1, floor(effective_number(shares, confidence) + 1e-9))
    low, high = _ranks(n, p, (1 - confidence) / 2)
    scale = len(ordered) / n
    return (
        None if low is None else ordered[max(1, floor(low * scale)) - 1],
        None if high is None else ordered[min(len(ordered), ceil(high * scale)) - 1],
    )


def _ranks(n: int, p: float, tail: float) -> tuple[int | None, int | None]:
    """The ranks from 1 to ``n`` of the values that are above, and below, the quantile with at most ``tail``."""
    low = high = None
    first = max(1, floor(n * p - 12 * sqrt(n * p * (1 - p))))  # below it, the probability is lost in rounding
    below = 0.0
    for rank in range(first, n + 1):
        below += _probability(rank - 1, n, p)
        low = rank if below <= tail else low
        if 1 - below <= tail:
            high = rank
            break
    return low, high


def _probability(count: int, n: int, p: float) -> float:
    """The binomial probability of ``count`` of ``n``."""
    ways = lgamma(n + 1) - lgamma(count + 1) - lgamma(n - count + 1)
    return exp(ways + count * log(p) + (n - count) * log1p(-p))
