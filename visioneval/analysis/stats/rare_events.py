"""The interval of a rate close to 0 or 1, such as the accuracy of a good judge. Pure."""

from __future__ import annotations

from math import fsum

from visioneval.analysis.stats.basic import Interval
from visioneval.analysis.stats.clusters import CaseSums, rate_interval

POISSON_LOW = (0.051293, 0.355362, 0.817691)
"""The rates of a Poisson variable that is at least 1, 2 or 3 with a probability of 5 %."""


def rare_event_interval(cases: CaseSums, ties: int = 0) -> Interval | None:
    """``rate_interval`` at 95 %, with a wider bound where only one to three cases differ from the rest.

    Wilson's interval misses a rate of 0.01 or 0.99 in 9 % of samples of 50, because of the samples with two or three
    events. There, the bound on the side of 0 (or 1) becomes the rate at which so many events have a probability of 5 %.
    The other bound nearly always holds at such rates. ``None`` without cases.

    Source: L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a binomial proportion", Statistical Science
    16 (2001), section 4.1.1, with the cases that have an event for the events.
    """
    interval = rate_interval(cases, ties)
    if interval is None:
        return None
    rate = min(1.0, max(0.0, fsum(total for total, _ in cases) / sum(count for _, count in cases)))
    low = min(interval.low, rate * _shrink(sum(total > 0 for total, _ in cases)))
    high = max(interval.high, 1 - (1 - rate) * _shrink(sum(total < count for total, count in cases)))
    return Interval(low, high, interval.level)


def _shrink(events: int) -> float:
    """The Poisson limit as a share of the number of events; 1 if there are none or many."""
    return POISSON_LOW[events - 1] / events if 1 <= events <= len(POISSON_LOW) else 1.0
