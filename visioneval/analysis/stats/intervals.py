"""Intervals over cases of rates close to 0 or 1, of quantiles, and of weighted means, with sources. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, comb, exp, floor, fsum, lgamma, log, log1p, sqrt

from visioneval.analysis.stats.basic import Interval, wilson_interval
from visioneval.analysis.stats.clusters import CaseSums, case_sums, effective_number, equal_cases, rate_interval

FEW = 3
"""The most cases with an event for which the exact limit is used."""
Limits = tuple[float | None, float | None]
"""Both ends of an interval; ``None`` for an end that the cases cannot show."""


def rare_event_interval(cases: CaseSums, ties: int = 0) -> Interval | None:
    """``rate_interval`` at 95 %, with a wider bound where only one to three cases differ from the rest.

    Wilson's interval misses a rate of 0.01 or 0.99 in 9 % of samples of 50, because of the samples with two or three
    events. There, the bound on the side of 0 (or 1) becomes the rate at which so many events, or more, have a
    probability of 5 %. The other bound nearly always holds at such rates. ``None`` without cases.

    Source: the modified interval of L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a binomial
    proportion", Statistical Science 16 (2001), section 4.1.1, with the exact limit of C. J. Clopper and E. S. Pearson,
    "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26 (1934), instead of
    its Poisson limit, and with the cases that have an event as events.
    """
    return _with_exact_limits(rate_interval(cases, ties), cases)


def whole_case_interval(cases: CaseSums) -> Interval | None:
    """The interval of a rate at 95 % that counts each case once, however many cells it has. ``None`` without cases.

    For rates that must reach a minimum: one more event never lowers its bounds, so that a perfect judge never does
    worse than an imperfect one. The variance between cases cannot promise that, as no error at all shows none. With
    cases of unequal size, as many count as cases of equal size would.

    Source: Wilson's interval with the number of cases.
    """
    if not cases:
        return None
    number = equal_cases(cases)
    rate = min(1.0, max(0.0, fsum(total for total, _ in cases) / sum(count for _, count in cases)))
    return Interval(*wilson_interval(min(rate * number, number), number))


def cautious_interval(cases: CaseSums) -> Interval | None:
    """``whole_case_interval`` with the exact limits of ``rare_event_interval``. ``None`` without cases."""
    return _with_exact_limits(whole_case_interval(cases), cases)


def _with_exact_limits(interval: Interval | None, cases: CaseSums) -> Interval | None:
    if interval is None:
        return None
    rate = min(1.0, max(0.0, fsum(total for total, _ in cases) / sum(count for _, count in cases)))
    low = min(interval.low, rate * _shrink(sum(total > 0 for total, _ in cases), len(cases)))
    high = max(interval.high, 1 - (1 - rate) * _shrink(sum(total < count for total, count in cases), len(cases)))
    return Interval(low, high)


def _shrink(events: int, cases: int) -> float:
    """The exact limit as a share of the observed rate of events; 1 if there are none or many."""
    return exact_low(events, cases) * cases / events if 1 <= events <= FEW else 1.0


@lru_cache(maxsize=4096)
def exact_low(events: int, n: int) -> float:
    """The rate at which ``events`` or more of ``n`` have a probability of 5 %: the lower bound at 95 % on one side."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        fewer = fsum(comb(n, k) * middle**k * (1 - middle) ** (n - k) for k in range(events))
        low, high = (middle, high) if fewer > 0.95 else (low, middle)
    return low


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


def quantile_interval(cases: Sequence[Sequence[float]], p: float) -> Limits:
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
    n = max(1, floor(effective_number(shares) + 1e-9))
    low, high = _ranks(n, p, 0.025)
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


def weighted_interval(parts: Sequence[tuple[float, float, Interval | None]]) -> Interval | None:
    """The interval of the sum of ``share * value`` over independent parts, each with the interval of its value.

    The shares are positive. Keeps the asymmetry of the parts' intervals, such as those of rates close to 1. ``None``
    if a part has no interval.

    Source: G. Y. Zou and A. Donner, "Construction of confidence limits about effect measures: a general approach",
    Statistics in Medicine 27 (2008), for sums; for two rates, it is Newcombe's interval.
    """
    value = fsum(share * part for share, part, _ in parts)
    down: list[float] = []
    up: list[float] = []
    for share, part, interval in parts:
        if interval is None:
            return None
        down.append((share * (part - interval.low)) ** 2)
        up.append((share * (interval.high - part)) ** 2)
    return Interval(value - sqrt(fsum(down)), value + sqrt(fsum(up)))
