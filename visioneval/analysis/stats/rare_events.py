"""The interval of a rate close to 0 or 1, such as the accuracy of a good judge. Pure."""

from __future__ import annotations

from functools import lru_cache
from math import comb, fsum

from visioneval.analysis.stats.basic import Interval, wilson_interval
from visioneval.analysis.stats.clusters import CaseSums, equal_cases, rate_interval

FEW = 3
"""The most cases with an event for which the exact limit is used."""


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
    return Interval(low, high, interval.level)


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
